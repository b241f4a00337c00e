"""The audit as a Spark job: recordings and an archive in, a report out. No event is ever brought to the
driver."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qanat.events.errors import LocalError
from qanat.pipeline.archive.check import naming_damage
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import Manifest, Range
from qanat.pipeline.archive.storage import storage_of
from qanat.pipeline.archive.tables import read_files
from qanat.pipeline.audit import deliveries, judging, latency, published
from qanat.pipeline.audit.blocks import BITS, block_of
from qanat.pipeline.audit.deliveries import SIDE
from qanat.pipeline.audit.judge import VIOLATIONS, Scope
from qanat.pipeline.audit.judging import Audited, Stream
from qanat.pipeline.audit.reasons import Reasons, explain
from qanat.pipeline.audit.report import Account, Report, Violation
from qanat.pipeline.audit.subscribers import Run, Subscriber, gather, outside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT = 1_000
"""Violations that are listed; all are counted."""
_BLOCKS_PER_TASK = 256
"""16 million numbers: a task of some seconds."""


class NoRecordings(LocalError):
    """There is nothing to audit."""

    exit_code = 2


class Archived(NamedTuple):
    """One stream of the audit, and its archive."""

    number: int
    name: str
    history: History
    manifest: Manifest
    subscribers: tuple[Subscriber, ...]
    filters: tuple[str, ...]

    @property
    def complete(self) -> tuple[Range, ...]:
        return self.manifest.complete()

    @property
    def end(self) -> int:
        return self.complete[-1].last if self.complete else 0

    def scope(self, run: Run, last_run: bool, whole: bool) -> Scope:
        upto = max(run.reach, self.end) if whole and last_run else run.reach
        return Scope(run.first, upto, self.filters.index(run.heading.where) if run.heading.where else -1)

    def scopes(self, whole: bool) -> list[tuple[Run, Scope]]:
        return [
            (run, self.scope(run, run is subscriber.runs[-1], whole))
            for subscriber in self.subscribers
            for run in subscriber.runs
        ]


def audit(
    spark: "SparkSession",
    path: str,
    archive: str,
    *,
    whole: bool = False,
    policies: Mapping[str, str] | None = None,
    limit: int = LIMIT,
) -> Report:
    """Judges every recording at or below `path` by the archive.

    With `whole`, every subscriber must have come to the archive's end: what it did not get to counts as
    missing. `policies` are the streams' policies of garbage collection as predicates, by stream's name.
    """
    files = deliveries.files(spark, path)
    parts, damaged = deliveries.parts(files)
    if not parts and not damaged:
        raise NoRecordings(f"there are no recordings at {path}; record with Client(…, record=FOLDER)")
    subscribers, incomplete = gather(parts)
    not_proven = [*damaged, *(f"{broken.subscriber}: {broken.sentence}" for broken in incomplete)]
    streams = _archived(spark, archive, subscribers)
    for stream in streams:
        not_proven += _beyond(stream, whole)
    with naming_damage("the audit", [stream.history for stream in streams]):
        report = _report(spark, files, streams, whole, policies or {}, limit)
    return report._replace(not_proven=(*not_proven, *report.not_proven))


def _report(
    spark: "SparkSession",
    files: "DataFrame",
    streams: list[Archived],
    whole: bool,
    policies: Mapping[str, str],
    limit: int,
) -> Report:
    from pyspark.sql import functions as F

    not_proven: list[str] = []
    judged = _judged(spark, files, streams, whole, limit).persist()
    rows = judged.where(F.col("what") != judging.BURIED).collect()
    totals: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.what == judging.TOTAL:
            totals[row.run][row.name] += row.amount
    runs = {run.number: (stream, run) for stream in streams for run, _ in stream.scopes(whole)}
    found = [(row.run, row.name, row.first, row.last) for row in rows if row.what == judging.FOUND]
    ranges: DataFrame | None = None
    for stream in streams:
        reasons = _reasons(spark, stream, whole, totals, policies)
        if reasons is not None:
            if ranges is None:  # its long plan is of no interest to what follows
                ranges = judged.where(F.col("what") == judging.BURIED).localCheckpoint()
            unexplained = explain(ranges, reasons, limit)
            for run, count in unexplained.counts.items():
                totals[run]["unexplained"] += count
            found += [(run, "unexplained", first, last) for run, first, last in unexplained.found]
            not_proven += unexplained.undecided
    judged.unpersist()
    return Report(
        accounts=tuple(_account(stream, s, totals, whole) for stream in streams for s in stream.subscribers),
        violations=tuple(_violations(found, runs, limit)),
        not_proven=tuple(not_proven),
        latency_ms=_latencies(rows),
    )


def _archived(spark: "SparkSession", archive: str, subscribers: Sequence[Subscriber]) -> list[Archived]:
    storage = storage_of(archive, spark)
    by_stream: dict[str, list[Subscriber]] = defaultdict(list)
    for subscriber in subscribers:
        by_stream[subscriber.stream].append(subscriber)
    streams = []
    for number, (name, readers) in enumerate(sorted(by_stream.items())):
        history = History(storage, name)
        filters = sorted({reader.where for reader in readers if reader.where})
        streams.append(Archived(number, name, history, history.newest(), tuple(readers), tuple(filters)))
    return streams


def _beyond(stream: Archived, whole: bool) -> list[str]:
    """What the recordings cover and the archive does not."""
    if not stream.complete:
        return [f"stream {stream.name!r} is not in the archive: nothing about it is proven"]
    said = []
    for subscriber in stream.subscribers:
        scopes = [scope for run, scope in stream.scopes(whole) if run.subscriber == subscriber.number]
        left = [rest for scope in scopes for rest in outside(scope.first, scope.last, stream.complete)]
        if left:
            first, last = min(left).first, max(rest.last for rest in left)
            said.append(
                f"{subscriber.name} was given {stream.name!r} up to {subscriber.reach}; the archive has"
                f" {_spoken(stream.complete)}: {first}..{last} is not decided"
            )
    return said


def _spoken(ranges: Iterable[Range]) -> str:
    return " and ".join(f"{r.first}..{r.last}" for r in ranges)


def _judged(
    spark: "SparkSession", files: "DataFrame", streams: Sequence[Archived], whole: bool, limit: int
) -> "DataFrame":
    """Sums, listed violations, and the ranges that tombstones came for; see `judging`."""
    places, sides, blocks, about = {}, [], 0, []
    for stream in streams:
        scopes = stream.scopes(whole)
        for run, _ in scopes:
            places[run.heading.run] = deliveries.Place(run.number, stream.number, run.highs)
        about.append(
            Stream(
                len(stream.filters),
                stream.complete,
                tuple(
                    Audited(run.number, run.subscriber, run.heading.region, scope) for run, scope in scopes
                ),
            )
        )
        first = min(scope.first for _, scope in scopes)
        last = max(first, *(scope.last for _, scope in scopes))
        events = read_files(spark, stream.history, stream.manifest.overlapping(first, last))
        sides.append(published.blocks(events, stream.number, stream.filters))
        sides.append(_skeleton(spark, stream.number, block_of(first), block_of(last)))
        blocks += block_of(last) - block_of(first) + 1
    sides.append(deliveries.blocks(files, places))
    tasks = max(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), blocks // _BLOCKS_PER_TASK)
    return (
        reduce(lambda a, b: a.unionByName(b), sides)
        .repartition(min(tasks, 2000), "stream", "block")
        .sortWithinPartitions("stream", "block", "side", "run", "number")
        .mapInArrow(judging.judging(about, limit), judging.DDL)
    )


def _skeleton(spark: "SparkSession", stream: int, first: int, last: int) -> "DataFrame":
    """A row for every block, so that one of which neither side has anything is judged as well."""
    from pyspark.sql import functions as F

    values = {"stream": stream, "side": 0, "run": -1, "number": -1, "rows": 0}
    columns = [F.lit(values[f.name]).cast("int").alias(f.name) for f in SIDE if f.name in values]
    blocks = spark.range(first, last + 1, 1, 1).select(F.col("id").alias("block"), *columns)
    return blocks.withColumn("packed", F.lit(b"")).select(*SIDE.names)


def _reasons(
    spark: "SparkSession",
    stream: Archived,
    whole: bool,
    totals: Mapping[int, Counter[str]],
    policies: Mapping[str, str],
) -> Reasons | None:
    runs = tuple(run.number for run, _ in stream.scopes(whole) if totals[run.number]["buried"])
    if not runs:
        return None
    files = stream.manifest.files
    return Reasons(
        stream=stream.name,
        runs=runs,
        events=read_files(spark, stream.history, files),
        policy=policies.get(stream.name, ""),
        newest_us=max(file.max_time_us for file in files),
        end=stream.end,
    )


def _account(
    stream: Archived, subscriber: Subscriber, totals: Mapping[int, Counter[str]], whole: bool
) -> Account:
    mine: Counter[str] = Counter()
    for run in subscriber.runs:
        mine += totals[run.number]
    scopes = [scope for run, scope in stream.scopes(whole) if run.subscriber == subscriber.number]
    first, last = min(s.first for s in scopes), max(s.last for s in scopes)
    left = [rest.first for scope in scopes for rest in outside(scope.first, scope.last, stream.complete)]
    return Account(
        subscriber=subscriber.name,
        regions=tuple(sorted({run.heading.region for run in subscriber.runs})),
        stream=subscriber.stream,
        where=subscriber.where,
        runs=len(subscriber.runs),
        first=first,
        last=last,
        proven_to=max(0, min([last, *(at - 1 for at in left)])) if stream.complete else 0,
        delivered=mine["delivered"],
        collected=mine["collected"],
        repeated=mine["repeated"],
        skipped=sum(run.skipped for run in subscriber.runs),
        violations={name: mine[name] for name in (*VIOLATIONS, "unexplained") if mine[name]},
    )


def _violations(
    found: list[tuple[int, str, int, int]], runs: Mapping[int, tuple[Archived, Run]], limit: int
) -> list[Violation]:
    """In order, with what was cut at the border of a block put together again."""
    merged: list[tuple[int, Violation]] = []
    for number, kind, first, last in sorted(found):
        if merged and first % (1 << BITS) == 0:
            owner, before = merged[-1]
            if (owner, before.kind, before.last + 1) == (number, kind, first):
                merged[-1] = owner, before._replace(last=last)
                continue
        stream, run = runs[number]
        of = run.heading
        violation = Violation(kind, of.subscriber, of.region, stream.name, of.where, first, last, of.began_us)
        merged.append((number, violation))
    return [violation for _, violation in merged[:limit]]


def _latencies(rows: Iterable[Any]) -> dict[str, dict[str, float]]:
    counts: dict[str, latency.Array] = defaultdict(lambda: np.zeros(latency.BUCKETS, np.int64))
    for row in rows:
        if row.what == judging.LATENCY:
            counts[row.name][row.first] += row.amount
    return {
        region: {**latency.summary(found), "events": int(found.sum())}
        for region, found in sorted(counts.items())
    }

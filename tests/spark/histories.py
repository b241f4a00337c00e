"""Random histories of a stream, what a log makes of them, and what a naive model says it should."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.filters import Context, Filter, FilterError, collects, implies, parse
from qanat.events.filters.model import KeepLast, OlderThan, SameKey, Term
from qanat.events.tombstones import GC_ATTRIBUTE
from qanat.log import Chunk, LogConfig, Policy, StreamLog
from qanat.log.collector import prefix_of
from qanat.log.disk import Disk
from qanat.log.predicates import SAME_KEY
from qanat.pipeline.columns import arrow_of, events_from, joined

KEYS = [b"", b"a", b"b", b"c", b"\xff\x00", "é".encode()]
COLOURS: list[Any] = [None, None, "red", "blue", "7", 7, 7.5, True, b"red"]
PREDICATES = [
    "same key",
    "same key",
    "same key",
    "SAME KEY",
    "keep last 3",
    "upto 5",
    "upto 11 and keep last 2",
    "all",
    "not all",
    "older than 20us",
    "older than 300us or upto 3",
    "not older than 40us",
    "older than 10us and not older than 900us",
    "colour = red",
    "colour in (red, blue)",
    "colour = red or same key",
    "same key and colour = red",
    "same key and not keep last 4",
    "same key and older than 50us or colour = 7",
    "not same key and colour = blue",
    "colour = blue and upto 30",
    "colour in 5..8",
    "colour ~ '^b' and keep last 2",
    "exists colour",
    "not exists colour",
    "@key = 'a'",
    "@key = 'b' and colour = red",
    "@kind = gc or same key",
    "@key in (a, b, c) and keep last 2",
    "@kind = gc",
    "@size in 4.. and older than 5us",
    "@source = writer and colour = red",
    "@seq in 3..9",
    "@kind = gc and same key",
]


@dataclass
class History:
    """Batches of a stream, published one after the other; after those in `collects` the log collects."""

    name: str
    policy: Policy
    batches: list[Batch]
    collects: set[int] = field(default_factory=set)
    reopens: bool = False
    """Whether it is closed and opened again then."""

    def collected_upto(self) -> int:
        """The last number that was there when the log collected for the first time."""
        return sum(batch.count for batch in self.batches[: min(self.collects) + 1])


def random_history(name: str, rng: random.Random, *, steps: int = 1) -> History:
    """With one step the log may collect whenever it likes; with two it does so once before the end, and is
    opened again."""
    policy = Policy(
        by_key=rng.random() < 0.35,
        keep_last=rng.choice([None, None, None, 6, 25]),
        age_ms=rng.choice([None, None, None, 1]),
    )
    predicates = rng.sample(PREDICATES, rng.randint(1, 6))
    aged = policy.age_ms is not None or any("older" in text for text in predicates)
    count, gc_share = rng.randint(1, 45), rng.choice([0, 0.1, 0.3, 0.6])
    batches: list[Batch] = []
    clock = made = 0
    positions = {"writer": 0, "other": 0}
    while made < count:
        # What is old is told by index entries: for the log to tell it by events, each has an entry of its
        # own.
        rows = 1 if aged else rng.randint(1, 9)
        clock += rng.choice([0, 5, 60, 400])
        kinds = [Kind.GC if rng.random() < gc_share else Kind.DATA for _ in range(rows)]
        attributes: list[dict[str, Any]] = []
        for kind in kinds:
            colour = rng.choice(COLOURS)
            mine = {} if colour is None else {"colour": colour}
            if kind is Kind.GC:
                mine[GC_ATTRIBUTE] = rng.choice(predicates)
            attributes.append(mine)
        source: dict[str, Any] = {}
        if rng.random() < 0.4:
            writer = rng.choice(list(positions))
            source = {"source": writer, "position": positions[writer] + 1}
            positions[writer] += rows
        batches.append(
            Batch.build(
                stream_id(name),
                [
                    b"%d" % rng.randint(0, 10**6) + bytes(1100 if aged else rng.randint(0, 6))
                    for _ in range(rows)
                ],
                keys=[rng.choice(KEYS) for _ in range(rows)] if rng.random() < 0.9 else None,
                times=[clock + rng.randint(0, 1500 if aged else 5) for _ in range(rows)],
                kinds=kinds,
                attributes=attributes,
                **source,
            )
        )
        made += rows
    if steps == 2:
        return History(name, policy, batches, {rng.randrange(len(batches))}, reopens=True)
    collects = {i for i in range(len(batches)) if rng.random() < 0.1} if rng.random() < 0.3 else set()
    return History(name, policy, batches, collects)


def small_log(disk: Disk, folder: str, history: History) -> StreamLog:
    config = LogConfig(
        mode="interval",
        policy=history.policy,
        index_stride_bytes=1024,
        rewrite_batch_bytes=1024,
        tail_bytes=4096,
        indexed=("colour",) if len(history.name) % 2 else (),
    )
    return StreamLog.open(disk, folder, stream_id(history.name), config)


def collected_by_log(disk: Disk, folder: str, history: History) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows as they were published, and what a log has of them after it collected everything."""
    log = small_log(disk, folder, history)
    raw = []
    for i, batch in enumerate(history.batches):
        first = log.next
        log.append(batch)
        raw.append(_rows(log, history.name, first))
        if i in history.collects:
            _collect(log)
            if history.reopens:
                log.close()
                log = small_log(disk, folder, history)
    _collect(log)
    left = _rows(log, history.name, 1)
    log.close()
    return joined(raw), left


def _collect(log: StreamLog) -> None:
    while log.collect(everything=True).more:
        pass


def _rows(log: StreamLog, stream: str, start: int) -> pa.RecordBatch:
    parts = []
    while start < log.next:
        chunk = log.read(start, 1 << 20, upto=log.next - 1)
        assert isinstance(chunk, Chunk)
        parts += [arrow_of(stream, batch) for batch in chunk.batches()]
        start = chunk.last + 1
    return joined(parts)


def published(raw: pa.RecordBatch, *, after: int = 0, upto: int | None = None) -> pa.RecordBatch:
    """Of rows that are numbered from 1 on, some."""
    return raw.slice(after, None if upto is None else upto - after)


# --- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Event:
    batch: Batch
    context: Context
    kind: Kind
    predicate: Filter | None

    def is_matched_by(self, predicate: Filter, context: Context) -> bool:
        return bool(collects(predicate, self.batch, context)[0])


def events_of(rows: pa.RecordBatch) -> list[_Event]:
    events = []
    for i in range(rows.num_rows):
        batch = events_from(rows.slice(i, 1)).batch("model")
        text = batch.attribute_row(0).get(GC_ATTRIBUTE)
        events.append(
            _Event(
                batch,
                Context(int(batch.seqs()[0]), batch.key(0), int(batch.times()[0])),
                batch.kind(0),
                _parsed(text) if batch.kind(0) is Kind.GC else None,
            )
        )
    return events


def alive_by_model(events: list[_Event], policy: Policy) -> set[int]:
    """The numbers of events that must live, found one pair of events at a time. Tombstones among the rows are
    dead already."""
    real = [event for event in events if event.kind is not Kind.TOMBSTONE]
    prefix = _prefix(events, real, policy)
    held = max(real, key=lambda e: (e.context.time_us, e.context.seq)) if policy.age_ms and real else None
    return {
        e.context.seq
        for e in real
        if e.context.seq > prefix
        and (e is held or not any(_takes(g, e, policy) for g in real if g.context.seq > e.context.seq))
    }


def _parsed(text: object) -> Filter | None:
    try:
        return parse(text) if isinstance(text, str) else None
    except FilterError:
        return None


def _prefix(events: list[_Event], real: list[_Event], policy: Policy) -> int:
    bounds = [0]

    def older(cutoff_us: int, before: int) -> None:
        young = [e.context.seq for e in events if e.context.time_us >= cutoff_us]
        bounds.append(min([*young[:1], before]) - 1)

    if policy.keep_last is not None and real:
        bounds.append(real[-1].context.seq - policy.keep_last)
    if policy.age_ms is not None and real:
        older(max(e.context.time_us for e in real) - policy.age_ms * 1000, events[-1].context.seq + 1)
    for g in real:
        for conjunction in g.predicate.conjunctions if g.predicate else ():
            bounds.append(prefix_of(conjunction, g.context) or 0)
            match conjunction:
                case (Term(OlderThan(age_us), False),):
                    older(g.context.time_us - age_us, g.context.seq)
    return max(bounds)


def _takes(g: _Event, e: _Event, policy: Policy) -> bool:
    """Whether g collects the earlier event e, in no prefix."""
    plain = e.kind is Kind.DATA or e.predicate == SAME_KEY
    same_key = bool(e.context.key) and e.context.key == g.context.key
    if plain and same_key and (policy.by_key or g.predicate == SAME_KEY):
        return True
    if g.predicate is None or g.predicate == SAME_KEY:
        return False
    if all(prefix_of(c, g.context) is not None for c in g.predicate.conjunctions):
        return False
    if not e.is_matched_by(g.predicate, g.context):
        return False
    if e.kind is Kind.DATA:
        return not (policy.by_key and e.context.key)
    return e.predicate is not None and implies(
        _with_policy(e.predicate, policy), e.context, _with_policy(g.predicate, policy), g.context
    )


def _with_policy(predicate: Filter, policy: Policy) -> Filter:
    more = [[Term(SameKey())]] if policy.by_key else []
    more += [[Term(KeepLast(policy.keep_last))]] if policy.keep_last is not None else []
    more += [[Term(OlderThan(policy.age_ms * 1000))]] if policy.age_ms is not None else []
    return Filter([*predicate.conjunctions, *more])


def unjustified(events: list[_Event], alive: set[int], policy: Policy) -> list[int]:
    """Dead events that no living one after them collects: the paper's promise is that there are none."""
    living = [event for event in events if event.context.seq in alive]
    return [
        e.context.seq
        for e in events
        if e.context.seq not in alive
        and e.kind is not Kind.TOMBSTONE
        and not any(_covers(g, e, policy) for g in reversed(living) if g.context.seq > e.context.seq)
    ]


def _covers(g: _Event, e: _Event, policy: Policy) -> bool:
    mine, its = g.context, e.context
    return (
        (policy.by_key and bool(mine.key) and mine.key == its.key)
        or (policy.keep_last is not None and its.seq <= mine.seq - policy.keep_last)
        or (policy.age_ms is not None and its.time_us < mine.time_us - policy.age_ms * 1000)
        or (g.predicate is not None and e.is_matched_by(g.predicate, mine))
    )

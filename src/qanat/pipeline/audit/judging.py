"""Judging all blocks of a partition, one after the other: the archive's side of a block first, then run by
run.

Rows come sorted by stream, block, side and run, so that memory holds one block of the archive and one run's
part of it, however many subscribers there are. What comes out is sums, and as many violations as were asked
for.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from qanat.pipeline.archive.manifest import Range
from qanat.pipeline.audit import latency
from qanat.pipeline.audit.blocks import BITS, SIZE, Array, Pieces, Published, between, unpack_pieces
from qanat.pipeline.audit.judge import Scope, judge

DDL = "what string, run int, name string, first bigint, last bigint, amount bigint"
_SCHEMA = pa.schema(
    [
        ("what", pa.string()),
        ("run", pa.int32()),
        ("name", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("amount", pa.int64()),
    ]
)
TOTAL, FOUND, LATENCY, BURIED = "total", "found", "latency", "buried"
_NOTHING = unpack_pieces(b"")


class Audited(NamedTuple):
    """One run, as judging knows it. Their numbers rise by subscriber."""

    number: int
    subscriber: int
    region: str
    scope: Scope


class Stream(NamedTuple):
    """One stream: its filters, what the archive has of it, who read it."""

    filters: int
    complete: tuple[Range, ...]
    runs: tuple[Audited, ...]


def judging(
    streams: list[Stream], limit: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` is given."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tally = _Tally(limit)
        for (stream, block), rows in groupby(_rows(batches), key=lambda row: (row[0], row[1])):
            _judge_block(streams[stream], block, rows, tally)
            if len(tally.buried) > 10_000:
                yield _batch(tally.take_buried())
        yield _batch(tally.take_buried() + tally.rows())

    return work


Row = tuple[int, int, int, int, int, int, bytes]


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class _Tally:
    """What a partition has found so far."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.totals: Counter[tuple[int, str]] = Counter()
        self.found: list[tuple[int, str, int, int]] = []
        self.latencies: dict[str, Array] = defaultdict(lambda: np.zeros(latency.BUCKETS, np.int64))
        self.buried: list[tuple[int, int, int, int]] = []

    def blame(self, run: int, name: str, firsts: Array, lasts: Array) -> None:
        room = max(0, self._limit - len(self.found))
        for first, last in zip(firsts[:room].tolist(), lasts[:room].tolist(), strict=True):
            self.found.append((run, name, first, last))

    def take_buried(self) -> list[tuple[str, int, str, int, int, int]]:
        rows = [(BURIED, run, "", first, last, when) for run, first, last, when in self.buried]
        self.buried = []
        return rows

    def rows(self) -> list[tuple[str, int, str, int, int, int]]:
        rows = [(TOTAL, run, name, 0, 0, count) for (run, name), count in self.totals.items()]
        rows += [(FOUND, run, name, first, last, 0) for run, name, first, last in self.found]
        for region, counts in self.latencies.items():
            there = np.flatnonzero(counts)
            rows += [(LATENCY, -1, region, int(i), 0, int(counts[i])) for i in there]
        return rows


def _batch(rows: list[tuple[str, int, str, int, int, int]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _judge_block(stream: Stream, block: int, rows: Iterator[Row], tally: _Tally) -> None:
    published = Published(stream.filters)
    for have in stream.complete:
        published.complete |= between(block, have.first, have.last)
    runs = {run.number: run for run in stream.runs}
    judged: set[int] = set()
    subscriber, seen = -1, np.zeros(SIZE, bool)
    for (side, number), parts in groupby(rows, key=lambda row: (row[2], row[3])):
        if side == 0:
            for part in parts:
                if part[5]:
                    published.add(part[6], part[5])
            continue
        run = runs[number]
        if run.subscriber != subscriber:
            subscriber, seen = run.subscriber, np.zeros(SIZE, bool)
        pieces = _joined([unpack_pieces(part[6]) for part in parts])
        _judge_run(run, block, published, pieces, seen, tally)
        judged.add(number)
    first, last = block << BITS, (block << BITS) + SIZE - 1
    nobody = np.zeros(SIZE, bool)
    for run in stream.runs:
        if run.number not in judged and run.scope.first <= last and run.scope.last >= first:
            _judge_run(run, block, published, _NOTHING, nobody, tally)


def _joined(parts: list[Pieces]) -> Pieces:
    return parts[0] if len(parts) == 1 else Pieces(*map(np.concatenate, zip(*parts, strict=True)))


def _judge_run(
    run: Audited, block: int, published: Published, pieces: Pieces, seen: Array, tally: _Tally
) -> None:
    verdict = judge(block, published, pieces, run.scope, seen)
    begin = block << BITS
    totals, number = tally.totals, run.number
    totals[number, "delivered"] += verdict.delivered
    totals[number, "collected"] += verdict.collected
    totals[number, "repeated"] += verdict.repeated
    for name, (at, to, count) in verdict.violations.items():
        totals[number, name] += count
        tally.blame(number, name, at + begin, to + begin)
    at, to = verdict.buried
    for first, last in zip((at + begin).tolist(), (to + begin).tolist(), strict=True):
        tally.buried.append((number, first, last, verdict.buried_us))
    totals[number, "buried"] += int((to - at + 1).sum())
    if verdict.delivered:
        tally.latencies[run.region] += verdict.latencies

"""A history in plain memory, for simulations of many nodes and for proxies that keep everything in memory.

The paper's `filter` is applied to it: once a GC event is in, what its predicate matches becomes tombstones,
and neighbouring tombstones of whole batches become one. GC events themselves are never collected here, which
the promise allows (section 2.1) and which spares proving that one predicate implies another.
"""

from bisect import bisect_left

import numpy as np

from qanat.events.batch import Batch, Kind, number
from qanat.events.encode import Array
from qanat.events.errors import LocalError
from qanat.events.filters import Context, Filter, evaluate, parse
from qanat.events.layout import GHOST, KINDS, POSITIONS, POSITIONS_DENSE, SEQS
from qanat.events.tombstones import bury, from_sequence, predicates, tombstone
from qanat.protocols.history import Highest, HistoryGap, HistoryTruncated, Numbered

MIB = 1 << 20


class PositionGap(LocalError):
    """A source with dense numbering left out positions; taking the batch would hide the loss."""


class NotPublishable(LocalError):
    """A batch with tombstones or with rows left out: only data and GC events are published."""


class _Stream:
    """One stream: batches in order, their last numbers beside them for searching."""

    __slots__ = ("batches", "bytes", "counter", "lasts", "positions")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.lasts: list[int] = []
        self.counter = 0
        self.bytes = 0
        self.positions: dict[str, tuple[int, int]] = {}

    @property
    def first(self) -> int:
        return self.batches[0].first if self.batches else self.counter + 1


class MemoryHistory:
    """Implements `History`. Everything counts as durable; a crash forgets all of it.

    `limit_bytes` bounds each stream (counted without the payload that a ghost leaves out): beyond it the
    oldest batches are dropped, and reading them raises `HistoryTruncated`. The newest batch always stays.
    """

    def __init__(self, limit_bytes: int = 256 * MIB) -> None:
        self._limit_bytes = limit_bytes
        self._streams: dict[int, _Stream] = {}

    def counter(self, stream: int) -> int:
        held = self._streams.get(stream)
        return 0 if held is None else held.counter

    def durable(self, stream: int) -> int:
        return self.counter(stream)

    def stored_bytes(self, stream: int) -> int:
        held = self._streams.get(stream)
        return 0 if held is None else held.bytes

    # Appending

    def append(self, batch: Batch) -> Numbered:
        if batch.header.flags & (SEQS | KINDS) and (not batch.is_dense or _tombstones(batch).any()):
            raise NotPublishable(
                "only data and GC events are published; tombstones come from collecting them"
            )
        held = self._stream(batch.stream)
        _parsed(batch)  # an unreadable predicate is refused before anything is stored
        fresh, highest = _admit(held.positions, batch)
        first = held.counter + 1
        if fresh:
            part = batch if fresh == batch.count else batch.slice(batch.count - fresh, batch.count)
            data = bytearray(part.encode())
            number(data, first)
            self._store(held, Batch.decode(data, verify=False))
            held.positions.update(highest)
        return Numbered(first, held.counter, batch.count - fresh)

    def append_numbered(self, batch: Batch) -> None:
        held = self._stream(batch.stream)
        following = held.counter + 1
        if batch.first > following:
            raise HistoryGap(f"the batch starts at {batch.first}, but {following} comes next")
        if batch.last < following:
            return
        ranges = batch.ranges
        if (batch.count if ranges is None else int(ranges.sum())) != batch.span:
            raise HistoryGap(f"the batch claims {batch.first}..{batch.last}, but rows are left out")
        part = from_sequence(batch, following)
        if part is not batch:
            part = Batch.decode(part.encode(), verify=False)  # what is kept does not hold on to what is not
        self._store(held, part)
        self.adopt_positions(batch.stream, _highest(part))

    def _store(self, held: _Stream, batch: Batch) -> None:
        held.batches.append(batch)
        held.lasts.append(batch.last)
        held.counter = batch.last
        held.bytes += batch.size
        if batch.header.flags & KINDS:
            self._collect(held, batch)
        drop = 0
        while held.bytes > self._limit_bytes and drop < len(held.batches) - 1:
            held.bytes -= held.batches[drop].size
            drop += 1
        del held.batches[:drop], held.lasts[:drop]

    # Reading

    def read(self, stream: int, start: int, max_bytes: int, upto: int | None = None) -> list[Batch]:
        held = self._streams.get(stream)
        if held is None or start > held.counter:
            return []
        start = max(start, 1)
        if start < held.first:
            raise HistoryTruncated(stream, start, held.first - 1)
        chosen: list[Batch] = []
        for at in range(bisect_left(held.lasts, start), len(held.batches)):
            batch = held.batches[at]
            max_bytes -= batch.virtual_size
            if (chosen and max_bytes < 0) or (upto is not None and held.lasts[at] > upto):
                break
            chosen.append(batch)
        return chosen

    def positions(self, stream: int) -> dict[str, tuple[int, int]]:
        held = self._streams.get(stream)
        return {} if held is None else dict(held.positions)

    def adopt_positions(self, stream: int, highest: Highest) -> None:
        known = self._stream(stream).positions
        for source, position in highest.items():
            known[source] = max(position, known.get(source, position))

    def _stream(self, stream: int) -> _Stream:
        held = self._streams.get(stream)
        if held is None:
            held = self._streams[stream] = _Stream()
        return held

    # The paper's filter

    def _collect(self, held: _Stream, batch: Batch) -> None:
        rows = _parsed(batch)
        if not rows:
            return
        seqs, times = batch.seqs(), batch.times()
        for row, predicate in rows:
            seq = int(seqs[row])
            context = Context(seq=seq, key=batch.key(row), time_us=int(times[row]))
            held.batches = [
                each if each.header.flags & GHOST else _buried(each, evaluate(predicate, each, context), seq)
                for each in held.batches
            ]
        _merge_tombstones(held)
        held.bytes = sum(each.size for each in held.batches)


def _parsed(batch: Batch) -> list[tuple[int, Filter]]:
    """(row, predicate) of each GC event; raises `FilterError` for one that cannot be read."""
    kinds, texts = batch.kinds, predicates(batch) if batch.header.flags & KINDS else None
    if kinds is None or texts is None:
        return []
    return [(row, parse(str(texts[row].as_py()))) for row in np.flatnonzero(kinds == Kind.GC).tolist()]


def _buried(batch: Batch, matched: Array, before: int) -> Batch:
    kinds = batch.kinds
    dead: Array = matched & (batch.seqs() < before)
    if kinds is not None:
        dead &= kinds == Kind.DATA
    if not dead.any():
        return batch
    return bury(batch, dead, batch.first) or batch


def _merge_tombstones(held: _Stream) -> None:
    """Runs of batches that are one tombstone each become one batch."""
    merged: list[Batch] = []
    for batch in held.batches:
        if batch.count == 1 and merged and merged[-1].count == 1:
            before = merged[-1]
            if before.kind(0) is batch.kind(0) is Kind.TOMBSTONE:
                times = (int(before.times()[0]), int(batch.times()[0]))
                merged[-1] = tombstone(batch.stream, before.first, batch.last, max(times))
                continue
        merged.append(batch)
    held.batches = merged
    held.lasts = [batch.last for batch in merged]


def _tombstones(batch: Batch) -> Array:
    kinds = batch.kinds
    return np.zeros(batch.count, bool) if kinds is None else kinds == Kind.TOMBSTONE


def _admit(known: Highest, batch: Batch) -> tuple[int, dict[str, tuple[int, int]]]:
    """(how many rows at the end are new, the source's position with them)."""
    positions = batch.positions() if batch.header.flags & (POSITIONS | POSITIONS_DENSE) else None
    if positions is None or not batch.count:
        return batch.count, {}
    if batch.source_codes() is not None:
        raise NotPublishable("a batch of several sources; publish one per source")
    source, (sequences, indexes) = batch.source_names[0], positions
    after = {source: (int(sequences[-1]), int(indexes[-1]))}
    if source not in known:
        return batch.count, after
    sequence, index = known[source]
    if batch.positions_dense and batch.position > sequence + 1:
        raise PositionGap(
            f"source {source!r} must continue at position {sequence + 1}, not at {batch.position}: "
            f"publish {sequence + 1}..{batch.position - 1} first"
        )
    new = (sequences > sequence) | ((sequences == sequence) & (indexes > index))
    return int(np.count_nonzero(new)), after


def _highest(batch: Batch) -> dict[str, tuple[int, int]]:
    """The highest position of each source among rows that are not tombstones."""
    positions = batch.positions() if batch.header.flags & (POSITIONS | POSITIONS_DENSE) else None
    if positions is None:
        return {}
    real, codes, highest = ~_tombstones(batch), batch.source_codes(), {}
    for code, source in enumerate(batch.source_names):
        rows = np.flatnonzero(real if codes is None else real & (codes == code))
        if len(rows):
            highest[source] = (int(positions[0][rows[-1]]), int(positions[1][rows[-1]]))
    return highest

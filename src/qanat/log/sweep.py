"""Hunting: which events a predicate matches, looking only where the value index says that they may be.

Hunts run in groups, so that a part of the log that several predicates want is read and decoded once. A
predicate that no index helps with reads everything before it, a segment at a time, within the caller's
budget.
"""

from collections.abc import Iterable

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.encode import Array
from qanat.events.filters import Context, FilterError, collects, implies, parse
from qanat.events.tombstones import predicates
from qanat.log.collector import Collector
from qanat.log.config import LogConfig
from qanat.log.hunt import Hunt
from qanat.log.predicates import SAME_KEY
from qanat.log.reader import Reader
from qanat.log.segment import Segment
from qanat.log.value_index import ValueIndex, hashes_of, wanted_by

GROUP_MAX = 64
"""Hunts that go through the log together."""


class SegmentValues:
    """A segment's value index, extended as the segment grows. The last entry of one that is still written is
    always looked at."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._index: ValueIndex | None = None
        self.size = 0

    def extend(self, segment: Segment, reader: Reader, indexed: Iterable[str], complete: int) -> int:
        """Indexes the entries that are complete; returns the bytes that were read for it."""
        read = 0
        for entry in range(len(self._parts), complete):
            first, begin = segment.start(entry)
            _, end = segment.start(entry + 1)
            hashes = [hashes_of(batch, indexed) for batch in reader.batches(segment, begin, first, end)]
            self._parts.append(np.unique(np.concatenate([np.zeros(0, np.int64), *hashes])))
            self.size += len(self._parts[-1])
            read += end - begin
            self._index = None
        return read

    def entries(self, wanted: Array, entries: int) -> Array:
        if self._index is None:
            self._index = ValueIndex(self._parts, list(range(len(self._parts))))
        found = self._index.entries(wanted)
        return np.union1d(found[found < entries], np.arange(len(self._parts), entries))


class Sweep:
    """One step of hunting, in a worker thread; the log's lock is taken only to look at bounds and to mark."""

    def __init__(self, config: LogConfig, reader: Reader, collector: Collector) -> None:
        self._indexed = frozenset(config.indexed)
        self._values_max = config.index_events_max
        self._reader, self._collector = reader, collector

    def index(self, segment: Segment, complete: int) -> int:
        """Makes the value index of a segment, or goes on with it; returns the bytes that were read."""
        segment.values = segment.values or SegmentValues()
        return segment.values.extend(segment, self._reader, self._indexed, complete)

    def look(
        self, segment: Segment, entries: int, hunts: list[Hunt], *, written: bool
    ) -> tuple[list[Array], int]:
        """(numbers of matches, bytes read) of these hunts in one segment; `written`: its last entry may still
        grow."""
        chosen: dict[int, list[Hunt]] = {}
        prefix = self._collector.prefix
        read = 0
        for hunt in hunts:
            wanted = wanted_by(hunt.predicate, hunt.context, self._indexed)
            if wanted is None or not self._values_max:
                candidates = np.arange(entries)
            else:
                read += self.index(segment, entries - written)
                assert segment.values is not None
                candidates = segment.values.entries(wanted, entries)
            bound_us = hunt.matches_before_us()
            for entry in candidates.tolist():
                within = segment.start(entry)[0] < hunt.context.seq and segment.start(entry + 1)[0] > prefix
                if within and (bound_us is None or segment.holds_before(entry, bound_us)):
                    chosen.setdefault(entry, []).append(hunt)
        dead = []
        for entry in sorted(chosen):
            first, begin = segment.start(entry)
            _, end = segment.start(entry + 1)
            read += end - begin
            for batch in self._reader.batches(segment, begin, first, end):
                dead += [
                    self._matches(batch, hunt) for hunt in chosen[entry] if batch.first < hunt.context.seq
                ]
        return [found for found in dead if len(found)], read

    def _matches(self, batch: Batch, hunt: Hunt) -> Array:
        matched = collects(hunt.predicate, batch, hunt.context)
        dead = matched & self._collector.may_collect(batch)
        kinds = batch.kinds
        if kinds is not None:
            for row in np.flatnonzero(matched & (kinds == Kind.GC)).tolist():
                dead[row] = self._proved(batch, row, hunt)
        return batch.seqs()[dead]

    def _proved(self, batch: Batch, row: int, hunt: Hunt) -> bool:
        """Whether all that a GC event collected is matched by the hunt, too: only then it may go (section
        2.1)."""
        texts = predicates(batch)
        text = None if texts is None else texts[row].as_py()
        if text is None:
            return False
        try:
            predicate = parse(text)
        except FilterError:
            return False
        if hunt.predicate == SAME_KEY:
            # As the key index has it: what is collected must not depend on how much an index remembers.
            return predicate == SAME_KEY
        context = Context(int(batch.seqs()[row]), batch.key(row), int(batch.times()[row]))
        mine, its = self._collector.with_policy(hunt.predicate), self._collector.with_policy(predicate)
        return implies(its, context, mine, hunt.context)

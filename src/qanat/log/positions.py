"""The highest position per source, and what of a batch is new.

A source is one ordered writer. What it sends again after a lost acknowledgement is dropped here, so retries
anywhere upstream are harmless. Memory is bounded by the number of sources (about 200 bytes each). At the bound a new source
takes the place of the passing one (its name begins with `~`: a client that made its name up, and never comes back under
it) that was silent for longest. If there is none it is refused, because forgetting a lasting one would let its
retries in twice.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.encode import Array
from qanat.events.layout import KINDS, POSITIONS, POSITIONS_DENSE, SOURCE_CODES
from qanat.log.errors import PositionGap, PositionOrder, SourceLimit

Highest = dict[str, tuple[int, int]]


class Positions:
    """Highest (sequence, index) of each source. Guarded by the log's lock."""

    def __init__(self, limit: int, highest: Highest | None = None) -> None:
        self._limit = limit
        self.highest: Highest = dict(highest or {})

    def copy(self) -> "Positions":
        return Positions(self._limit, self.highest)

    def admit(self, batch: Batch) -> tuple[list[tuple[int, int]], Highest]:
        """(row ranges that are new, the highest positions once they are stored); changes nothing itself.

        Raises `PositionGap`, `PositionOrder` or `SourceLimit`, all definite.
        """
        flags = batch.header.flags
        if flags & POSITIONS_DENSE and not flags & SOURCE_CODES and batch.count:
            return self._admit_dense(batch.source_names[0], batch.position, batch.count)
        positions = batch.positions() if flags & (POSITIONS | POSITIONS_DENSE) else None
        if positions is None or not batch.count:
            return [(0, batch.count)] if batch.count else [], {}
        sequences, indexes = positions
        names, codes = batch.source_names, batch.source_codes()
        dense = batch.positions_dense
        after: Highest = {}
        if codes is None:
            begin = self._admit_source(names[0], sequences, indexes, dense, after)
            return [(begin, batch.count)] if begin < batch.count else [], after
        fresh = np.zeros(batch.count, bool)
        for code in np.unique(codes):
            rows = np.flatnonzero(codes == code)
            begin = self._admit_source(names[code], sequences[rows], indexes[rows], dense, after)
            fresh[rows[begin:]] = True
        return list(_runs(fresh)), after

    def _admit_dense(self, name: str, start: int, count: int) -> tuple[list[tuple[int, int]], Highest]:
        """The usual case, a client's own numbering: arithmetic instead of columns."""
        known = self.highest.get(name)
        last = start + count - 1
        if known is None:
            self._check_room({name: (last, 0)})
            return [(0, count)], {name: (last, 0)}
        if start > known[0] + 1:
            raise PositionGap(name, known[0] + 1, start)
        if last <= known[0]:
            return [], {}
        return [(known[0] + 1 - start, count)], {name: (last, 0)}

    def _admit_source(self, name: str, sequences: Array, indexes: Array, dense: bool, after: Highest) -> int:
        """How many rows from the start are known already; notes the source's new highest position in `after`."""
        rising = (sequences[1:] > sequences[:-1]) | (
            (sequences[1:] == sequences[:-1]) & (indexes[1:] > indexes[:-1])
        )
        if not dense and not rising.all():
            row = int(np.argmin(rising)) + 1
            raise PositionOrder(
                f"source {name!r} goes from position {sequences[row - 1]}:{indexes[row - 1]} to "
                f"{sequences[row]}:{indexes[row]}: positions of one source must rise"
            )
        known = self.highest.get(name)
        begin = 0
        if known is not None:
            had = (sequences < known[0]) | ((sequences == known[0]) & (indexes <= known[1]))
            begin = int(np.count_nonzero(had))
            if dense and int(sequences[0]) > known[0] + 1:
                raise PositionGap(name, known[0] + 1, int(sequences[0]))
        else:
            self._check_room({**after, name: (0, 0)})
        if begin < len(sequences):
            after[name] = (int(sequences[-1]), int(indexes[-1]))
        return begin

    def learn(self, after: Highest) -> None:
        """Takes what `admit` or `observe` computed, once the rows are stored."""
        for name, position in after.items():
            # Taken out and put back: the dictionary's order is how long each source has been silent.
            self.highest[name] = max(position, self.highest.pop(name, position))
        if len(self.highest) > self._limit:
            passing = (name for name in self.highest if _passing(name) and name not in after)
            for name in list(islice(passing, len(self.highest) - self._limit)):
                del self.highest[name]

    def observe(self, batch: Batch, *, limited: bool = True) -> Highest:
        """The highest positions in a batch that was numbered elsewhere; refuses only a source beyond the limit."""
        flags = batch.header.flags
        if not batch.count or not flags & (POSITIONS | POSITIONS_DENSE):
            return {}
        if flags & POSITIONS_DENSE and not flags & (SOURCE_CODES | KINDS):
            seen = {batch.source_names[0]: (batch.position + batch.count - 1, 0)}
        else:
            seen = _highest(batch)
        if limited:
            self._check_room(seen)
        return seen

    def merge(self, highest: Highest) -> None:
        """Takes the higher of each; what a replica calls with its predecessor's positions."""
        self._check_room(highest)
        self.learn(highest)

    def _check_room(self, more: Highest) -> None:
        new = more.keys() - self.highest.keys()
        excess = len(self.highest) + len(new) - self._limit
        if new and excess > 0:
            passing = sum(_passing(name) for name in self.highest if name not in more)
            if passing < excess:
                raise SourceLimit(
                    f"this stream remembers {self._limit} lasting sources already; publish {min(new)!r} under a known "
                    "source or raise sources_max"
                )


def _highest(batch: Batch) -> Highest:
    """Of each source the position of its last row that is no tombstone."""
    positions = batch.positions()
    if positions is None:
        return {}
    seen: Highest = {}
    sequences, indexes = positions
    codes, kinds = batch.source_codes(), batch.kinds
    real = np.ones(batch.count, bool) if kinds is None else kinds != Kind.TOMBSTONE
    for code, name in enumerate(batch.source_names):
        rows = np.flatnonzero(real if codes is None else real & (codes == code))
        if len(rows):
            seen[name] = (int(sequences[rows[-1]]), int(indexes[rows[-1]]))
    return seen


def _passing(name: str) -> bool:
    return name.startswith("~")


def _runs(mask: Array) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive true rows."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)

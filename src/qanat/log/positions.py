"""The highest position per source, and what of a batch is new.

A source is one ordered writer. What it sends again after a lost acknowledgement is dropped here, so retries
anywhere upstream are harmless. Memory is bounded by the number of sources (about 200 bytes each). At the
bound a new source takes the place of the passing one (its name begins with `~`: a client that made its name
up, and never comes back under it) that was silent for longest. If there is none it is refused, because
forgetting a lasting one would let its retries in twice.
"""

from collections.abc import Sequence
from itertools import islice

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.encode import Array
from qanat.events.layout import KINDS, NUMBERS_END, POSITIONS, POSITIONS_DENSE, SOURCE_CODES
from qanat.log.errors import PositionGap, PositionLeap, PositionOrder, SourceLimit

LEAP_MAX = 1 << 56
"""How far a source that is known may go at once where its numbering is not dense: positions in nanoseconds
after two years of silence, or 65,536 files further. Whoever publishes under another's source cannot use its
numbers up at once."""
SOURCE_BYTES = 200
"""What a source takes in memory, about."""
Highest = dict[str, tuple[int, int]]
Fresh = slice | Array
"""Which rows of a batch are new: a range of them, or a mask where they lie scattered."""


class Positions:
    """Highest (sequence, index) of each source. Guarded by the log's lock."""

    def __init__(self, limit: int, highest: Highest | None = None) -> None:
        self._limit = limit
        self.highest: Highest = dict(highest or {})
        self._passing = dict.fromkeys(filter(_passing, self.highest))
        """The passing ones, silent for longest first."""

    def copy(self) -> "Positions":
        return Positions(self._limit, self.highest)

    def admit(self, batch: Batch) -> tuple[Fresh, Highest]:
        """(the rows that are new, the highest positions once they are stored); changes nothing itself.

        Raises `PositionGap`, `PositionOrder` or `SourceLimit`, all definite.
        """
        flags = batch.header.flags
        if flags & POSITIONS_DENSE and not flags & SOURCE_CODES and batch.count:
            return self._admit_dense(batch.source_names[0], batch.position, batch.count)
        positions = batch.positions() if flags & (POSITIONS | POSITIONS_DENSE) else None
        if positions is None or not batch.count:
            return slice(0, batch.count), {}
        groups = _Groups(batch, *positions)
        if not batch.positions_dense:
            groups.check_order()
        known = [self.highest.get(name) for name in groups.names]
        if batch.positions_dense:
            for name, had, first in zip(groups.names, known, groups.first.tolist(), strict=True):
                if had is not None and first > had[0] + 1:
                    raise PositionGap(name, had[0] + 1, first)
        else:
            for name, had, (last, _) in zip(groups.names, known, groups.last, strict=True):
                _check_leap(name, had, last)
        if None in known:
            self._check_room(dict.fromkeys(groups.names, (0, 0)))
        fresh, counts = groups.fresh(known)
        rows = groups.sizes - counts
        if len(groups.names) == 1:
            return slice(int(rows[0]), batch.count), groups.highest(counts)
        if not rows.any():
            return slice(0, batch.count), groups.highest(counts)
        return fresh, groups.highest(counts)

    def _admit_dense(self, name: str, start: int, count: int) -> tuple[Fresh, Highest]:
        """The usual case, a client's own numbering: arithmetic instead of columns."""
        known = self.highest.get(name)
        last = start + count - 1
        if known is None:
            self._check_room({name: (last, 0)})
            return slice(0, count), {name: (last, 0)}
        if start > known[0] + 1:
            raise PositionGap(name, known[0] + 1, start)
        if last <= known[0]:
            return slice(count, count), {}
        return slice(known[0] + 1 - start, count), {name: (last, 0)}

    def learn(self, after: Highest) -> None:
        """Takes what `admit` or `observe` computed, once the rows are stored."""
        for name, position in after.items():
            # Taken out and put back: the dictionary's order is how long each source has been silent.
            self.highest[name] = max(position, self.highest.pop(name, position))
            if _passing(name):
                self._passing.pop(name, None)
                self._passing[name] = None
        if len(self.highest) > self._limit:
            silent = (name for name in self._passing if name not in after)
            for name in list(islice(silent, len(self.highest) - self._limit)):
                del self.highest[name], self._passing[name]

    def observe(self, batch: Batch, *, limited: bool = True) -> Highest:
        """The highest positions in a batch that was numbered elsewhere; refuses only a source beyond the
        limit."""
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
        new = [name for name in more if name not in self.highest]
        excess = len(self.highest) + len(new) - self._limit
        if new and excess > 0:
            passing = len(self._passing) - sum(name in self._passing for name in more)
            if passing < excess:
                raise SourceLimit(
                    f"this stream remembers {self._limit} lasting sources already; publish {min(new)!r} under"
                    " a known source or raise sources_max"
                )


def chosen(batch: Batch, rows: Fresh) -> list[Batch]:
    """The part of a batch that is new: itself, a view of it, or, where new rows lie between known ones, one
    batch of them all. None if it is empty."""
    if isinstance(rows, slice):
        part = batch if (rows.start, rows.stop) == (0, batch.count) else batch.slice(rows.start, rows.stop)
        return [part] if part.count else []
    picked = batch.take(rows, renumber=True)
    return [picked] if picked.count else []


class _Groups:
    """The rows of a batch by source: one sort of their codes, however many sources there are."""

    def __init__(self, batch: Batch, sequences: Array, indexes: Array) -> None:
        codes, names = batch.source_codes(), batch.source_names
        if codes is None:
            self._order: Array | slice = slice(None)
            self.names = names[:1]
            starts = np.zeros(1, np.int64)
        else:
            self._order = np.argsort(codes, kind="stable")
            present, starts = np.unique(codes[self._order], return_index=True)
            self.names = [names[code] for code in present.tolist()]
        self._sequences, self._indexes = sequences[self._order], indexes[self._order]
        self._starts, self._ends = starts, np.append(starts[1:], batch.count)
        self.sizes = self._ends - starts
        self.first = self._sequences[starts]
        ends = self._ends - 1
        self.last = list(zip(self._sequences[ends].tolist(), self._indexes[ends].tolist(), strict=True))
        """(sequence, index) of the last row of each source."""

    def check_order(self) -> None:
        """Within each source positions rise."""
        sequences, indexes = self._sequences, self._indexes
        rising = (sequences[1:] > sequences[:-1]) | (
            (sequences[1:] == sequences[:-1]) & (indexes[1:] > indexes[:-1])
        )
        rising[self._starts[1:] - 1] = True  # there another source begins
        if not rising.all():
            row = int(np.argmin(rising)) + 1
            name = self.names[int(np.searchsorted(self._starts, row, side="right")) - 1]
            raise PositionOrder(
                f"source {name!r} goes from position {sequences[row - 1]}:{indexes[row - 1]} to "
                f"{sequences[row]}:{indexes[row]}: positions of one source must rise"
            )

    def fresh(self, known: Sequence[tuple[int, int] | None]) -> tuple[Array, Array]:
        """(which rows lie beyond what is known of their source, how many of each source do)."""
        there = np.array([had is not None for had in known])
        sequence = np.array([had[0] if had else 0 for had in known], np.uint64)
        index = np.array([had[1] if had else 0 for had in known], np.uint32)
        sizes = self.sizes
        at, at_index = np.repeat(sequence, sizes), np.repeat(index, sizes)
        beyond = (self._sequences > at) | ((self._sequences == at) & (self._indexes > at_index))
        beyond |= ~np.repeat(there, sizes)
        rows = np.empty(len(beyond), bool)
        rows[self._order] = beyond
        return rows, np.add.reduceat(beyond, self._starts, dtype=np.int64)

    def highest(self, counts: Array) -> Highest:
        """Where each source is that has a new row."""
        found = zip(self.names, self.last, counts.tolist(), strict=True)
        return {name: place for name, place, count in found if count}


def _check_leap(name: str, had: tuple[int, int] | None, last: int) -> None:
    if last >= NUMBERS_END:
        raise PositionLeap(
            f"source {name!r} would be at position {last}: positions end at 2^63; number its events below"
        )
    if had is not None and last > had[0] + LEAP_MAX:
        raise PositionLeap(
            f"source {name!r} is at position {had[0]} and would be at {last}: a leap of more than 2^56 is"
            " refused, for all that it publishes later would pass for repetitions; publish under a new"
            " source if it is numbered anew"
        )


def _highest(batch: Batch) -> Highest:
    """Of each source the position of its last row that is no tombstone."""
    positions = batch.positions()
    if positions is None:
        return {}
    sequences, indexes = positions
    codes, kinds, names = batch.source_codes(), batch.kinds, batch.source_names
    rows = np.arange(batch.count) if kinds is None else np.flatnonzero(kinds != Kind.TOMBSTONE)
    last = np.full(len(names), -1)
    last[np.zeros(len(rows), np.uint16) if codes is None else codes[rows]] = rows  # of several the last stays
    there = np.flatnonzero(last >= 0)
    last = last[there]
    places = zip(sequences[last].tolist(), indexes[last].tolist(), strict=True)
    return {names[code]: place for code, place in zip(there.tolist(), places, strict=True)}


def _passing(name: str) -> bool:
    return name.startswith("~")

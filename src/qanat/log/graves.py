"""Which rows of a segment are dead but not yet rewritten: a bit for each number, or a sorted list of numbers.

A segment that was never rewritten has a row for every number and gets a bitmap: one bit an event. A rewritten
one covers far more numbers than it has rows, and gets 8 bytes for each dead row instead.
"""

import numpy as np

from qanat.events.encode import Array

_NONE = np.zeros(0, np.uint64)


class Graves:
    """The dead of one segment, in whichever form is smaller."""

    def __init__(self) -> None:
        self.count = 0
        self._first = 0
        self._bits: Array | None = None
        self._seqs: Array = _NONE

    @property
    def bytes(self) -> int:
        return int(self._seqs.nbytes) + (0 if self._bits is None else int(self._bits.nbytes))

    def add(self, seqs: Array, first: int, last: int, rows: int) -> None:
        """Adds dead numbers, in any order, of a segment that covers first..last with so many rows."""
        span = last - first + 1
        if rows < span:
            self._seqs = np.union1d(self._seqs, seqs)
            self._count()
            return
        if self._bits is None or len(self._bits) * 8 < span:
            grown = np.zeros((span + 7) // 8, np.uint8)
            if self._bits is not None:
                grown[: len(self._bits)] = self._bits
            self._first, self._bits = first, grown
        flags = np.zeros(len(self._bits) * 8, bool)
        flags[(seqs - np.uint64(first)).astype(np.int64)] = True
        self._bits |= np.packbits(flags, bitorder="little")
        self._count()

    def _count(self) -> None:
        self.count = len(self._seqs) + (0 if self._bits is None else int(np.bitwise_count(self._bits).sum()))

    def seqs(self) -> Array:
        """All of them, sorted."""
        if self._bits is None:
            return self._seqs
        at = np.flatnonzero(np.unpackbits(self._bits, bitorder="little"))
        return np.union1d(self._seqs, at.astype(np.uint64) + np.uint64(self._first))

    def among(self, seqs: Array) -> Array:
        """A flag for each number: is it dead? The numbers lie within the segment."""
        flags = np.zeros(len(seqs), bool)
        if self._bits is not None:
            at = (seqs - np.uint64(self._first)).astype(np.int64)
            within = at < len(self._bits) * 8
            flags[within] = (self._bits[at[within] >> 3] >> (at[within] & 7).astype(np.uint8)) & 1
        if len(self._seqs):
            found = np.searchsorted(self._seqs, seqs)
            found[found == len(self._seqs)] = 0
            flags |= self._seqs[found] == seqs
        return flags

"""Keys by popularity: whose rank is drawn, while new keys push the others down.

Keys stand in a line, the most popular first. A new key takes a rank and everybody from there on moves down by one. An
event names a rank, and the question is which key stood there at that moment. Walked one by one that is a loop over
all insertions for each event. Here it is a few bulk searches: insertions are joined into blocks of 2, 4, 8, …, and an
event that came after m of them walks back through one block for each bit of m.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

RANK_LIMIT = 1 << 39
"""Ranks from here on stand still: among so many keys a few million new ones move nobody noticeably."""
_BLOCK = 1 << 40
"""Room for ranks in the number (block, rank) by which all blocks of a level are searched at once."""
INSERTIONS_MAX = 1 << 22
"""Insertions that one step takes; (block, rank) must fit into 63 bits."""


class Inserted(NamedTuple):
    """New keys after a run of insertions: their ranks, rising, and which insertion each was."""

    ranks: Ints
    keys: Ints


class Popularity:
    """The line of keys. Keys that were there at first are named by their first rank, new ones by -1, -2, …"""

    def __init__(self) -> None:
        self._all = Inserted(np.zeros(0, np.int64), np.zeros(0, np.int64))
        self.inserted = 0

    def new_keys(self) -> Inserted:
        """Where the new ones stand now; far ones, who are never asked for, are left out."""
        near = int(np.searchsorted(self._all.ranks, RANK_LIMIT))
        return Inserted(self._all.ranks[:near], self._all.keys[:near])

    def step(self, inserted_at: Ints, ranks: Ints, after: Ints) -> Ints:
        """Takes a run of insertions, and gives the key that stood at ranks[i] when after[i] of them were done."""
        count = len(inserted_at)
        if count > INSERTIONS_MAX:
            raise ValueError(f"a step takes at most {INSERTIONS_MAX} insertions, not {count}")
        # Distinct and rising, as if each of these came in behind the others.
        far = RANK_LIMIT + np.arange(count)
        new = Inserted(np.where(inserted_at < RANK_LIMIT, inserted_at, far), np.arange(count))
        walk = _Walk(ranks, after, self.inserted)
        alone: list[Inserted] = []
        for level in range(count.bit_length()):
            walk.back(new, level)
            blocks = count >> level
            if blocks & 1:  # the last block has no neighbour to be joined with
                at = (blocks - 1) << level
                alone.append(Inserted(new.ranks[at:], new.keys[at:]))
            new = _join_pairs(new, level, blocks // 2)
        walk.back_to_the_start(self._all)
        for block in reversed(alone):  # oldest first: the largest block begins the run
            self._all = _behind(self._all, Inserted(block.ranks, -1 - self.inserted - block.keys))
        self.inserted += count
        return walk.key


class _Walk:
    """Events on their way back through the insertions, to the key that each one meant."""

    def __init__(self, ranks: Ints, after: Ints, inserted: int) -> None:
        self.key = np.zeros(len(ranks), np.int64)
        self._rank = ranks.copy()
        self._after = after
        self._inserted = inserted

    def back(self, new: Inserted, level: int) -> None:
        """Through the blocks of 2**level insertions, for the events whose count has that bit."""
        asked = np.flatnonzero((self._after >> level) & 1)
        asked = asked[self.key[asked] == 0]
        if not len(asked):
            return
        block = (self._after[asked] >> level) - 1
        rank = self._rank[asked]
        size = 1 << level
        if level:
            whole = len(new.ranks) >> level
            numbers = new.ranks[: whole << level].reshape(whole, size) + np.arange(whole)[:, None] * _BLOCK
            found = np.searchsorted(numbers.ravel(), block * _BLOCK + rank)
        else:
            found = block + (new.ranks[block] < rank)
        passed = found - block * size
        at = np.minimum(found, len(new.ranks) - 1)
        hit = (passed < size) & (new.ranks[at] == rank)
        self.key[asked[hit]] = -1 - self._inserted - new.keys[at[hit]]
        self._rank[asked] = rank - passed

    def back_to_the_start(self, before: Inserted) -> None:
        """Through all insertions of earlier steps at once; who meets none of them was there at first."""
        asked = np.flatnonzero(self.key == 0)
        rank = self._rank[asked]
        if len(before.ranks):
            found = np.searchsorted(before.ranks, rank)
            at = np.minimum(found, len(before.ranks) - 1)
            hit = before.ranks[at] == rank
            self.key[asked] = np.where(hit, before.keys[at], rank - found)
        else:
            self.key[asked] = rank


def _join_pairs(new: Inserted, level: int, pairs: int) -> Inserted:
    """Blocks of 2**level insertions joined two by two: the earlier one's keys moved down by the later one's."""
    size = 1 << level
    ranks = new.ranks[: pairs * 2 * size].reshape(pairs, 2, size)
    keys = new.keys[: pairs * 2 * size].reshape(pairs, 2, size)
    early, late = ranks[:, 0], ranks[:, 1]
    offset = np.arange(pairs)[:, None] * _BLOCK
    moved = np.searchsorted((late - np.arange(size) + offset).ravel(), (early + offset).ravel(), side="right")
    passed = moved.reshape(pairs, size) - np.arange(pairs)[:, None] * size
    place = (np.arange(size) + passed + np.arange(pairs)[:, None] * 2 * size).ravel()
    return _merge(
        Inserted((early + passed).ravel(), keys[:, 0].ravel()), place, late.ravel(), keys[:, 1].ravel()
    )


def _behind(before: Inserted, later: Inserted) -> Inserted:
    """All insertions up to now, followed by a later run of them."""
    passed = np.searchsorted(later.ranks - np.arange(len(later.ranks)), before.ranks, side="right")
    place = np.arange(len(before.ranks)) + passed
    return _merge(Inserted(before.ranks + passed, before.keys), place, later.ranks, later.keys)


def _merge(early: Inserted, place: Ints, late_ranks: Ints, late_keys: Ints) -> Inserted:
    """Two sorted runs as one: the early one goes where it was placed, the late one into the gaps."""
    gaps = np.ones(len(place) + len(late_ranks), bool)
    gaps[place] = False
    ranks, keys = np.empty(len(gaps), np.int64), np.empty(len(gaps), np.int64)
    ranks[place], keys[place] = early
    ranks[gaps], keys[gaps] = late_ranks, late_keys
    return Inserted(ranks, keys)

"""Keys by popularity: whose rank is drawn, while new keys push the others down.

Keys stand in a line, the most popular first. A new key takes a rank and everybody from there on moves down by
one. An event names a rank, and the question is which key stood there at that moment. Walked one by one that
is a loop over all insertions for each event. Here it is a few bulk searches: insertions are joined into
blocks of 8, 64, 512, …, and an event that came after m of them walks back through one run of blocks for each
octal digit of m. Whoever stands at the very front, where most events go, is not searched for but written
down, insertion by insertion (`front`).
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
_BITS = 3
_WAYS = 1 << _BITS
_BEGINS = np.array([ways * (ways - 1) // 2 for ways in range(_WAYS)], np.int64)
"""Blocks of a group of runs that lie before the run of so many blocks."""
FRONT = 128
"""Ranks for which it is written down who stands there: at skew 1.1 for two fifths of all events, at skew 1.5
for nearly all."""
_FRONT_ROWS = 1 << 17
"""So many insertions at most are written down, 512 bytes each."""
_SORTED_FROM = 3 * _BITS
"""From this level on events are looked up in the order of their ranks, in which a search finds the memory
that it needs near by; up to it they are in the order of time, in which the small blocks lie."""
_NAMES_MAX = 1 << 30
"""Names of new keys that surely fit into 32 bits."""
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
        self._front = np.zeros((0, FRONT), np.int32)
        self.inserted = 0

    def new_keys(self) -> Inserted:
        """Where the new ones stand now; far ones, who are never asked for, are left out."""
        near = int(np.searchsorted(self._all.ranks, RANK_LIMIT))
        return Inserted(self._all.ranks[:near], self._all.keys[:near])

    def step(self, inserted_at: Ints, ranks: Ints, after: Ints) -> Ints:
        """Takes a run of insertions, and gives the key that stood at ranks[i] when after[i] of them were
        done."""
        count = len(inserted_at)
        if count > INSERTIONS_MAX:
            raise ValueError(f"a step takes at most {INSERTIONS_MAX} insertions, not {count}")
        keys = np.zeros(len(ranks), np.int64)
        asked = self._ask_front(inserted_at, ranks, after, keys)
        # Distinct and rising, as if each of these came in behind the others.
        far = RANK_LIMIT + np.arange(count)
        new = Inserted(np.where(inserted_at < RANK_LIMIT, inserted_at, far), np.arange(count))
        walk = _Walk(ranks[asked], after[asked])
        alone: list[Inserted] = []
        level = 0
        while count >> level:
            runs = _runs(new, count >> level, 1 << level)
            walk.back(runs, level)
            if runs.rest is not None:
                alone.append(runs.rest)
            new = runs.whole
            level += _BITS
        found = walk.keys(self._all, self.inserted)
        keys[asked] = found
        for block in reversed(alone):  # oldest first: the largest block begins the run
            self._all = _behind(self._all, Inserted(block.ranks, -1 - self.inserted - block.keys))
        self.inserted += count
        return keys

    def _ask_front(self, inserted_at: Ints, ranks: Ints, after: Ints, keys: Ints) -> Ints:
        """Fills in the keys of events at the front; the others' places."""
        inside = inserted_at <= FRONT
        which = np.flatnonzero(inside)
        if len(ranks) < len(inserted_at) or len(which) > _FRONT_ROWS or self.inserted > _NAMES_MAX:
            return np.arange(len(ranks))
        if len(self._front) <= len(which):  # kept, for fresh memory costs more than what is written into it
            self._front = np.empty((len(which) + len(which) // 4 + 1, FRONT), np.int32)
        self._front[0] = _Walk(np.arange(1, FRONT + 1), np.zeros(FRONT, np.int64)).keys(
            self._all, self.inserted
        )
        _write_front(self._front, inserted_at[which] - 1, -1 - self.inserted - which)
        near = ranks <= FRONT
        at = np.flatnonzero(near)
        passed = np.concatenate(([0], np.cumsum(inside)))
        keys[at] = self._front.ravel()[passed[after[at]] * FRONT + ranks[at] - 1]
        return np.flatnonzero(~near)


def _write_front(rows: NDArray[np.int32], places: Ints, new: Ints) -> None:
    """Who stands first, second, …: row 0 says it before the first of some insertions; the others are to say
    it after each of them.

    A row is bytes here, into which four are put and of which the last four fall off: a third of what NumPy
    takes for so little.
    """
    line, size = bytearray(rows[0].tobytes()), rows[0].nbytes
    names = new.astype(np.int32).tobytes()
    out = rows.data.cast("B")
    end = size
    for i, place in enumerate((places * 4).tolist()):
        line[place:place] = names[4 * i : 4 * i + 4]
        del line[size:]
        out[end : end + size] = line
        end += size


class _Runs(NamedTuple):
    """Of every eight neighbouring blocks the first, the first two, … and the first seven, joined; end to
    end."""

    numbers: Ints
    """(run, rank) as one number, rising."""
    keys: Ints
    size: int
    """Insertions of a block."""
    whole: Inserted
    """All eight joined, of those that are complete."""
    rest: Inserted | None
    """Blocks at the end that are fewer than eight, joined."""


def _runs(new: Inserted, blocks: int, size: int) -> _Runs:
    """`new` are blocks end to end, each of `size` insertions, and perhaps more that make up no block."""
    full, more = divmod(blocks, _WAYS)
    groups = full + bool(more)
    padded = groups * _WAYS * size
    flat = Inserted(np.zeros(padded, np.int64), np.zeros(padded, np.int64))
    flat.ranks[: blocks * size] = new.ranks[: blocks * size]
    flat.keys[: blocks * size] = new.keys[: blocks * size]
    ranks, keys = flat.ranks.reshape(groups, _WAYS, size), flat.keys.reshape(groups, _WAYS, size)
    together = _WAYS * (_WAYS - 1) // 2 * size
    numbers, named = np.empty((groups, together), np.int64), np.empty((groups, together), np.int64)
    joined = Inserted(ranks[:, 0], keys[:, 0])
    rest: Inserted | None = None
    for ways in range(1, _WAYS):
        if ways == more:
            rest = Inserted(joined.ranks[-1], joined.keys[-1])
        there = len(joined.ranks)
        place = slice(ways * (ways - 1) // 2 * size, ways * (ways + 1) // 2 * size)
        run = (np.arange(there)[:, None] * _WAYS + ways) * _BLOCK
        numbers[:there, place], named[:there, place] = joined.ranks + run, joined.keys
        going_on = full + (ways < more)
        joined = _join(
            Inserted(joined.ranks[:going_on], joined.keys[:going_on]),
            Inserted(ranks[:going_on, ways], keys[:going_on, ways]),
        )
    last = more * (more + 1) // 2 * size if more else together
    upto = (groups - 1) * together + last if groups else 0
    whole = Inserted(joined.ranks.ravel(), joined.keys.ravel())
    return _Runs(numbers.ravel()[:upto], named.ravel()[:upto], size, whole, rest)


class _Walk:
    """Events on their way back through the insertions, to the key that each one meant."""

    def __init__(self, ranks: Ints, after: Ints) -> None:
        self._new = np.full(len(ranks), -1, np.int64)
        """Which of the insertions it was; -1: none so far."""
        self._rank = ranks.copy()
        self._after = after
        self._order: Ints | None = None

    def back(self, runs: _Runs, level: int) -> None:
        """Through the blocks of 2**level insertions that the event's digit counts."""
        if not len(self._rank) or not len(runs.numbers):
            return
        if level >= _SORTED_FROM and self._order is None:
            self._order = order = np.argsort((self._after >> level) * _BLOCK + self._rank)
            self._new, self._rank, self._after = self._new[order], self._rank[order], self._after[order]
        run = self._after >> level
        number = run * _BLOCK
        number += self._rank
        found = np.searchsorted(runs.numbers, number)
        at = np.minimum(found, len(runs.numbers) - 1)
        hit = np.flatnonzero((runs.numbers[at] == number) & (self._new < 0))
        self._new[hit] = runs.keys[at[hit]]
        begins = _WAYS * (_WAYS - 1) // 2 * (run // _WAYS) + _BEGINS[run % _WAYS]
        begins *= runs.size
        self._rank += begins
        self._rank -= found

    def keys(self, before: Inserted, inserted: int) -> Ints:
        """Through all insertions of earlier steps at once; who meets none of them was there at first."""
        keys = -1 - inserted - self._new
        asked = np.flatnonzero(self._new < 0)
        rank = self._rank[asked]
        if len(before.ranks):
            found = np.searchsorted(before.ranks, rank)
            at = np.minimum(found, len(before.ranks) - 1)
            hit = before.ranks[at] == rank
            keys[asked] = np.where(hit, before.keys[at], rank - found)
        else:
            keys[asked] = rank
        if self._order is None:
            return keys
        as_asked = np.empty_like(keys)
        as_asked[self._order] = keys
        return as_asked


def _join(early: Inserted, late: Inserted) -> Inserted:
    """Blocks joined two by two (a row each): the earlier one's keys moved down by the later one's."""
    many, size = early.ranks.shape
    more = late.ranks.shape[1]
    offset = np.arange(many)[:, None] * _BLOCK
    moved = np.searchsorted(
        (late.ranks - np.arange(more) + offset).ravel(), (early.ranks + offset).ravel(), side="right"
    )
    passed = moved.reshape(many, size) - np.arange(many)[:, None] * more
    place = (np.arange(size) + passed + np.arange(many)[:, None] * (size + more)).ravel()
    joined = _merge(
        Inserted((early.ranks + passed).ravel(), early.keys.ravel()),
        place,
        late.ranks.ravel(),
        late.keys.ravel(),
    )
    return Inserted(joined.ranks.reshape(many, size + more), joined.keys.reshape(many, size + more))


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

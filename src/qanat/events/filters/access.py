"""Files of conjunctions: where a row finds its candidates.

A file belongs to a family of conjunctions that are found in the same way: by the literals that one attribute
or two equal, by the interval that a number lies in, or by both. Its key is the literal's slot, or two slots
as one number.
"""

from typing import TypeAlias

import numpy as np

from qanat.events.filters.lookup import Lookup
from qanat.events.filters.numbers import Array, Numbers
from qanat.events.filters.registry import Tests, expand
from qanat.events.filters.stabbing import Stabbing

Ranges: TypeAlias = tuple[Array, Array, Array]
"""(row, start, stop): the row's candidates are a file's items from start to stop. A row may come several
times."""


class Slots:
    """The literals of one plan, numbered from 0: short numbers make short keys."""

    def __init__(self, tests: Tests, literal_count: int) -> None:
        literals, self._slot_of = np.unique(tests.literals, return_inverse=True)
        self.count = len(literals)
        self._bounds = tests.literal_bounds
        # By literal. The last place is for "no literal" (-1) and for literals that are newer than the plan.
        self._slots = np.full(literal_count + 1, -1, np.int64)
        self._slots[literals] = np.arange(self.count)

    def sizes(self, tests: Array) -> Array:
        return np.asarray(self._bounds[tests + 1] - self._bounds[tests])

    def keys(self, first: Array, second: Array | None) -> tuple[Array, Array]:
        """(which, key) for every literal of the tests `first`, or every pair of literals of `first` and
        `second`."""
        if second is None:
            which, at = expand(self._bounds[first], self._bounds[first + 1])
            return which, self._slot_of[at]
        sizes = self.sizes(second)
        which, at = expand(np.zeros(len(first), np.int64), self.sizes(first) * sizes)
        left, right = np.divmod(at, sizes[which])
        left_slot = self._slot_of[self._bounds[first][which] + left]
        return which, left_slot * self.count + self._slot_of[self._bounds[second][which] + right]

    def rows(self, lookup: Lookup, name: int) -> list[tuple[Array, Array]]:
        """(row, key) of the rows whose value equals a literal of the plan: as text, and as number or
        truth."""
        result = []
        for literals in lookup.literals(name):
            slot = self._slots[np.minimum(literals, len(self._slots) - 1)]
            rows = np.flatnonzero(slot >= 0)
            if len(rows):
                result.append((rows, slot[rows]))
        return result

    def pair_rows(self, lookup: Lookup, first: int, second: int) -> list[tuple[Array, Array]]:
        """(row, key) of the rows whose values of two names both equal a literal."""
        result = []
        for rows, left in self.rows(lookup, first):
            for others, right in self.rows(lookup, second):
                both, i, j = np.intersect1d(rows, others, assume_unique=True, return_indices=True)
                if len(both):
                    result.append((both, left[i] * self.count + right[j]))
        return result


class File:
    """One family: `by` are the names of its equalities (none, one or two), `interval` that of its interval or
    -1.

    `which` and `keys` say which of `items` (conjunctions) are filed under which keys; `low` and `high` are
    the intervals of the items. `filed` is what candidates are taken from, by the ranges that `candidates`
    gives.
    """

    def __init__(
        self,
        slots: Slots,
        by: tuple[int, ...],
        interval: int,
        filed: tuple[Array, Array, Array],
        ends: tuple[Numbers, Numbers] | None,
    ) -> None:
        which, keys, items = filed
        self._slots, self._by, self._interval = slots, by, interval
        self._keys, group = np.unique(keys, return_inverse=True)
        # A table of groups by slot where most of it would be in use; else the keys are searched.
        self._groups: Array | None = None
        if len(by) == 1 and slots.count <= 8 * len(self._keys):
            self._groups = np.full(slots.count, -1)
            self._groups[self._keys] = np.arange(len(self._keys))
        self._stabbing: Stabbing | None = None
        if ends is None:
            order = np.argsort(group, kind="stable")
            self.filed = items[which[order]]
            self._bounds = np.searchsorted(group[order], np.arange(len(self._keys) + 1))
        else:
            low, high = ends
            self._stabbing = Stabbing(group, low.at(which), high.at(which), items[which])
            self.filed = self._stabbing.tree.items

    def candidates(self, lookup: Lookup) -> list[Ranges]:
        result: list[Ranges] = []
        for row, key in self._rows(lookup):
            group = self._find(key)
            known = np.flatnonzero(group >= 0)
            row, group = row[known], group[known]
            if self._stabbing is None:
                result.append((row, self._bounds[group], self._bounds[group + 1]))
                continue
            numbers = lookup.numbers(self._interval)
            if numbers is not None:
                some = np.flatnonzero(~np.isnan(numbers.hi[row]))
                row, group = row[some], group[some]
                point, start, stop = self._stabbing.ranges(group, numbers.at(row))
                result.append((row[point], start, stop))
        return result

    def _find(self, keys: Array) -> Array:
        """The group of each key, or -1."""
        if self._groups is not None:
            return np.asarray(self._groups[keys])
        group = np.searchsorted(self._keys, keys)
        group[group == len(self._keys)] = 0
        return np.where(self._keys[group] == keys, group, -1)

    def _rows(self, lookup: Lookup) -> list[tuple[Array, Array]]:
        if not self._by:
            return [(np.arange(lookup.rows), np.zeros(lookup.rows, np.int64))]
        if len(self._by) == 1:
            return self._slots.rows(lookup, self._by[0])
        return self._slots.pair_rows(lookup, *self._by)

"""How to match a set of conjunctions: by which test each is found, and what remains to be verified.

Each conjunction is filed under one access test, or two: an equality (by literal), an interval (in a segment tree), an
equality and an interval together where many conjunctions share the literal, else a pattern, else `exists`. A
conjunction that has none of these (it is `all`, or negations only) is tried on every row. A batch is joined with the
files, which gives candidate pairs (row, conjunction); the remaining terms are verified over all pairs at once.
"""

from typing import NamedTuple

import numpy as np

from qanat.events.filters.lookup import Lookup
from qanat.events.filters.numbers import Array
from qanat.events.filters.registry import AMONG, BETWEEN, EXISTS, REGEX, Registry, expand
from qanat.events.filters.stabbing import Stabbing
from qanat.events.filters.verify import Verifier

PAIRS_LIMIT = 1 << 21  # candidate pairs verified at a time: bounds memory to some hundred bytes each
DENSE = 4.0  # conjunctions filed under a literal as met by an average event; above it, intervals help to tell them apart

Ranges = tuple[Array, Array, Array]  # (row, start, stop) into a plan's files


class _Intervals(NamedTuple):
    """Conjunctions filed in a segment tree by numbers of `name`, within the literal of `by`, or in one group."""

    name: int
    by: int  # -1: one group
    stabbing: Stabbing
    base: int  # where the tree's items are in the files


class Plan:
    """Immutable. `conjunctions` are numbers in the registry; what matches is given as indices into them."""

    def __init__(self, registry: Registry, conjunctions: Array) -> None:
        self.count = len(conjunctions)
        owner, tests, negated = registry.terms_of(conjunctions)
        self.test_numbers, local = np.unique(tests, return_inverse=True)
        self.tests = registry.tests(self.test_numbers)
        # A literal's slot: its place among those of this plan. The last is for "no literal" and for later ones.
        literals, self._slot_of = np.unique(self.tests.literals, return_inverse=True)
        self._slots = np.full(registry.literal_count + 1, -1, np.int64)
        self._slots[literals] = np.arange(len(literals))
        self._files: list[Array] = []
        self._filed = 0
        self._equality_names: list[int] = []
        self._equality_bounds = np.zeros(len(literals) + 1, np.int64)
        self._intervals: list[_Intervals] = []
        self._flagged: list[tuple[int, int, int]] = []  # (test, start, stop) for patterns and exists
        used = self._choose(owner, local, negated)
        self.everything = self._file(np.setdiff1d(np.arange(self.count), owner[used]))
        self.files = np.concatenate([np.zeros(0, np.int64), *self._files])
        rest = np.flatnonzero(~used)
        terms = owner[rest], local[rest], negated[rest]
        self.verifier = Verifier(self.test_numbers, self.tests, self.count, terms)

    # --- filing -------------------------------------------------------------------------------------

    def _choose(self, owner: Array, test: Array, negated: Array) -> Array:
        """Files every conjunction that has an access test; says which terms need no verification then."""
        tests, used = self.tests, np.zeros(len(owner), bool)
        kind = tests.kind[test]
        equality = _best(owner, self._equality_costs(test), ~negated & (kind == AMONG))
        interval = _best(owner, self._interval_costs(test), ~negated & (kind == BETWEEN))
        of_equality, of_interval = owner[equality], owner[interval]
        # Both: only where the literal alone leaves many candidates.
        dense = self._dense_names(test[equality])
        both = np.isin(of_equality, of_interval) & np.isin(tests.name[test[equality]], dense)
        self._file_equalities(owner[equality[~both]], test[equality[~both]])
        paired = interval[np.searchsorted(of_interval, of_equality[both])]
        self._file_intervals(owner[paired], test[paired], test[equality[both]])
        alone = interval[~np.isin(of_interval, of_equality)]
        self._file_intervals(owner[alone], test[alone], None)
        used[equality] = used[paired] = used[alone] = True
        found = owner[used]
        for kinds in (REGEX, EXISTS):
            terms = _best(owner, np.zeros(len(owner)), ~negated & (kind == kinds) & ~np.isin(owner, found))
            for number in np.unique(test[terms]).tolist():
                start, stop = self._file(owner[terms[test[terms] == number]])
                self._flagged.append((number, start, stop))
            used[terms] = True
            found = owner[used]
        return used

    def _equality_costs(self, test: Array) -> Array:
        """The share of events that an equality test lets through if an attribute's literals are equally common."""
        tests = self.tests
        sizes = np.diff(tests.literal_bounds)
        among = np.flatnonzero(tests.kind == AMONG)
        owner, at = expand(tests.literal_bounds[among], tests.literal_bounds[among + 1])
        first = np.unique(tests.literals[at], return_index=True)[1]  # a literal belongs to one name
        distinct = np.bincount(tests.name[among][owner[first]], minlength=int(tests.name.max(initial=0)) + 1)
        return sizes[test] / np.maximum(distinct[tests.name[test]], 1)

    def _interval_costs(self, test: Array) -> Array:
        low, high = self.tests.low.hi, self.tests.high.hi
        with np.errstate(over="ignore"):  # wider than float64 can say is wide enough
            return (high - low)[test]

    def _dense_names(self, test: Array) -> Array:
        """Names whose literals, weighted by how many conjunctions want them, have many conjunctions each."""
        owner, at = expand(self.tests.literal_bounds[test], self.tests.literal_bounds[test + 1])
        _, first, counts = np.unique(self.tests.literals[at], return_index=True, return_counts=True)
        names = self.tests.name[test][owner[first]]
        squares = np.bincount(names, counts.astype(np.float64) ** 2)
        totals = np.bincount(names, counts)
        return np.flatnonzero(squares > DENSE * np.maximum(totals, 1))

    def _file(self, items: Array) -> tuple[int, int]:
        start = self._filed
        self._files.append(items)
        self._filed += len(items)
        return start, self._filed

    def _slots_of(self, test: Array) -> tuple[Array, Array]:
        """(which of the tests, slot of its literal) for every literal of these tests."""
        owner, at = expand(self.tests.literal_bounds[test], self.tests.literal_bounds[test + 1])
        return owner, self._slot_of[at]

    def _file_equalities(self, owner: Array, test: Array) -> None:
        self._equality_names = np.unique(self.tests.name[test]).tolist()
        which, slot = self._slots_of(test)
        order = np.argsort(slot, kind="stable")
        start, _ = self._file(owner[which[order]])
        self._equality_bounds = start + np.searchsorted(slot[order], np.arange(len(self._equality_bounds)))

    def _file_intervals(self, owner: Array, test: Array, equality: Array | None) -> None:
        tests = self.tests
        names = tests.name[test]
        by_names = np.full(len(test), -1) if equality is None else tests.name[equality]
        order = np.lexsort((by_names, names))
        new = (np.diff(names[order]) != 0) | (np.diff(by_names[order]) != 0)
        for rows in np.split(order, np.flatnonzero(new) + 1) if len(order) else []:
            if equality is None:
                which, slot = np.arange(len(rows)), np.zeros(len(rows), np.int64)
            else:
                which, slot = self._slots_of(equality[rows])
            some = test[rows][which]
            stabbing = Stabbing(slot, tests.low.at(some), tests.high.at(some), owner[rows][which])
            base, _ = self._file(stabbing.tree.items)
            self._intervals.append(_Intervals(int(names[rows[0]]), int(by_names[rows[0]]), stabbing, base))

    # --- matching -----------------------------------------------------------------------------------

    def match(self, lookup: Lookup) -> tuple[Array, Array]:
        """(row, conjunction) for every conjunction that holds; a pair may come twice."""
        row, start, stop = (np.concatenate(parts) for parts in zip(*self._candidates(lookup), strict=True))
        # Pieces of bounded size; one range alone has at most as many candidates as there are conjunctions.
        total = np.cumsum(stop - start)
        pieces = 1 + int(total[-1]) // PAIRS_LIMIT if len(total) else 0
        cuts = np.searchsorted(total, np.arange(1, pieces) * PAIRS_LIMIT)
        rows, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for piece in np.split(np.arange(len(row)), cuts):
            owner, at = expand(start[piece], stop[piece])
            pair_rows, conjunctions = self.verifier.verify(lookup, row[piece][owner], self.files[at])
            rows.append(pair_rows)
            found.append(conjunctions)
        return np.concatenate(rows), np.concatenate(found)

    def _candidates(self, lookup: Lookup) -> list[Ranges]:
        none = np.zeros(0, np.int64)
        ranges: list[Ranges] = [(none, none, none)]
        for name in self._equality_names:
            for row, slot in self._slots_by_row(lookup, name):
                start, stop = self._equality_bounds[slot], self._equality_bounds[slot + 1]
                ranges.append((row, start, stop))
        for intervals in self._intervals:
            ranges += self._stab(lookup, intervals)
        for test, first, last in self._flagged:
            ranges.append(_constant(lookup.rows_passing(int(self.test_numbers[test])), first, last))
        if self.everything[0] < self.everything[1]:
            ranges.append(_constant(np.arange(lookup.rows), *self.everything))
        return ranges

    def _stab(self, lookup: Lookup, intervals: _Intervals) -> list[Ranges]:
        numbers = lookup.numbers(intervals.name)
        if numbers is None:
            return []
        every = np.arange(lookup.rows)
        pairs = [(every, every * 0)] if intervals.by < 0 else self._slots_by_row(lookup, intervals.by)
        result = []
        for row, slot in pairs:
            some = ~np.isnan(numbers.hi[row])
            row, slot = row[some], slot[some]
            point, start, stop = intervals.stabbing.ranges(slot, numbers.at(row))
            result.append((row[point], start + intervals.base, stop + intervals.base))
        return result

    def _slots_by_row(self, lookup: Lookup, name: int) -> list[tuple[Array, Array]]:
        """(row, slot) of the rows whose value equals a literal of this plan: as text, and as number or truth."""
        result = []
        for literals in lookup.literals(name):
            slot = self._slots[np.minimum(literals, len(self._slots) - 1)]
            rows = np.flatnonzero(slot >= 0)
            if len(rows):
                result.append((rows, slot[rows]))
        return result


def _constant(rows: Array, start: int, stop: int) -> Ranges:
    return rows, np.full(len(rows), start), np.full(len(rows), stop)


def _best(owner: Array, cost: Array, eligible: Array) -> Array:
    """For each owner that has eligible terms the cheapest of them; owners rise in the answer."""
    terms = np.flatnonzero(eligible)
    order = terms[np.lexsort((cost[terms], owner[terms]))]
    first = np.ones(len(order), bool)
    first[1:] = owner[order][1:] != owner[order][:-1]
    return order[first]

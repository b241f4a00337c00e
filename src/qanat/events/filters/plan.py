"""How to match a set of conjunctions: by which tests each is found, and what remains to be verified.

Each conjunction is filed under its most selective equality; where many conjunctions share the literal, under
a second equality or an interval as well; without an equality under an interval, else a pattern, else
`exists`. One that has none of these (it is `all`, or negations only) is tried on every row. A batch is joined
with the files, which gives candidate pairs (row, conjunction); the remaining terms are verified over all
pairs at once.
"""

import numpy as np

from qanat.events.filters.access import File, Ranges, Slots
from qanat.events.filters.lookup import Lookup
from qanat.events.filters.numbers import Array
from qanat.events.filters.registry import AMONG, BETWEEN, EXISTS, REGEX, Registry, expand
from qanat.events.filters.verify import Verifier

PAIRS_LIMIT = 1 << 21  # candidate pairs verified at a time: bounds memory to some hundred bytes each
CROWD = 4.0  # conjunctions under a key, as an average event meets them, above which a finer key pays
PRODUCT_LIMIT = 16  # keys that one conjunction with two lists may be filed under


class Plan:
    """Immutable. `conjunctions` are numbers in the registry; what matches is given as indices into them."""

    def __init__(self, registry: Registry, conjunctions: Array) -> None:
        self.count = len(conjunctions)
        self._owner, numbers, self._negated = registry.terms_of(conjunctions)
        self._test_numbers, self._test = np.unique(numbers, return_inverse=True)
        self._tests = registry.tests(self._test_numbers)
        self._slots = Slots(self._tests, registry.literal_count)
        self._used = np.zeros(len(self._test), bool)  # by term: the access answers it
        self._filed: list[Array] = []
        self._size = 0
        self._files: list[tuple[int, File]] = []  # with the place of its items
        self._flagged: list[tuple[int, int, int]] = []  # (test, start, stop) for patterns and exists
        if len(self._test):
            self._file_by_values()
            self._file_by_flags(REGEX)
            self._file_by_flags(EXISTS)
        self._everything = self._append(self._unfiled())
        self._items = np.concatenate(self._filed)
        rest = ~self._used
        terms = self._owner[rest], self._test[rest], self._negated[rest]
        self._verifier = Verifier(self._test_numbers, self._tests, self.count, terms)

    # --- filing -------------------------------------------------------------------------------------

    def _file_by_values(self) -> None:
        """Chooses for each conjunction at most two equalities and an interval, and files families of equal
        choice."""
        kind, name = self._tests.kind[self._test], self._tests.name[self._test]
        cost = self._equality_costs()
        equality = ~self._negated & (kind == AMONG)
        first = self._cheapest(cost, equality)
        equality &= name != np.where(first < 0, -1, name[first])[self._owner]
        second = self._cheapest(cost, equality)
        interval = self._cheapest(self._interval_widths(), ~self._negated & (kind == BETWEEN))

        crowded = self._crowded(first, np.full(self.count, -1))
        product = self._slots.sizes(self._test[first]) * self._slots.sizes(self._test[second])
        second = np.where(crowded & (product <= PRODUCT_LIMIT), second, -1)
        crowded = self._crowded(first, second)
        interval = np.where(crowded | (first < 0), interval, -1)
        # Both orders of two names are one family.
        swap = (second >= 0) & (name[second] < name[first])
        first, second = np.where(swap, second, first), np.where(swap, first, second)

        families = np.stack(
            [np.where(term < 0, -1, name[term]) for term in (first, second, interval)], axis=1
        )
        filed = np.flatnonzero((families >= 0).any(axis=1))
        order = filed[np.lexsort(families[filed].T)]
        changes = np.flatnonzero((np.diff(families[order], axis=0) != 0).any(axis=1)) + 1
        for members in np.split(order, changes) if len(order) else []:
            self._file_family(members, first[members], second[members], interval[members])
        for term in (first, second, interval):
            self._used[term[term >= 0]] = True

    def _file_family(self, members: Array, first: Array, second: Array, interval: Array) -> None:
        test, name = self._test, self._tests.name[self._test]
        by = tuple(int(name[term[0]]) for term in (first, second) if term[0] >= 0)
        if by:
            which, keys = self._slots.keys(test[first], test[second] if len(by) == 2 else None)
        else:
            which, keys = np.arange(len(members)), np.zeros(len(members), np.int64)
        ends, by_interval = None, -1
        if interval[0] >= 0:
            ends = self._tests.low.at(test[interval]), self._tests.high.at(test[interval])
            by_interval = int(name[interval[0]])
        file = File(self._slots, by, by_interval, (which, keys, members), ends)
        self._files.append((self._append(file.filed)[0], file))

    def _file_by_flags(self, kind: int) -> None:
        """Files what has no place yet under a test that is evaluated on every distinct value."""
        unfiled = np.zeros(self.count, bool)
        unfiled[self._unfiled()] = True
        eligible = ~self._negated & (self._tests.kind[self._test] == kind) & unfiled[self._owner]
        terms = self._cheapest(np.zeros(len(self._test)), eligible)
        terms = terms[terms >= 0]
        order = terms[np.argsort(self._test[terms], kind="stable")]
        for group in np.split(order, np.flatnonzero(np.diff(self._test[order])) + 1) if len(order) else []:
            number = int(self._test_numbers[self._test[group[0]]])
            self._flagged.append((number, *self._append(self._owner[group])))
        self._used[terms] = True

    def _unfiled(self) -> Array:
        return np.setdiff1d(np.arange(self.count), self._owner[self._used])

    def _append(self, items: Array) -> tuple[int, int]:
        start = self._size
        self._filed.append(items)
        self._size += len(items)
        return start, self._size

    def _cheapest(self, cost: Array, eligible: Array) -> Array:
        """For each conjunction the eligible term of least cost, or -1."""
        terms = np.flatnonzero(eligible)
        order = terms[np.lexsort((cost[terms], self._owner[terms]))]
        result = np.full(self.count, -1)
        result[self._owner[order[::-1]]] = order[::-1]  # of several the last assignment, the cheapest, stays
        return result

    def _equality_costs(self) -> Array:
        """By term, the share of events that it lets through if the literals of its attribute are equally
        common."""
        tests = self._tests
        owner = np.repeat(np.arange(len(tests.kind)), np.diff(tests.literal_bounds))
        first = np.unique(tests.literals, return_index=True)[1]  # a literal belongs to one name
        distinct = np.bincount(tests.name[owner[first]], minlength=int(tests.name.max(initial=0)) + 1)
        share = np.diff(tests.literal_bounds) / np.maximum(distinct[tests.name], 1)
        return np.asarray(share[self._test])

    def _interval_widths(self) -> Array:
        with np.errstate(over="ignore"):  # wider than float64 can say is wide enough
            return np.asarray((self._tests.high.hi - self._tests.low.hi)[self._test])

    def _crowded(self, first: Array, second: Array) -> Array:
        """Conjunctions whose key, with such equalities, would lead to many others as well.

        What counts is the number of conjunctions under a key as an event meets them, which assumes that what
        is asked for often comes often: Σn² / Σn over the keys of a family.
        """
        result = np.zeros(self.count, bool)
        for members in (np.flatnonzero((first >= 0) & (second < 0)), np.flatnonzero(second >= 0)):
            one, two = self._test[first[members]], self._test[second[members]]
            paired = len(members) > 0 and second[members[0]] >= 0
            which, keys = self._slots.keys(one, two if paired else None)
            names = self._tests.name[one] * (self._tests.name.max(initial=0) + 1)
            names = names + (self._tests.name[two] if paired else 0)
            family = np.unique(names, return_inverse=True)[1]
            _, at, counts = np.unique(keys, return_index=True, return_counts=True)
            squares = np.bincount(family[which[at]], counts.astype(np.float64) ** 2)
            totals = np.bincount(family[which[at]], counts)
            result[members] = (squares > CROWD * totals)[family]
        return result

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
            pair_rows, conjunctions = self._verifier.verify(lookup, row[piece][owner], self._items[at])
            rows.append(pair_rows)
            found.append(conjunctions)
        return np.concatenate(rows), np.concatenate(found)

    def _candidates(self, lookup: Lookup) -> list[Ranges]:
        none = np.zeros(0, np.int64)
        result: list[Ranges] = [(none, none, none)]
        for base, file in self._files:
            result += [(row, start + base, stop + base) for row, start, stop in file.candidates(lookup)]
        for test, start, stop in self._flagged:
            rows = lookup.rows_passing(test)
            result.append((rows, np.full(len(rows), start), np.full(len(rows), stop)))
        start, stop = self._everything
        if start < stop:
            rows = np.arange(lookup.rows)
            result.append((rows, np.full(len(rows), start), np.full(len(rows), stop)))
        return result

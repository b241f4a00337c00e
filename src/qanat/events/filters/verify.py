"""Verifies the terms that remain of candidate conjunctions, over all (row, conjunction) pairs at once.

Terms are taken position by position, the cheap kinds first: at each position the pairs are grouped by
attribute and kind of test, each group is one vectorised comparison, and only the pairs that passed go on to
the next position.
"""

import numpy as np

from qanat.events.filters.lookup import Lookup
from qanat.events.filters.numbers import Array
from qanat.events.filters.registry import AMONG, BETWEEN, EXISTS, REGEX, Tests

_ORDER = np.zeros(4, np.int64)
_ORDER[[AMONG, BETWEEN, EXISTS, REGEX]] = range(4)  # by cost of one comparison


class Verifier:
    """The terms (owner, test, negated) of `count` conjunctions; `tests` are columns, `numbers` their registry
    numbers."""

    def __init__(
        self,
        numbers: Array,
        tests: Tests,
        count: int,
        terms: tuple[Array, Array, Array],
    ) -> None:
        owner, test, negated = terms
        order = np.lexsort((_ORDER[tests.kind[test]], owner))
        self._bounds = np.searchsorted(owner[order], np.arange(count + 1))
        self._sizes = np.diff(self._bounds).astype(np.uint32)
        self._test, self._negated = test[order], negated[order]
        self._numbers, self._tests = numbers, tests
        self._group = tests.name.astype(np.int64) * 4 + tests.kind
        sizes = np.diff(tests.literal_bounds)
        self._single = np.full(len(sizes), -2, np.int64)  # the literal of an equality; -2 equals nothing
        self._single[sizes == 1] = tests.literals[tests.literal_bounds[:-1][sizes == 1]]
        # Test and literal of every list in one sorted column: membership is a search in it.
        self._members = np.repeat(np.arange(len(sizes)), sizes) << 32 | tests.literals
        self._lists = sizes > 1

    def verify(self, lookup: Lookup, rows: Array, conjunctions: Array) -> tuple[Array, Array]:
        """The pairs whose remaining terms all hold."""
        done_rows, done = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        position = 0
        while len(rows):
            more = self._sizes[conjunctions] > position
            done_rows.append(rows[~more])
            done.append(conjunctions[~more])
            rows, conjunctions = rows[more], conjunctions[more]
            at = self._bounds[conjunctions] + position
            passed = self._pass(lookup, rows, self._test[at]) != self._negated[at]
            rows, conjunctions = rows[passed], conjunctions[passed]
            position += 1
        return np.concatenate(done_rows), np.concatenate(done)

    def _pass(self, lookup: Lookup, rows: Array, tests: Array) -> Array:
        result = np.zeros(len(rows), bool)
        if not len(rows):
            return result
        groups = self._group[tests]
        order = np.argsort(groups, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
            name, kind = divmod(int(groups[part[0]]), 4)
            result[part] = self._compare(lookup, name, kind, rows[part], tests[part])
        return result

    def _compare(self, lookup: Lookup, name: int, kind: int, rows: Array, tests: Array) -> Array:
        if kind == AMONG:
            flags = np.zeros(len(rows), bool)
            for literals in lookup.literals(name):
                flags |= self._equal(literals[rows], tests)
            return flags
        if kind == BETWEEN:
            numbers = lookup.numbers(name)
            if numbers is None:
                return np.zeros(len(rows), bool)
            values = numbers.at(rows)
            return values.at_least(self._tests.low.at(tests)) & self._tests.high.at(tests).at_least(values)
        if kind == REGEX:
            return lookup.search(name, self._numbers[tests], rows)
        return lookup.present(name, rows)

    def _equal(self, literals: Array, tests: Array) -> Array:
        flags = np.asarray(literals == self._single[tests])
        listed = np.flatnonzero(self._lists[tests] & (literals >= 0))
        if len(listed):
            wanted = tests[listed] << 32 | literals[listed]
            at = np.searchsorted(self._members, wanted)
            at[at == len(self._members)] = 0
            flags[listed] = self._members[at] == wanted
        return flags

"""The tests of all filters of an index, each kept once, with a number; and the literals they name.

Tests and literals are numbered as they come and never renumbered; the index starts a new registry when most
of this one belongs to filters that are gone.
"""

from array import array
from collections.abc import Iterable
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from qanat.events.filters import numbers
from qanat.events.filters.columns import Column
from qanat.events.filters.model import (
    Among,
    Between,
    Conjunction,
    Exists,
    Literal,
    Number,
    Regex,
    Test,
    Text,
    UpTo,
    between,
)
from qanat.events.filters.numbers import Array, Numbers

EXISTS, AMONG, BETWEEN, REGEX = range(4)


class Literals:
    """The literals that tests name for one attribute, and which of them each value of a column equals."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.numbers: dict[int | float, int] = {}
        self.truths = [-1, -1]
        self._sorted: tuple[Array, Numbers] | None = None

    def number(self, literal: Literal, fresh: int) -> int:
        """The literal's number, which is `fresh` if it is new."""
        if isinstance(literal, Text):
            return self.texts.setdefault(literal.value, fresh)
        if isinstance(literal, Number):
            found = self.numbers.setdefault(literal.value, fresh)
            if found == fresh:
                self._sorted = None
            return found
        if self.truths[literal.value] < 0:
            self.truths[literal.value] = fresh
        return self.truths[literal.value]

    def of(self, column: Column) -> tuple[Array, Array]:
        """Per value of the table, then once more for "no value": the text literal and the other literal it
        equals.

        -1 where it equals none. A value may equal one of each: the text 5 equals '5' and 5.
        """
        as_text = np.full(column.size + 1, -1, np.int64)
        if self.texts:
            for at, text in column.texts:
                found = map(self.texts.get, text.to_pylist(), repeat(-1))
                as_text[at : at + len(text)] = np.fromiter(found, np.int64, len(text))
        as_value = np.full(column.size + 1, -1, np.int64)
        if self.numbers:
            as_value[:-1] = self._of_numbers(column.numbers)
        for truth in (0, 1):
            if self.truths[truth] >= 0:
                as_value[:-1][column.truths == truth] = self.truths[truth]
        return as_text, as_value

    def _of_numbers(self, values: Numbers) -> Array:
        if self._sorted is None:
            known = numbers.of_python(list(self.numbers))
            (keys,) = numbers.sortable(known)
            order = np.argsort(keys)
            self._sorted = np.fromiter(self.numbers.values(), np.int64)[order], known.at(order)
        ids, known = self._sorted
        keys, wanted = numbers.sortable(known, values)
        at = np.searchsorted(keys, wanted)
        at[at == len(keys)] = 0
        return np.where(keys[at] == wanted, ids[at], -1)


class Tests(NamedTuple):
    """Some tests as columns."""

    kind: Array
    name: Array
    low: Numbers  # of BETWEEN; infinite for an open end
    high: Numbers
    literals: Array  # of AMONG: those of test i are literals[literal_bounds[i]:literal_bounds[i + 1]], rising
    literal_bounds: Array


class Registry:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.literals: list[Literals] = []  # by name
        self.literal_count = 0
        self.patterns: dict[int, str] = {}  # by test
        self._name_ids: dict[str, int] = {}
        self._tests: dict[Test, int] = {}
        self._conjunctions: dict[tuple[int, ...], int] = {}
        self._kind, self._name = array("b"), array("q")
        self._ends = array("d")  # low.hi, low.lo, high.hi, high.lo of each test
        self._literals, self._literal_ends = array("q"), array("q", [0])
        self._terms, self._term_ends = array("q"), array("q", [0])

    def conjunction(self, terms: Conjunction) -> int:
        """The conjunction's number; equal ones have one."""
        codes = tuple(sorted(self._test(term.test) << 1 | term.negated for term in terms))
        number = self._conjunctions.setdefault(codes, len(self._conjunctions))
        if number == len(self._term_ends) - 1:
            self._terms.extend(codes)
            self._term_ends.append(len(self._terms))
        return number

    def terms_of(self, conjunctions: Array) -> tuple[Array, Array, Array]:
        """(which of the conjunctions, test, negated) of every term of these conjunctions."""
        owner, codes = _gather(self._terms, self._term_ends, conjunctions)
        return owner, codes >> 1, (codes & 1).astype(bool)

    def tests(self, wanted: Array) -> Tests:
        ends = _view(self._ends, np.float64).reshape(-1, 4)[wanted]
        exact = bool(ends[:, 1].any() or ends[:, 3].any())
        owner, literals = _gather(self._literals, self._literal_ends, wanted)
        return Tests(
            kind=_view(self._kind, np.int8)[wanted],
            name=_view(self._name, np.int64)[wanted],
            low=Numbers(ends[:, 0], ends[:, 1] if exact else None),
            high=Numbers(ends[:, 2], ends[:, 3] if exact else None),
            literals=literals,
            literal_bounds=np.searchsorted(owner, np.arange(len(wanted) + 1)),
        )

    def name_of(self, test: int) -> int:
        return self._name[test]

    def _test(self, test: Test) -> int:
        if isinstance(test, UpTo):
            test = between("@seq", None, test.seq)
        number = self._tests.setdefault(test, len(self._kind))
        if number == len(self._kind):
            self._append(number, test)
        return number

    def _append(self, number: int, test: Test) -> None:
        kind, low, high, literals = EXISTS, -np.inf, np.inf, list[int]()
        match test:
            case Exists():
                pass
            case Among(name, values):
                kind, literals = AMONG, sorted(self._literal_ids(name, values))
            case Between(_, some_low, some_high):
                kind = BETWEEN
                low = low if some_low is None else some_low
                high = high if some_high is None else some_high
            case Regex(_, pattern):
                kind, self.patterns[number] = REGEX, pattern
            case _:
                raise TypeError(f"'{test}' cannot be indexed")
        self._kind.append(kind)
        self._name.append(self._name_id(test.name))
        hi, lo = numbers.of_python([low, high])
        self._ends.extend((hi[0], 0.0 if lo is None else lo[0], hi[1], 0.0 if lo is None else lo[1]))
        self._literals.extend(literals)
        self._literal_ends.append(len(self._literals))

    def _literal_ids(self, name: str, values: Iterable[Literal]) -> Iterable[int]:
        table = self.literals[self._name_id(name)]
        for value in values:
            number = table.number(value, self.literal_count)
            self.literal_count = max(self.literal_count, number + 1)
            yield number

    def _name_id(self, name: str) -> int:
        number = self._name_ids.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
            self.literals.append(Literals())
        return number


def _view(column: "array[Any]", kind: type) -> Array:
    """The array's memory; whoever keeps it forbids the array to grow, so index it at once."""
    return np.frombuffer(column, kind) if len(column) else np.zeros(0, kind)


def _gather(flat: "array[int]", ends: "array[int]", wanted: Array) -> tuple[Array, Array]:
    """The lists number `wanted` of a list of lists laid flat, and which of the wanted each element is
    from."""
    bounds = _view(ends, np.int64)
    start, stop = bounds[wanted], bounds[wanted + 1]
    owner, at = expand(start, stop)
    return owner, _view(flat, np.int64)[at]


def expand(start: Array, stop: Array) -> tuple[Array, Array]:
    """All integers of many ranges in order, and which range each is from."""
    sizes = stop - start
    owner = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    return owner, np.arange(len(owner)) + (start - before)[owner]

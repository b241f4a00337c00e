"""One filter over one batch, column by column: the plain evaluator, and the one for garbage collection."""

from typing import NamedTuple, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.events.batch import Batch
from qanat.events.filters import numbers
from qanat.events.filters.columns import Column, View, search
from qanat.events.filters.errors import ContextError
from qanat.events.filters.model import (
    Among,
    Between,
    Conjunction,
    Exists,
    Filter,
    KeepLast,
    Named,
    Number,
    OlderThan,
    Regex,
    SameKey,
    Test,
    Text,
    Truth,
    UpTo,
)
from qanat.events.filters.numbers import Array

_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1


class Context(NamedTuple):
    """The garbage collection event that a contextual filter speaks of."""

    seq: int
    key: bytes = b""
    time_us: int = 0


def evaluate(f: Filter, batch: Batch, context: Context | None = None) -> Array:
    """Which rows of the batch the filter matches: the predicate alone.

    Garbage collection matches only events before its own (Sprinkler §2.1): use `collects` for that.
    """
    if context is None and f.contextual:
        raise ContextError(f"'{f}' speaks of a garbage collection event, and there is none here")
    return _Evaluation(batch, context).filter(f)


def collects(f: Filter, batch: Batch, context: Context) -> Array:
    """Which rows a garbage collection event with this predicate collects: those it matches that come before
    it."""
    return evaluate(f, batch, context) & (batch.seqs() < np.uint64(context.seq))


class _Evaluation:
    """One call: each distinct test is evaluated once, however many conjunctions share it."""

    def __init__(self, batch: Batch, context: Context | None) -> None:
        self.batch, self.context, self.view = batch, context, View(batch)
        self.done: dict[Test, Array] = {}

    def filter(self, f: Filter) -> Array:
        result = np.zeros(self.batch.count, bool)
        for conjunction in f.conjunctions:
            result |= self.conjunction(conjunction)
            if result.all():
                break
        return result

    def conjunction(self, terms: Conjunction) -> Array:
        result = np.ones(self.batch.count, bool)
        for term in terms:
            flags = self.test(term.test)
            result &= ~flags if term.negated else flags
            if not result.any():
                break
        return result

    def test(self, test: Test) -> Array:
        flags = self.done.get(test)
        if flags is None:
            flags = self.done[test] = self.compute(test)
        return flags

    def compute(self, test: Test) -> Array:
        match test:
            case Exists() | Among() | Between() | Regex():
                column = self.view.column(test.name)
                if column is None:
                    return np.zeros(self.batch.count, bool)
                return (
                    column.present() if isinstance(test, Exists) else column.spread(test_values(test, column))
                )
            case UpTo(seq):
                return np.asarray(self.batch.seqs() <= np.uint64(seq))
            case SameKey():
                return self.same_key(self.gc.key)
            case KeepLast(count):
                bound = self.gc.seq - count
                return np.asarray(self.batch.seqs() <= np.uint64(max(bound, 0))) & (bound >= 0)
            case OlderThan(age_us):
                bound = self.gc.time_us - age_us
                if bound > _TIME_MAX:
                    return np.ones(self.batch.count, bool)
                return np.asarray(self.batch.times() < np.int64(max(bound, _TIME_MIN)))
            case _:
                assert_never(test)

    @property
    def gc(self) -> Context:
        if self.context is None:
            raise ContextError("the filter speaks of a garbage collection event, and there is none here")
        return self.context

    def same_key(self, key: bytes) -> Array:
        keys = self.batch.keys()
        if keys is None or not key:
            return np.zeros(self.batch.count, bool)
        if pa.types.is_fixed_size_binary(keys.type):
            keys = keys.cast(pa.binary())
        return np.asarray(pc.equal(keys, pa.scalar(key, pa.binary())).to_numpy(zero_copy_only=False), bool)


def test_values(test: Named, column: Column) -> Array:
    """A test as a flag per value of the column's table (a null of the table fails)."""
    match test:
        case Among(_, values):
            return _among(values, column)
        case Between(_, low, high):
            flags = (
                np.ones(column.size, bool)
                if low is None
                else column.numbers.at_least(numbers.of_python([low]))
            )
            if high is not None:
                flags &= numbers.of_python([high]).at_least(column.numbers)
            return flags
        case Regex(_, pattern):
            return search(column, pattern)
        case Exists():
            return np.ones(column.size, bool)
        case _:
            assert_never(test)


def _among(values: tuple[Text | Number | Truth, ...], column: Column) -> Array:
    flags = np.zeros(column.size, bool)
    texts = [v.value for v in values if isinstance(v, Text)]
    if len(texts) == 1:
        flags |= column.flags_of_text(lambda text: pc.equal(text, texts[0]))
    elif texts:
        wanted = pa.array(texts, pa.string())
        flags |= column.flags_of_text(lambda text: pc.is_in(text, value_set=wanted))
    found = [v.value for v in values if isinstance(v, Number)]
    if found:
        wanted_numbers, have = numbers.sortable(numbers.of_python(found), column.numbers)
        flags |= np.isin(have, wanted_numbers) if len(found) > 1 else have == wanted_numbers
    for v in values:
        if isinstance(v, Truth):
            flags |= column.truths == int(v.value)
    return flags

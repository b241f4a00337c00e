"""The filter language as Spark columns: a filter becomes one boolean Column over the tabular form
(`columns`).

The answers are those of the columnar evaluator and of the index, event by event. What a value may be compared
as is as `events.filters.columns` has it: text and binary that is UTF-8 as text, numbers and text that spells
one as numbers, booleans and text that spells one as truths. A test of what is not there is false and never
null, so that `not` is a plain negation.

Numbers are compared exactly, though Spark has no type for all of them. Where every number near to a filter's
own is a float64, values are compared as such. Else a value is a 64-bit integer, or one of the upper half of
uint64, or a double, and the ends of an interval are rounded inwards for each of the three here, in Python,
where integers have no limits.

Regular expressions that Java takes as RE2 does, and without going back, are Spark's own (`java_patterns`);
others go through an Arrow function that calls RE2. A filter of very many tests goes as a whole through one
that calls the columnar evaluator (`filter_function`).
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple, assert_never

from pyspark.sql import Column
from pyspark.sql import functions as F

from qanat.events.filters import Context, ContextError, Filter
from qanat.events.filters.model import (
    Among,
    Between,
    Conjunction,
    Exists,
    KeepLast,
    Number,
    OlderThan,
    Regex,
    SameKey,
    Test,
    Text,
    Truth,
    UpTo,
)
from qanat.events.filters.numerals import NUMERAL
from qanat.pipeline.filters.function import function_of, size_of
from qanat.pipeline.filters.java_patterns import java_pattern, re2_function

_LONG_MIN, _LONG_MAX, _ULONG_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
_WHOLE = r"\A-?[0-9]+\z"
_SPELLED = rf"\A{NUMERAL}\z"
_LARGE = 600
"""How many nodes a filter may have about, as `size_of` counts them: some fifty tests."""


class ContextColumns(NamedTuple):
    """The garbage collection event that a contextual filter speaks of, if it stands in columns of the same
    row (after a join)."""

    seq: Column
    key: Column
    time_us: Column


def column_of(
    f: Filter,
    context: Context | ContextColumns | None = None,
    column: Callable[[str], Column] = F.col,
) -> Column:
    """Whether an event matches: true or false, never null.

    `column` finds the columns of the tabular form by name, where they have another name or stand in a struct.
    """
    if context is None and f.contextual:
        raise ContextError(f"'{f}' speaks of a garbage collection event, and there is none here")
    if isinstance(context, Context):
        context = ContextColumns(F.lit(context.seq), F.lit(context.key), F.lit(context.time_us))
    return _Compiler(column, context).filter(f)


class _Value:
    """What an event has under one name, as each kind of test sees it; null where it cannot be seen so."""

    def __init__(self, raw: Column, kind: Column | None = None) -> None:
        """`kind` is null for text, or None if it always is."""
        self.raw, self._kind = raw, F.lit(None).cast("string") if kind is None else kind
        self._plain = kind is None

    @cached_property
    def exists(self) -> Column:
        return self.raw.isNotNull()

    @cached_property
    def text(self) -> Column:
        """Text, or binary that is UTF-8."""
        if self._plain:
            return self.raw
        decoded = F.try_validate_utf8(F.unhex(self.raw).cast("string"))
        return F.when(self._kind.isNull(), self.raw).when(self._kind == "binary", decoded)

    def is_text(self, wanted: Sequence[str]) -> Column:
        """Whether it is one of these; without decoding anything."""
        plain = self.raw.isin(list(wanted))
        if self._plain:
            return plain
        digits = [text.encode().hex() for text in wanted]
        return (self._kind.isNull() & plain) | ((self._kind == "binary") & F.lower(self.raw).isin(digits))

    def is_truth(self, truth: bool) -> Column:
        word = "true" if truth else "false"
        return self.is_text([word]) | ((self._kind == "bool") & (self.raw == word))

    @cached_property
    def _digits(self) -> Column:
        """A whole number as text, of any length."""
        spelled = F.when(self.text.rlike(_WHOLE), self.text)
        return spelled if self._plain else F.when(self._kind.isin("int", "uint"), self.raw).otherwise(spelled)

    @cached_property
    def long(self) -> Column:
        return self._digits.try_cast("bigint")

    @cached_property
    def upper(self) -> Column:
        """From 2^63 to 2^64 - 1."""
        found = self._digits.try_cast("decimal(20,0)")
        return F.when(found.between(Decimal(_LONG_MAX + 1), Decimal(_ULONG_MAX)), found)

    @cached_property
    def real(self) -> Column:
        """What is no whole number of 64 bits: a float64 that is not NaN, or text that spells a finite one."""
        spelled = (
            F.when(self.text.rlike(_SPELLED) & self.long.isNull() & self.upper.isNull(), self.text).try_cast(
                "double"
            )
            + 0.0
        )
        finite = F.when(F.abs(spelled) < math.inf, spelled)
        if self._plain:
            return finite
        typed = self.raw.try_cast("double") + 0.0  # -0.0 becomes 0.0
        return F.when(self._kind == "float", F.when(~F.isnan(typed), typed)).otherwise(finite)

    @cached_property
    def double(self) -> Column:
        """The float64 nearest to the number, whatever it is spelled as; text that spells an infinite one is
        not left out."""
        text = F.when(self.text.rlike(_SPELLED), self.text)
        number = (
            text if self._plain else F.when(self._kind.isin("int", "uint", "float"), self.raw).otherwise(text)
        )
        return number.try_cast("double") + 0.0  # -0.0 becomes 0.0

    def is_number(self, wanted: Sequence[int | float]) -> Column:
        near = [float(n) for n in wanted if not _is_large(n)]
        large = [int(n) for n in wanted if _is_large(n)]
        longs = [n for n in large if n <= _LONG_MAX]
        uppers = [Decimal(n) for n in large if n > _LONG_MAX]
        reals = [float(n) for n in large if float(n) == n]
        parts = [self.double.isin(near)] if near else []
        parts += [self.long.isin(longs)] if longs else []
        parts += [self.upper.isin(uppers)] if uppers else []
        parts += [self.real.isin(reals)] if reals else []
        return _any(parts)

    def is_between(self, low: int | float | None, high: int | float | None) -> Column:
        if not _is_large(low) and not _is_large(high):
            if low is not None and high is not None:
                return self.double.between(float(low), float(high))
            beyond = self.double >= F.lit(low) if high is None else self.double <= F.lit(high)
            typed = self._kind.isin("int", "uint", "float")
            return beyond & ~F.isnan(self.double) & (typed | (F.abs(self.double) < math.inf))
        least = _LONG_MIN if low is None else max(math.ceil(low), _LONG_MIN)
        most = _ULONG_MAX if high is None else min(math.floor(high), _ULONG_MAX)
        parts = [_within(self.real, *_doubles(low, high))]
        if least <= min(most, _LONG_MAX):
            parts.append(self.long.between(least, min(most, _LONG_MAX)))
        if max(least, _LONG_MAX + 1) <= most:
            parts.append(self.upper.between(Decimal(max(least, _LONG_MAX + 1)), Decimal(most)))
        return _any(parts)


class _Integer(_Value):
    """A column of the event that is a number."""

    @cached_property
    def text(self) -> Column:
        return F.lit(None).cast("string")

    def is_text(self, wanted: Sequence[str]) -> Column:
        return F.lit(False)

    def is_truth(self, truth: bool) -> Column:
        return F.lit(False)

    @cached_property
    def double(self) -> Column:
        return self.raw.cast("double")

    @cached_property
    def long(self) -> Column:
        return self.raw

    @cached_property
    def upper(self) -> Column:
        return F.lit(None).cast("decimal(20,0)")

    @cached_property
    def real(self) -> Column:
        return F.lit(None).cast("double")


class _Compiler:
    """One call: each distinct test is one expression, however many conjunctions share it."""

    def __init__(self, column: Callable[[str], Column], context: ContextColumns | None) -> None:
        self._column, self._context = column, context
        self._values: dict[str, _Value] = {}
        self._done: dict[Test, Column] = {}

    def filter(self, f: Filter) -> Column:
        if size_of(f.tests) <= _LARGE:
            return _any([self._conjunction(terms) for terms in f.conjunctions])
        # What speaks of another row stays with Spark; alternatives that say the same of it are one filter for
        # the evaluator.
        groups: dict[Conjunction, list[Conjunction]] = {}
        for terms in f.conjunctions:
            beside = tuple(term for term in terms if isinstance(term.test, SameKey | KeepLast | OlderThan))
            groups.setdefault(beside, []).append(tuple(term for term in terms if term not in beside))
        return _any(
            [
                self._conjunction(beside) & function_of(Filter(rest), self._column)
                for beside, rest in groups.items()
            ]
        )

    def _conjunction(self, terms: Conjunction) -> Column:
        tests = [(self._test(term.test), term.negated) for term in terms]
        return _all([~test if negated else test for test, negated in tests])

    def _test(self, test: Test) -> Column:
        found = self._done.get(test)
        if found is None:
            found = self._done[test] = F.coalesce(self._compiled(test), F.lit(False))
        return found

    def _compiled(self, test: Test) -> Column:
        match test:
            case Exists(name):
                return self._value(name).exists
            case Among(name, values):
                return self._among(self._value(name), values)
            case Between(name, low, high):
                return self._value(name).is_between(low, high)
            case Regex(name, pattern):
                text, java = self._value(name).text, java_pattern(pattern)
                return re2_function(pattern)(text) if java is None else text.rlike(java)
            case UpTo(seq):
                return self._column("seq") <= min(seq, _LONG_MAX)
            case SameKey():
                return (F.octet_length(self._gc.key) > 0) & (self._column("key") == self._gc.key)
            case KeepLast(count):
                return self._column("seq") <= self._gc.seq - F.lit(min(count, _LONG_MAX))
            case OlderThan(age_us):
                return self._older(age_us)
            case _:
                assert_never(test)

    def _among(self, value: _Value, wanted: Sequence[Text | Number | Truth]) -> Column:
        texts = [w.value for w in wanted if isinstance(w, Text)]
        found = [w.value for w in wanted if isinstance(w, Number)]
        parts = [value.is_truth(w.value) for w in wanted if isinstance(w, Truth)]
        if texts:
            parts.append(value.is_text(texts))
        if found:
            parts.append(value.is_number(found))
        # A null part must not hide one that is true, and does not: null or true is true.
        return _any(parts)

    def _older(self, age_us: int) -> Column:
        time_us = F.unix_micros(self._column("time"))
        if age_us > _LONG_MAX:
            return time_us < self._gc.time_us.cast("decimal(38,0)") - F.lit(Decimal(age_us))
        return time_us < F.try_subtract(
            self._gc.time_us, F.lit(age_us)
        )  # null below the least: nothing is older

    @property
    def _gc(self) -> ContextColumns:
        if self._context is None:
            raise ContextError("the filter speaks of a garbage collection event, and there is none here")
        return self._context

    def _value(self, name: str) -> _Value:
        if name not in self._values:
            self._values[name] = self._found(name)
        return self._values[name]

    def _found(self, name: str) -> _Value:
        column = self._column
        match name:
            case "@key":
                key = column("key")
                return _Value(F.when(F.octet_length(key) > 0, F.hex(key)), F.lit("binary"))
            case "@seq":
                return _Integer(column("seq"))
            case "@time":
                return _Integer(F.unix_micros(column("time")))
            case "@size":
                return _Integer(F.octet_length(column("payload")).cast("bigint"))
            case "@kind":
                return _Value(column("kind"))
            case "@source":
                return _Value(column("source").getField("name"))
            case _:
                return _Value(column("attributes").getItem(name), column("types").getItem(name))


def _is_large(number: int | float | None) -> bool:
    """Whether other integers of 64 bits have the same nearest float64, so that it cannot be told from them as
    one.

    Below 2^53 every integer is a float64; beyond 64 bits there is none that could be taken for the number.
    """
    return isinstance(number, int) and abs(number) >= 1 << 53


def _doubles(low: int | float | None, high: int | float | None) -> tuple[float, float]:
    """The least double that is not below `low`, and the greatest that is not above `high`."""
    least = -math.inf if low is None else float(low)
    most = math.inf if high is None else float(high)
    if low is not None and least < low:
        least = math.nextafter(least, math.inf)
    if high is not None and most > high:
        most = math.nextafter(most, -math.inf)
    return least, most


def _within(real: Column, least: float, most: float) -> Column:
    return real.isNotNull() if (least, most) == (-math.inf, math.inf) else real.between(least, most)


def _any(parts: Sequence[Column]) -> Column:
    return _joined(parts, lambda left, right: left | right, F.lit(False))


def _all(parts: Sequence[Column]) -> Column:
    return _joined(parts, lambda left, right: left & right, F.lit(True))


def _joined(parts: Sequence[Column], join: Callable[[Column, Column], Column], none: Column) -> Column:
    """As a tree of little depth: Spark walks over it recursively, and a filter may have a thousand
    alternatives."""
    level = list(parts)
    while len(level) > 1:
        pairs = zip(level[0::2], level[1::2], strict=False)
        level = [join(left, right) for left, right in pairs] + ([level[-1]] if len(level) % 2 else [])
    return level[0] if level else none

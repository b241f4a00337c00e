"""Exact comparison of int64, uint64 and float64 in NumPy.

A number x becomes a pair: `hi`, the float64 nearest to x, and `lo`, the whole number x - hi. Rounding never
changes the order of two numbers, so pairs in lexicographic order are in the numbers' order, and two pairs are
equal exactly when the numbers are: 9007199254740993 and 9007199254740992 share `hi` and differ in `lo`.
Floats, and integers up to 2^53, have lo = 0; the `lo` column is left out (None) while all of it is 0, which
is nearly always. NaN marks "not a number" and compares false with everything.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.events.filters.numerals import NUMERAL

Array: TypeAlias = np.ndarray[Any, Any]

_EXACT = 1 << 53
_SPELLED = rf"\A{NUMERAL}\z"
_LEADING_ZEROS = r"\A(-?)0+([0-9])"
_SHORT = r"\A-?[0-9]{1,18}\z"
_LONG = r"\A(?:-[0-9]{19}|[0-9]{19,20})\z"
_INT64_LOWEST, _UINT64_HIGHEST = "-9223372036854775808", "18446744073709551615"


class Numbers(NamedTuple):
    hi: Array
    lo: Array | None = None

    def at(self, rows: Array) -> "Numbers":
        return Numbers(self.hi[rows], None if self.lo is None else self.lo[rows])

    def at_least(self, other: "Numbers") -> Array:
        """Elementwise self ≥ other; the other may be one number (arrays of length 1) for all."""
        if self.lo is None and other.lo is None:
            return np.asarray(self.hi >= other.hi)
        mine, theirs = _lo(self), _lo(other)
        return np.asarray((self.hi > other.hi) | ((self.hi == other.hi) & (mine >= theirs)))

    def equals(self, other: "Numbers") -> Array:
        same = self.hi == other.hi
        if self.lo is None and other.lo is None:
            return np.asarray(same)
        return np.asarray(same & (_lo(self) == _lo(other)))


def _lo(numbers: Numbers) -> Array:
    return np.zeros(len(numbers.hi)) if numbers.lo is None else numbers.lo


def join(parts: list[Numbers]) -> Numbers:
    hi = np.concatenate([part.hi for part in parts]) if parts else np.zeros(0)
    if all(part.lo is None for part in parts):
        return Numbers(hi)
    return Numbers(hi, np.concatenate([_lo(part) for part in parts]))


def sortable(*columns: Numbers) -> list[Array]:
    """Columns that sort, search and compare as the numbers do.

    Plain float64 where no column has a `lo`; else complex128, which NumPy orders by real, then imaginary
    part.
    """
    if all(column.lo is None for column in columns):
        return [column.hi for column in columns]
    return [np.stack([column.hi, _lo(column)], axis=1).view(np.complex128)[:, 0] for column in columns]


def of_python(values: list[int | float]) -> Numbers:
    """From numbers in their one form (see `numerals.normal`); infinities stand for open ends."""
    hi = np.array([float(v) for v in values], np.float64)
    lo = np.array([float(v - int(h)) if isinstance(v, int) else 0.0 for v, h in zip(values, hi, strict=True)])
    return Numbers(hi, lo if lo.any() else None)


def of_floats(values: Array) -> Numbers:
    return Numbers(values + 0.0)  # -0.0 becomes 0.0, which hashes and prints as it compares


def of_integers(values: Array) -> Numbers:
    """From int64 or uint64."""
    hi = values.astype(np.float64)
    if len(values) == 0 or (int(values.max()) <= _EXACT and int(values.min()) >= -_EXACT):
        return Numbers(hi)
    # The nearest float may be 2^63 or 2^64, one past what the type holds: subtract modulo 2^64, where they
    # are 2^63 and 0. The difference is at most 1024 either way, so as int64 it is exact.
    wrapped = np.where(hi >= 2.0**64, 0.0, hi)
    back = np.where(wrapped < 0, wrapped, 0.0).astype(np.int64).view(np.uint64)
    back += np.where(wrapped < 0, 0.0, wrapped).astype(np.uint64)
    lo = (values.view(np.uint64) - back).view(np.int64).astype(np.float64)
    return Numbers(hi, lo if lo.any() else None)


def of_texts(values: pa.StringArray) -> Numbers:
    """The numbers that texts spell; NaN for null and for text that spells none or one beyond float64."""
    spelled = _flags(pc.match_substring_regex(values, _SPELLED))
    rows = np.flatnonzero(spelled)
    hi = np.full(len(values), np.nan)
    if not len(rows):
        return Numbers(hi)
    texts = pc.replace_substring_regex(values.take(pa.array(rows)), _LEADING_ZEROS, r"\1\2")
    short = _flags(pc.match_substring_regex(texts, _SHORT))
    long = _flags(pc.match_substring_regex(texts, _LONG)) & ~short
    if long.any():
        size = pc.utf8_length(texts)
        negative = pc.starts_with(texts, "-")
        too_low = pc.and_(negative, pc.greater(texts, _INT64_LOWEST))
        too_high = pc.and_(pc.equal(size, 20), pc.greater(texts, _UINT64_HIGHEST))
        long &= ~_flags(pc.if_else(negative, too_low, too_high))
    negative_long = long & _flags(pc.starts_with(texts, "-"))
    lo = np.zeros(len(values))
    for mask, kind in ((short | negative_long, pa.int64()), (long & ~negative_long, pa.uint64())):
        if mask.any():
            whole = of_integers(texts.filter(pa.array(mask)).cast(kind).to_numpy(zero_copy_only=False))
            hi[rows[mask]] = whole.hi
            lo[rows[mask]] = _lo(whole)
    rest = ~(short | long)
    if rest.any():
        floats = texts.filter(pa.array(rest)).cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        hi[rows[rest]] = np.where(np.isinf(floats), np.nan, floats)
    return Numbers(hi, lo if lo.any() else None)


def _flags(values: pa.BooleanArray) -> Array:
    return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), bool)

"""Columns as JSON, a whole column at a time, without loss: `values_of` reads what `json_texts` wrote, given
the column's type.

| Arrow type | JSON |
|---|---|
| booleans, whole numbers of any width | as they are; above 2^53 too |
| floats | the shortest number that reads back the same; `"NaN"`, `"Infinity"`, `"-Infinity"` |
| decimals | text, with all digits of their scale and no exponent |
| text | text |
| binary | base64 |
| dates, times, timestamps | ISO 8601 (`2026-01-31T12:00:00.000000Z`); outside the years 1 to 9999 the bare number of their unit |
| durations | the number of their unit |

A column of JSON is text that has JSON in it, so that what the datastore wrote stays as it was. NULL is
`null`, and empty text is `""`.
"""  # noqa: E501

from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.decimal_texts import decimal_texts
from qanat.capture.digits import base64, quoted_base64
from qanat.capture.errors import MalformedLog

encode = msgspec.json.Encoder().encode
_SPECIAL = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"', "-0": "-0.0"}
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""0001-01-01T00:00:00 and 9999-12-31T23:59:59, in seconds since the epoch."""
_EDGE = 2**63 - 2 * 10**9
"""Of nanoseconds, which 64 bits hold from 1677 to 2262: texts of its last second are not read back."""


def json_texts(values: pa.Array) -> pa.Array:
    """Each value as JSON text; `null` where there is none."""
    texts = _texts(values)
    return pc.fill_null(texts, "null") if texts.null_count else texts


def bare_digits(values: pa.Array) -> pa.Array | None:
    """Binary as JSON writes it, without the quotes; None where it is no such column, or values are
    missing."""
    kind = values.type
    whole = pa.types.is_binary(kind) and not values.null_count
    return base64(values).cast(pa.string()) if whole else None


def bare_texts(values: pa.Array) -> pa.Array:
    """Decimals and moments as JSON writes them, without the quotes; null where there is none."""
    return pc.utf8_trim(_texts(values), '"')


def _texts(values: pa.Array) -> pa.Array:
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        if len(values.dictionary) > len(values):
            return _texts(values.dictionary_decode())
        return _texts(values.dictionary).take(values.indices)
    if types.is_boolean(kind) or types.is_integer(kind):
        return values.cast(pa.string())
    if types.is_floating(kind):
        return _floats(values)
    if types.is_string(kind) or types.is_large_string(kind):
        return _strings(values.cast(pa.string()))
    if types.is_decimal(kind):
        return _quoted(decimal_texts(values))
    if types.is_temporal(kind):
        return _temporal(values)
    if types.is_null(kind):
        return values.cast(pa.string())
    return quoted_base64(values).cast(pa.string())


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _strings(values: pa.Array) -> pa.Array:
    """Most text needs no escapes; what does goes through an encoder."""
    odd = np.asarray(pc.fill_null(pc.match_substring_regex(values, '["\\\\\\x00-\\x1f]'), False))
    if not odd.any():
        return _quoted(values)
    escaped = pa.array(list(map(encode, values.filter(pa.array(odd)).to_pylist())), pa.binary()).cast(
        pa.string()
    )
    return pc.replace_with_mask(_quoted(values), pa.array(odd), escaped)


def _floats(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    for text, written in _SPECIAL.items():
        hits = pc.equal(texts, text)
        if pc.any(hits).as_py():
            texts = pc.if_else(hits, written, texts)
    return texts


def iso_texts(values: pa.Array) -> pa.Array:
    """Dates, times and timestamps as ISO 8601; raises `pa.ArrowInvalid` outside the years that it has."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        if kind.tz not in (None, "UTC"):
            values = values.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.replace_substring(values.cast(pa.string()), " ", "T", max_replacements=1)
    return values.cast(pa.string())


def _temporal(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_time(kind):
        return _quoted(iso_texts(values))
    numbers = values.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    if pa.types.is_date32(kind):
        low, high = _FIRST_S // 86400, (_LAST_S + 1) // 86400
    else:
        unit = _UNITS["ms" if pa.types.is_date64(kind) else kind.unit]
        low, high = max(_FIRST_S * unit, -_EDGE), min((_LAST_S + 1) * unit, _EDGE)
    inside = pc.and_(pc.greater_equal(numbers, low), pc.less(numbers, high))
    if pc.all(inside, min_count=0).as_py():
        return _quoted(iso_texts(values))
    safe = pc.if_else(inside, numbers, 0).cast(numbers.type).view(kind)
    return pc.if_else(inside, _quoted(iso_texts(safe)), numbers.cast(pa.string()))


def values_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column from decoded JSON; `MalformedLog` if it is not what `json_texts` writes for this type."""
    try:
        return _values_of(values, kind)
    except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
        raise MalformedLog(f"a value of an event does not fit its column of type {kind}: {error}") from error


def _values_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_floating(kind):
        return pa.array(_each(values, _float), kind)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.array(_each(values, partial(b64decode, validate=True)), kind)
    if types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    if types.is_duration(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if types.is_temporal(kind):
        return _moments(values, kind)
    return pa.array(values, kind)


def _each(values: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _float(value: Any) -> float:
    return _FLOATS[value] if isinstance(value, str) else float(value)


def _moments(values: list[Any], kind: pa.DataType) -> pa.Array:
    texts = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
    if pa.types.is_timestamp(kind):
        read = texts.cast(pa.timestamp(kind.unit, None if kind.tz is None else "UTC")).cast(kind)
    elif pa.types.is_time(kind):
        days = pc.binary_join_element_wise("1970-01-01", texts, "T")
        read = days.cast(pa.timestamp(kind.unit)).cast(kind)
    else:
        read = texts.cast(pa.date32()).cast(kind)
    whole = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
    bare = pa.array([value if isinstance(value, int) else None for value in values], whole)
    return read if bare.null_count == len(bare) else pc.coalesce(read.view(whole), bare).view(kind)

"""Lines of JSON objects as columns: the fields are the columns, in the order of their first appearance.

| values of a field | column |
|---|---|
| true, false | boolean |
| whole numbers | int64, or uint64 if one is above 2^63 - 1 |
| numbers with a point or an exponent among them | float64 |
| text | text; dates are text in JSON |
| objects, lists, values of different kinds, whole numbers that neither 64 bits nor a float64 hold | text that has JSON in it, as it stood in the file |

A field that a line does not have is null there. (Arrow's own reader of JSON is faster, but takes text for
dates, rounds large numbers, and crashes the process on some objects that have a name twice.)
"""  # noqa: E501

from collections.abc import Sequence
from itertools import chain
from operator import methodcaller
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from qanat.capture.errors import MalformedLog

JSON = "json"
_EXACT = 2**53
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_line = msgspec.json.Decoder(dict[str, Any]).decode
_is_number = {int, float}


class JsonColumn(NamedTuple):
    name: str
    declared: str
    values: pa.Array


class NotJson(MalformedLog):
    """`row`: which of the lines it is."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row


def is_object(line: bytes) -> bool:
    try:
        _decode_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def as_text(lines: pa.Array) -> pa.Array:
    """The lines themselves; `NotJson` for the first that is not even text."""
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        row = next(row for row, line in enumerate(lines.to_pylist()) if not _is_utf8(line))
        raise NotJson(f"{lines[row].as_py()[:60]!r} is not UTF-8", row) from None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_columns(lines: pa.Array) -> list[JsonColumn]:
    """The columns of some lines; raises `NotJson` for the first that is no object."""
    count = len(lines)
    if not count:
        return []
    texts = lines.to_pylist()
    try:
        rows = list(map(_decode_line, texts))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        row = next((row for row, text in enumerate(texts) if not is_object(text)), 0)
        raise NotJson(f"{texts[row][:60]!r} is no JSON object", row) from None
    raw: list[dict[str, msgspec.Raw]] | None = None
    columns = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = list(map(methodcaller("get", name), rows))
        column = _column(name, values)
        if column is None:
            raw = list(map(_decode_raw, texts)) if raw is None else raw
            column = JsonColumn(name, JSON, _raw_texts([row.get(name) for row in raw]))
        columns.append(column)
    if not columns:
        columns = [JsonColumn("value", JSON, lines.cast(pa.string()))]
    return columns


def _column(name: str, values: list[Any]) -> JsonColumn | None:
    """A column of one plain type, or None."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return JsonColumn(name, "null", pa.nulls(len(values)))
    if kinds == {int}:
        there = _there(values)
        low, high = min(there), max(there)
        if low >= -(2**63) and high < 2**63:
            return JsonColumn(name, "integer", pa.array(values, pa.int64()))
        if low >= 0 and high < 2**64:
            return JsonColumn(name, "integer", pa.array(values, pa.uint64()))
        return None
    if kinds <= _is_number:
        largest = max(map(abs, _there(values)))
        return None if not largest < _EXACT else JsonColumn(name, "number", pa.array(values, pa.float64()))
    if kinds == {bool}:
        return JsonColumn(name, "boolean", pa.array(values, pa.bool_()))
    return JsonColumn(name, "string", pa.array(values, pa.string())) if kinds == {str} else None


def _there(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None] if None in values else values


def _raw_texts(values: Sequence[msgspec.Raw | None]) -> pa.Array:
    texts = [None if value is None else bytes(value) for value in values]
    nulls = np.array([text is None or text == b"null" for text in texts])
    return pa.array(texts, pa.binary(), mask=nulls).cast(pa.string())

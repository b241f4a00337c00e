"""Lines of JSON objects as columns: the fields are the columns, in the order of their first appearance.

| values of a field | column |
|---|---|
| true, false | boolean |
| whole numbers | int64, or uint64 if one is above 2^63 - 1 |
| numbers with a point or an exponent among them | float64 |
| text | text; dates are text in JSON |
| objects, lists, values of different kinds, whole numbers that neither 64 bits nor a float64 hold | text that has JSON in it, as it stood in the file |

A field that a line does not have is null there. Most batches are Arrow's to parse; what it cannot hold exactly is done again, slower.
"""

import contextlib
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from qanat.capture.errors import MalformedLog

JSON = "json"
_EXACT = 2**53
_decode_values = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_raw = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
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
    try:
        return _by_arrow(lines) or _by_value(lines)
    except UnicodeDecodeError:  # in the name of a field
        return _by_value(lines)


def _by_arrow(lines: pa.Array) -> list[JsonColumn] | None:
    text = b"\n".join(lines.to_pylist())
    if b"{}" in text or b"N" in text:  # objects without fields are not counted by Arrow; NaN is not JSON
        return None
    table = _table(text, None)
    if table is not None and any(pa.types.is_timestamp(kind) for kind in table.schema.types):
        fields = [
            pa.field(f.name, pa.string() if pa.types.is_timestamp(f.type) else f.type) for f in table.schema
        ]
        table = _table(text, pa.schema(fields))
    if table is None or table.num_rows != len(lines):
        return None
    columns = []
    for field, chunks in zip(table.schema, table.columns, strict=True):
        declared = _DECLARED.get(field.type)
        if declared is None or not _is_text(field.name):
            return None
        values = pa.concat_arrays(chunks.chunks) if chunks.num_chunks != 1 else chunks.chunk(0)
        if pa.types.is_floating(field.type) and _may_be_rounded(values):
            return None
        if pa.types.is_string(field.type):
            try:
                values.validate(full=True)
            except pa.ArrowInvalid:
                return None
        columns.append(JsonColumn(field.name, declared, values))
    return columns


_DECLARED = {
    pa.bool_(): "boolean",
    pa.int64(): "integer",
    pa.float64(): "number",
    pa.string(): "string",
    pa.null(): "null",
}


def _table(text: bytes, schema: pa.Schema | None) -> pa.Table | None:
    options = pa.json.ParseOptions(explicit_schema=schema)
    reading = pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    try:
        return pa.json.read_json(io.BytesIO(text), read_options=reading, parse_options=options)
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def _is_text(name: str) -> bool:
    return "\x00" not in name and name.isprintable()


def _may_be_rounded(values: pa.Array) -> bool:
    """Whether whole numbers may be among them that a float does not hold."""
    largest = pc.max(pc.abs(values)).as_py()
    return largest is not None and not largest < _EXACT


def _by_value(lines: pa.Array) -> list[JsonColumn]:
    texts = lines.to_pylist()
    whole = b"[" + b",".join(texts) + b"]"
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        rows = _decode_values(whole)
    if len(rows) != len(texts):
        row = next((row for row, text in enumerate(texts) if not is_object(text)), 0)
        raise NotJson(f"{texts[row][:60]!r} is no JSON object", row)
    raw: list[dict[str, msgspec.Raw]] | None = None
    columns = []
    for name in {name: None for row in rows for name in row}:
        values = [row.get(name) for row in rows]
        column = _column(name, values)
        if column is None:
            raw = _decode_raw(whole) if raw is None else raw
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
        low, high = (f(value for value in values if value is not None) for f in (min, max))
        if low >= -(2**63) and high < 2**63:
            return JsonColumn(name, "integer", pa.array(values, pa.int64()))
        if low >= 0 and high < 2**64:
            return JsonColumn(name, "integer", pa.array(values, pa.uint64()))
        return None
    if kinds <= _is_number:
        largest = max(abs(value) for value in values if value is not None)
        return None if not largest < _EXACT else JsonColumn(name, "number", pa.array(values, pa.float64()))
    if kinds == {bool}:
        return JsonColumn(name, "boolean", pa.array(values, pa.bool_()))
    return JsonColumn(name, "string", pa.array(values, pa.string())) if kinds == {str} else None


def _raw_texts(values: Sequence[msgspec.Raw | None]) -> pa.Array:
    texts = [None if value is None else bytes(value) for value in values]
    nulls = np.array([text is None or text == b"null" for text in texts])
    return pa.array(texts, pa.binary(), mask=nulls).cast(pa.string())

"""Rows of any query as what a stream takes: payload, key, attributes, and whether an event collects others.

| column | becomes |
|---|---|
| `payload` | the payload, binary or text; it must be there |
| `key` | the key, binary or text; null is none |
| `attributes`, `types` | attributes, as the source has them |
| `kind` | `data` or `gc`; a tombstone cannot be published |
| `stream` | where the row goes, unless the option `stream` says it |
| `seq`, `time`, `source` | nothing: they are of the stream that the row was read from, and it gets others where it goes |
| any other | an attribute of its name, if it is text, a number, a boolean, binary, or one of the following, which become text |

| type | text |
|---|---|
| DECIMAL | all digits of its scale, never an exponent: `12.50`, `0.0000001` |
| DATE | `2026-01-31` |
| TIMESTAMP | `2026-01-31T12:00:00.000000Z`, in UTC |
| TIMESTAMP_NTZ | `2026-01-31T12:00:00.000000` |
| TIME | `09:30:00.000000` |

A moment outside the years 1 to 9999 is the bare number of its unit since 1970: days of a DATE, microseconds
of the others.
"""  # noqa: E501

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.json_text import bare_texts
from qanat.events.batch import Kind
from qanat.events.encode import Array
from qanat.events.errors import LocalError, MalformedBatch
from qanat.pipeline.columns import ARROW, Events, events_from
from qanat.pipeline.source.options import BadOption

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

_LEFT_OUT = ("seq", "time", "source", "stream")


class NotPublishable(LocalError):
    """A row that no stream can take."""


def check_schema(schema: "StructType", stream: str) -> None:
    """Whether rows of this form can be published; said before the first of them is there."""
    names = schema.fieldNames()
    if "payload" not in names:
        raise BadOption(
            f"rows to publish have a column 'payload', binary or text; these have {', '.join(names)}"
        )
    if not stream and "stream" not in names:
        raise BadOption("say where the rows go: by the option 'stream', or by a column of that name")
    for field in schema:
        _check(field)


def _check(field: "StructField") -> None:
    """Whether a column can be published, by its name and type; raises `BadOption` with what to do instead."""
    name, kind = field.name, _arrow_type(field)
    text = kind is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind))
    binary = kind is not None and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    told = f"column {name!r} of type {field.dataType.simpleString()}"
    if name in ("payload", "key"):
        if not text and not binary:
            raise BadOption(
                f"{told} cannot be published: {name} is binary or text, so write {_instead(field)}"
            )
    elif name in ("attributes", "types"):
        if kind is None or not kind.equals(ARROW.field(name).type):
            raise BadOption(
                f"{told} cannot be published: {name} is map<string,string>; give the column another name, or"
                " cast it"
            )
    elif name in ("kind", "stream"):
        if not text:
            raise BadOption(
                f"{told} cannot be published: {name} is text, so write cast({name} as string) {name}"
            )
    elif name not in _LEFT_OUT and not (text or binary or (kind is not None and _is_simple(kind))):
        raise BadOption(f"{told} cannot be published: write {_instead(field)}, or drop it")


def _arrow_type(field: "StructField") -> pa.DataType | None:
    """None if Arrow has no such type."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        return to_arrow_type(field.dataType, timezone="UTC")
    except PySparkException:
        return None


def _is_simple(kind: pa.DataType) -> bool:
    types = pa.types
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(numeric or types.is_boolean(kind) or _is_moment(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def _instead(field: "StructField") -> str:
    name = field.name if field.name.isidentifier() else f"`{field.name}`"
    nested = field.dataType.typeName() in ("array", "map", "struct", "variant")
    return f"to_json({name}) {name}" if nested else f"cast({name} as string) {name}"


def publishable(rows: pa.RecordBatch, stream: str) -> Iterator[tuple[str, Events]]:
    """The rows of each stream, in their order; the loop is over streams."""
    if stream:
        yield stream, _events(rows)
        return
    names = rows.column("stream")
    if names.null_count:
        raise NotPublishable("the column 'stream' is null in some row: every row must say where it goes")
    coded = names.dictionary_encode()
    found, codes = coded.dictionary.to_pylist(), np.asarray(coded.indices)
    for code, name in enumerate(found):
        if not name:
            raise NotPublishable("the column 'stream' is empty in some row: every row must say where it goes")
        yield name, _events(rows if len(found) == 1 else rows.filter(pa.array(codes == code)))


def _events(rows: pa.RecordBatch) -> Events:
    events = events_from(
        rows.select([name for name in rows.schema.names if name in ARROW.names and name not in _LEFT_OUT])
    )
    if events.kinds is not None and (events.kinds == Kind.TOMBSTONE).any():
        raise NotPublishable(
            "a tombstone cannot be published, it comes from collecting events: leave such rows out, with"
            " where(\"kind <> 'tombstone'\")"
        )
    more = [name for name in rows.schema.names if name not in ARROW.names]
    if not more:
        return events
    attributes = {name: list(arrays) for name, arrays in events.attributes.items()}
    for name in more:
        attributes[name] = _merged(name, attributes.get(name, []), _plain(rows.column(name)))
    return replace(events, attributes=attributes)


def _plain(column: pa.Array) -> pa.Array:
    """As one of the types that an attribute may have."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_time(kind):
        column = column.cast(pa.time64("us"), safe=False)
    if pa.types.is_decimal(kind) or _is_moment(kind):
        return bare_texts(column)
    return column.cast(pa.binary()) if pa.types.is_large_binary(kind) else column


def _merged(name: str, given: list[pa.Array], column: pa.Array) -> list[pa.Array]:
    for array in given:
        if pc.any(pc.and_(array.is_valid(), column.is_valid())).as_py():
            raise MalformedBatch(
                f"a row has the attribute {name!r} twice: in the map 'attributes', and as a column"
            )
    return [*given, column]


def kinds_of(events: Events, i: int, j: int) -> Array | None:
    return None if events.kinds is None else events.kinds[i:j]

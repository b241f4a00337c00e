"""Rows of any query as what a stream takes: payload, key, attributes, and whether an event collects others.

| column | becomes |
|---|---|
| `payload` | the payload, binary or text; it must be there |
| `key` | the key, binary or text; null is none |
| `attributes`, `types` | attributes, as the source has them |
| `kind` | `data` or `gc`; a tombstone cannot be published |
| `stream` | where the row goes, unless the option `stream` says it |
| `seq`, `time`, `source` | nothing: they are of the stream that the row was read from, and it gets others where it goes |
| any other | an attribute of its name, if it is text, a number, a boolean or binary |
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.events.batch import Kind
from qanat.events.encode import Array
from qanat.events.errors import LocalError, MalformedBatch
from qanat.pipeline.columns import ARROW, Events, events_from
from qanat.pipeline.stream_options import BadOption

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LEFT_OUT = ("seq", "time", "source", "stream")


class NotPublishable(LocalError):
    """A row that no stream can take."""


def check_schema(schema: "StructType", stream: str) -> None:
    """Whether rows of this form can be published; said before the first of them is there."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")
    if "payload" not in arrow.names:
        raise BadOption(
            f"rows to publish have a column 'payload', binary or text; these have {', '.join(arrow.names)}"
        )
    if not stream and "stream" not in arrow.names:
        raise BadOption("say where the rows go: by the option 'stream', or by a column of that name")
    for field in arrow:
        kind = field.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if field.name in ("payload", "key"):
            fits = text or binary
        elif field.name in ("attributes", "types"):
            fits = kind.equals(ARROW.field(field.name).type)
        elif field.name in ("kind", "stream"):
            fits = text
        else:
            simple = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            fits = field.name in _LEFT_OUT or text or binary or simple
        if not fits:
            raise BadOption(
                f"column {field.name!r} of type {kind} cannot be published: cast it to text, a number, a boolean or binary, or drop it"
            )


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
            "a tombstone cannot be published, it comes from collecting events: leave such rows out, with where(\"kind <> 'tombstone'\")"
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

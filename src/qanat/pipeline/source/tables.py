"""Tables of Spark's catalog: `CREATE TABLE t USING qanat OPTIONS (url '…', stream 'orders')`.

Spark asks for the columns with these options once, when the table is made, and stores the columns; whoever
reads or writes the table later gets the columns and no options. So the options are stored with the first
column, as its metadata, from where `options_of` takes them. That Spark makes a table is seen by the option
`provider`, which it then puts beside those that were given.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from qanat.pipeline.source.kafka_options import translated
from qanat.pipeline.source.options import BadOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_METADATA = "qanat"
_GIVEN = "option."
"""Before the name of each option of `OPTIONS (…)`; what has not this is of the table."""
_URL = "qanat://"


def is_made(options: Mapping[str, str]) -> bool:
    """Whether Spark asks for the columns of a table that it makes."""
    return any(name.lower() == "provider" for name in options)


def options_of(options: Mapping[str, str], schema: "StructType | None" = None) -> dict[str, str]:
    """What was given, in lower case: beside what a query says, what its table was made with. Raises
    `BadOption`."""
    given = {name.lower(): value for name, value in options.items()}
    if "provider" in given:
        path = {"path": given["path"]} if "path" in given else {}
        given = path | {
            name.removeprefix(_GIVEN): value for name, value in given.items() if name.startswith(_GIVEN)
        }
    given, kept = _located(translated(given)), _kept(schema)
    if {"stream", "pattern"} & given.keys():
        kept = {name: value for name, value in kept.items() if name not in ("stream", "pattern")}
    return kept | given


def with_options(columns: "pa.Schema", options: Mapping[str, str]) -> "StructType":
    """The columns of a table that is made, with what it is made with."""
    from pyspark.sql.pandas.types import from_arrow_schema

    struct = from_arrow_schema(columns)
    struct.fields[0].metadata = {_METADATA: json.dumps(dict(options), sort_keys=True)}
    return struct


def is_of_a_table(schema: "StructType") -> bool:
    """Whether the options were taken from a table."""
    return bool(_kept(schema))


def _kept(schema: "StructType | None") -> dict[str, str]:
    for field in schema.fields if schema is not None else ():
        if text := field.metadata.get(_METADATA):
            return dict(json.loads(text))
    return {}


def _located(given: dict[str, str]) -> dict[str, str]:
    """`load("orders")` names a stream, and `load("qanat://host:7411/orders")` its server as well."""
    if "paths" in given:
        raise BadOption(
            "load() takes the streams in one text, with commas between them: load('orders,prices')"
        )
    path = given.pop("path", "").strip()
    if not path:
        return given
    if "changes" in given:
        raise BadOption(f"option 'changes' names the log already: leave {path!r} out of load()")
    for name in ("stream", "pattern"):
        if name in given:
            raise BadOption(
                f"{path!r} and the option {name!r} both say which stream is meant: give one of them"
            )
    if path.lower().startswith(_URL):
        servers, _, stream = path[len(_URL) :].partition("/")
        if not servers or not stream:
            raise BadOption(
                f"{path!r} does not say which stream of which server: write it as {_URL}host:7411/orders"
            )
        if "url" in given:
            raise BadOption(f"{path!r} and the option 'url' both name a server: give one of them")
        return given | {"url": _URL + servers, "stream": stream}
    if "://" in path or path.startswith(("/", "file:")):
        raise BadOption(
            f"{path!r} is no stream: the format qanat reads and writes streams by their names, as"
            " load('orders')"
        )
    return given | {"stream": path}

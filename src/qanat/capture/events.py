"""Updates as events of a stream, and back.

An event's payload is the update as one line of JSON (`envelope`), its key is the table and the primary key,
and its source position is the update's own, so that a stream drops what it has. What filters look at stands
in attributes: `#S`, `#op`, `#db`, `#schema`, `#table`, `#tx` and the columns of the row as it is after the
update, or was before a deletion. `#columns` describes the table, once per batch and version, so that
`updates_of` rebuilds the update with its types.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.envelope import lines, words
from qanat.capture.gather import gather
from qanat.capture.json_text import bare_texts, encode
from qanat.capture.sharding import SHARD, Sharding, has_row, image, key_column, shards
from qanat.capture.table import Table
from qanat.capture.types import type_text
from qanat.capture.updates import Run, Updates
from qanat.events.batch import Batch, stream_id

ATTRIBUTE_BYTES = 1024
"""Text and binary of more bytes are in the payload alone: they are not what one filters by, and would be
stored twice."""
COLUMNS = "#columns"

Attributes = dict[str, list[pa.Array]]


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length, as `publish_at` takes them."""

    payloads: pa.Array
    keys: pa.Array
    attributes: Attributes
    sequences: npt.NDArray[np.uint64]
    indexes: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.payloads)


def events_of(
    updates: Updates,
    sharding: Sharding = Sharding(),  # noqa: B008
    columns: Collection[str] | None = None,
) -> Events:
    """The events of some updates, in their order. Of the rows' columns these are attributes; None: all."""
    runs, order = gather(updates)
    if not runs:
        none = pa.array([], pa.binary())
        return Events(none, none, {}, np.zeros(0, np.uint64), np.zeros(0, np.uint32))
    # Updates of one table are in the order of the log as they are.
    take = None if len(runs) == 1 else pa.array(order)
    keyed = [key_column(run) for run in runs]
    sharded = [shards(run, sharding, keys) for run, keys in zip(runs, keyed, strict=True)]
    payloads = [lines(run, shard) for run, shard in zip(runs, sharded, strict=True)]
    paired = [
        pc.binary_join_element_wise(f"{run.table.path}/".encode(), keys, b"")
        for run, keys in zip(runs, keyed, strict=True)
    ]
    named = [_columns(run, shard, columns) for run, shard in zip(runs, sharded, strict=True)]
    attributes = _taken(named, [len(run) for run in runs], take)
    which = np.repeat(np.arange(len(runs)), [len(run) for run in runs])[order]
    for name, values in (
        ("#db", [run.table.database for run in runs]),
        ("#schema", [run.table.schema for run in runs]),
        ("#table", [run.table.name for run in runs]),
        (COLUMNS, [describe(run.table) for run in runs]),
    ):
        attributes[name] = [_labels(values, which)]
    return Events(
        _ordered(payloads, take).cast(pa.binary()),
        _ordered(paired, take),
        attributes,
        np.concatenate([run.sequences for run in runs])[order],
        np.concatenate([run.indexes for run in runs])[order],
    )


def _ordered(parts: Sequence[pa.Array], take: pa.Array | None) -> pa.Array:
    """Parts of all runs as one column, in the order of the log."""
    return parts[0] if take is None else pa.concat_arrays(parts).take(take)


def batch_of(stream: str, source: str, updates: Updates, sharding: Sharding = Sharding()) -> Batch:  # noqa: B008
    """The updates as one batch, as a stream would have it, not yet numbered; what filters are evaluated
    on."""
    events = events_of(updates, sharding)
    return Batch.build(
        stream_id(stream),
        events.payloads,
        keys=events.keys,
        attributes=events.attributes or None,
        source=source,
        positions=(events.sequences, events.indexes),
    )


def describe(table: Table) -> str:
    """`[[name, type, as declared, part of the key], …]`"""
    listed = [[column.name, type_text(column.type), column.declared, column.key] for column in table.columns]
    return encode(listed).decode()


def _columns(run: Run, shard: pa.Array | None, wanted: Collection[str] | None = None) -> dict[str, pa.Array]:
    """Attributes of one run by name; text and decimals as text, whole numbers as 64 bits."""
    found = {"#op": words(run), "#tx": run.transactions}
    if shard is not None:
        found[SHARD] = _attribute(shard)
    rowless = ~has_row(run)
    for column in run.table.columns:
        if wanted is not None and column.name not in wanted:
            continue
        values = None if column.name.startswith("#") else image(run, column.name)
        if values is not None and values.null_count < len(values):
            if rowless.any():
                values = pc.if_else(pa.array(rowless), pa.scalar(None, values.type), values)
            found[column.name] = _attribute(values)
    return found


def _attribute(values: pa.Array) -> pa.Array:
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return _attribute(values.dictionary_decode())
    if types.is_integer(kind):
        return values if types.is_uint64(kind) else values.cast(pa.int64())
    if types.is_floating(kind):
        return values.cast(pa.float64())
    if types.is_boolean(kind) or types.is_null(kind):
        return values.cast(pa.bool_())
    if types.is_duration(kind):
        return values.cast(pa.int64())
    if types.is_decimal(kind) or types.is_temporal(kind):
        return bare_texts(values)
    text = types.is_string(kind) or types.is_large_string(kind)
    short = pc.less_equal(pc.binary_length(values), ATTRIBUTE_BYTES)
    if not pc.all(short, min_count=0).as_py():
        values = pc.if_else(short, values, pa.scalar(None, kind))
    return values.cast(pa.string() if text else pa.binary())


def _taken(
    columns: Sequence[dict[str, pa.Array]], counts: Sequence[int], take: pa.Array | None
) -> Attributes:
    """Attributes of all runs, in the order of the log: a name may have one column for each type that it has
    somewhere."""
    if take is not None:
        columns = [{name: _plain(values) for name, values in named.items()} for named in columns]
    found: dict[tuple[str, pa.DataType], None] = {}
    for named in columns:
        for name, values in named.items():
            if values.null_count < len(values):
                found.setdefault((name, values.type))
    attributes: Attributes = {}
    for name, kind in found:
        parts = [
            named[name] if name in named and named[name].type == kind else pa.nulls(count, kind)
            for named, count in zip(columns, counts, strict=True)
        ]
        attributes.setdefault(name, []).append(_ordered(parts, take))
    return attributes


def _plain(values: pa.Array) -> pa.Array:
    """Runs have dictionaries of their own."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


@lru_cache(4)
def _zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.int32))


def _labels(values: Sequence[str], which: npt.NDArray[np.int64]) -> pa.Array:
    """A text per run as an attribute of its rows, absent where it is empty."""
    codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    if len(codes) == 1 and "" not in codes:
        return pa.DictionaryArray.from_arrays(_zeros(len(which)), pa.array(list(codes), pa.string()))
    by_run = np.array([codes[value] for value in values], np.int32)[which]
    empty = None if "" not in codes else by_run == codes[""]
    return pa.DictionaryArray.from_arrays(pa.array(by_run, mask=empty), pa.array(list(codes), pa.string()))

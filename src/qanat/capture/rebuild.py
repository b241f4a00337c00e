"""Events back into updates: what `events` made of them, with their types."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.envelope import WORDS
from qanat.capture.errors import MalformedLog
from qanat.capture.events import COLUMNS
from qanat.capture.json_text import values_of
from qanat.capture.table import Column, Table
from qanat.capture.types import type_of_text
from qanat.capture.updates import Run, Updates
from qanat.events.batch import Batch, Kind

_OPS = {word: op for op, word in WORDS.items()}
_TABLES = 256
"""Versions of tables that are kept ready."""

Image = dict[str, Any] | None


class Line(msgspec.Struct, gc=False):
    """An update as it stands in an event's payload."""

    position: str
    op: str
    database: str
    table: str
    transaction: str
    time: str
    before: Image
    after: Image
    schema: str = ""
    unchanged: list[str] = []


class _Columns(NamedTuple):
    name: str
    type: str
    declared: str
    key: bool


_decode_lines = msgspec.json.Decoder(list[Line]).decode
_decode_columns = msgspec.json.Decoder(list[_Columns]).decode


def is_update(batch: Batch) -> npt.NDArray[np.bool_]:
    """Which events are updates that `updates_of` can rebuild."""
    data = np.ones(batch.count, bool) if batch.kinds is None else batch.kinds == Kind.DATA
    described = np.zeros(batch.count, bool)
    for values in batch.attributes().get(COLUMNS, []):
        described |= np.asarray(values.is_valid())
    return data & described


def updates_of(batch: Batch) -> Updates:
    """The updates of a batch, with the positions that they have in their own log. Raises `MalformedLog` if it
    has events that are none."""
    if not batch.count:
        return Updates()
    if not is_update(batch).all():
        raise MalformedLog(
            "a batch has events that are no updates of a table: they have no attribute #columns"
        )
    described = _descriptions(batch)
    try:
        found = _decode_lines(b"[" + b",".join(batch.payloads().to_pylist()) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedLog(f"an event's payload is no update: {error}") from error
    if len(found) != batch.count:
        raise MalformedLog(f"{batch.count} events have {len(found)} updates in them")
    rows = zip(described, found, strict=True)
    runs = []
    for (columns, database, schema, name), members in groupby(
        rows, key=lambda row: (row[0], row[1].database, row[1].schema, row[1].table)
    ):
        runs.append(_run(_table(database, schema, name, columns), [line for _, line in members]))
    return Updates(runs)


def _descriptions(batch: Batch) -> list[str]:
    texts = batch.attributes()[COLUMNS]
    whole = texts[0].dictionary_decode() if pa.types.is_dictionary(texts[0].type) else texts[0]
    if not pa.types.is_string(whole.type) or whole.null_count:
        raise MalformedLog("an attribute #columns is not text")
    described: list[str] = whole.to_pylist()
    return described


@lru_cache(_TABLES)
def _table(database: str, schema: str, name: str, columns: str) -> Table:
    try:
        listed = _decode_columns(columns)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedLog(f"an attribute #columns describes no table: {error}") from error
    if len({column.name for column in listed}) < len(listed):
        raise MalformedLog("an attribute #columns names a column twice")
    return Table(
        database, schema, name, tuple(Column(c.name, type_of_text(c.type), c.declared, c.key) for c in listed)
    )


def _run(table: Table, rows: list[Line]) -> Run:
    try:
        sequences, indexes = _positions([line.position for line in rows])
        ops = np.array([_OPS[line.op] for line in rows], np.uint8)
        times = pa.array([line.time for line in rows], pa.string()).cast(pa.timestamp("us", "UTC"))
    except (ValueError, KeyError, OverflowError, pa.ArrowException) as error:
        raise MalformedLog(f"an event's payload is no update: {error}") from error
    befores, afters = [line.before for line in rows], [line.after for line in rows]
    width = len(table.columns)
    partial = np.array([before is not None and len(before) < width for before in befores], bool)
    unchanged = {
        name: np.array([name in line.unchanged for line in rows], bool)
        for line in rows
        for name in line.unchanged
    }
    return Run(
        table,
        ops,
        sequences,
        indexes,
        times.view(pa.int64()).to_numpy(zero_copy_only=False),
        pa.array([line.transaction for line in rows], pa.string()).dictionary_encode(),
        _image(table, afters),
        _image(table, befores),
        np.array([after is not None for after in afters], bool),
        np.array([before is not None for before in befores], bool),
        unchanged or None,
        partial if partial.any() else None,
    )


def _positions(texts: list[str]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """`sequence:index` of each row; raises what Arrow raises if one is none."""
    parts = pc.split_pattern(pa.array(texts, pa.string()), ":")
    if not pc.all(pc.equal(pc.list_value_length(parts), 2)).as_py():
        raise ValueError("a position is not sequence:index")
    words = parts.flatten()
    return (
        words[0::2].cast(pa.uint64()).to_numpy(zero_copy_only=False),
        words[1::2].cast(pa.uint32()).to_numpy(zero_copy_only=False),
    )


def _image(table: Table, rows: Sequence[Image]) -> pa.RecordBatch | None:
    if not any(row is not None for row in rows):
        return None
    columns = [
        values_of([None if row is None else row.get(column.name) for row in rows], column.type)
        for column in table.columns
    ]
    if not columns:
        return pa.RecordBatch.from_pylist([{}] * len(rows), table.arrow)
    return pa.RecordBatch.from_arrays(columns, schema=table.arrow)

"""Entries as runs of updates: binary columns gathered from the log's bytes in bulk."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.rocksdb.decode_batches import ENTITY, FAMILY_ENTITY, OPS, Entries
from qanat.capture.rocksdb.decode_records import Ints
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run
from qanat.events.position import Position

Names = Callable[[int], str]
_KEY = Column("key", pa.binary(), "key", key=True)
VALUES = (_KEY, Column("value", pa.binary(), "value"))
ENTITIES = (_KEY, Column("entity", pa.binary(), "wide-column entity"))


_VALUES = pa.schema([pa.field(column.name, column.type) for column in VALUES])
_ENTITIES = pa.schema([pa.field(column.name, column.type) for column in ENTITIES])
_NONE = pa.scalar(None, pa.binary())


class _Images(NamedTuple):
    """Columns of all rows, of which runs are slices."""

    ops: npt.NDArray[np.uint8]
    times_us: npt.NDArray[np.int64]
    transactions: pa.DictionaryArray
    values: pa.RecordBatch
    entities: pa.RecordBatch
    before: pa.RecordBatch | None
    key_only: npt.NDArray[np.bool_]
    keyed: Ints
    """How many rows before each one have a key alone."""
    deleted: Ints


class Rows:
    """Entries as rows with their positions; images are gathered when the first of them are asked for."""

    def __init__(self, database: str, names: Names, entries: Entries) -> None:
        """`names` gives a column family's name by its id."""
        self._database = database
        self._names = names
        self._entries = entries
        self._batches = np.repeat(np.arange(len(entries.rows), dtype=np.int32), entries.rows)
        firsts = np.cumsum(entries.rows) - entries.rows
        self._sequences = entries.sequences[self._batches]
        self._indexes = (np.arange(len(self)) - firsts[self._batches]).astype(np.uint32)
        self._images: _Images | None = None

    def __len__(self) -> int:
        return len(self._entries.tags)

    def first_after(self, position: Position) -> int:
        """The row with which a resume from this position begins."""
        sequences, indexes = self._sequences, self._indexes
        beyond = (sequences > position.sequence) | (
            (sequences == position.sequence) & (indexes > position.index)
        )
        return int(np.argmax(beyond)) if beyond.any() else len(self)

    def runs(self, start: int, stop: int) -> list[Run]:
        """Some rows in the order of the log, a run for each stretch of one column family; where these change
        from row to row, many."""
        if self._images is None:
            self._images = _images(self._entries, self._batches)
        images, entries = self._images, self._entries
        tags, families = entries.tags[start:stop], entries.families[start:stop]
        entity = (tags == ENTITY) | (tags == FAMILY_ENTITY)
        runs = []
        for first, last in _stretches(families * 2 + entity):
            rows = last - first
            at, end = start + first, start + last
            part = slice(at, end)
            keyed = int(images.keyed[end] - images.keyed[at])
            deleted = int(images.deleted[end] - images.deleted[at])
            wide = bool(entity[first])
            name = self._names(int(families[first]))
            table = _table(self._database, name, ENTITIES if wide else VALUES)
            after = images.entities if wide else images.values
            runs.append(
                Run(
                    table,
                    images.ops[part],
                    self._sequences[part],
                    self._indexes[part],
                    images.times_us[part],
                    images.transactions.slice(at, rows),
                    after.slice(at, rows) if deleted < rows else None,
                    images.before.slice(at, rows) if keyed and images.before is not None else None,
                    key_only=images.key_only[part] if keyed else None,
                )
            )
        return runs


@lru_cache(maxsize=1024)
def _table(database: str, family: str, columns: tuple[Column, ...]) -> Table:
    return Table(database, "", family, columns)


def _images(entries: Entries, batches: npt.NDArray[np.int32]) -> _Images:
    ops = OPS[entries.tags]
    deleted, ranged = ops == int(Op.DELETE), ops == int(Op.DELETE_RANGE)
    key_only = deleted | ranged
    keys = gathered(entries.data, entries.key_starts, entries.key_ends)
    values = gathered(entries.data, entries.value_starts, entries.value_ends)
    before = None
    after_keys, after_values = keys, values
    if key_only.any():
        kept, ends = pa.array(~key_only), pa.array(ranged)
        nothing = pa.nulls(len(keys), pa.binary())
        before = pa.RecordBatch.from_arrays([pc.if_else(kept, _NONE, keys), nothing], schema=_VALUES)
        after_keys = pc.if_else(kept, keys, _NONE)
        if ranged.any():  # the range's end is a key, though it lies where values do
            after_keys = pc.if_else(ends, values, after_keys)
            after_values = pc.if_else(ends, _NONE, values)
    return _Images(
        ops,
        np.zeros(len(ops), np.int64),
        pa.DictionaryArray.from_arrays(pa.array(batches), pa.array(entries.sequences).cast(pa.string())),
        pa.RecordBatch.from_arrays([after_keys, after_values], schema=_VALUES),
        pa.RecordBatch.from_arrays([after_keys, after_values], schema=_ENTITIES),
        before,
        key_only,
        np.concatenate([[0], np.cumsum(key_only)]),
        np.concatenate([[0], np.cumsum(deleted)]),
    )


def _stretches(groups: Ints) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(groups)) + 1
    bounds = [0, *edges.tolist(), len(groups)] if len(groups) else []
    return pairwise(bounds)


def gathered(data: bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The ranges of `data` as one binary array; null where the start is -1. The ranges must be in order.

    Ranges and the gaps between them make one array over the very bytes, of which Arrow then takes every
    other.
    """
    there = starts >= 0
    if not there.all():
        rows = np.cumsum(there) - 1
        filled = gathered(data, starts[there], ends[there])
        return filled.take(pa.array(rows, mask=~there))
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[::2], offsets[1::2] = starts, ends
    spread = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return spread.take(pa.array(np.arange(0, 2 * count - 1, 2)))

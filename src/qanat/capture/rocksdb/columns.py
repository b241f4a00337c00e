"""Entries as runs of updates: binary columns gathered from the log's bytes in bulk."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

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
        self._images: tuple[pa.Array, pa.Array, pa.DictionaryArray] | None = None

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
        """Some rows in the order of the log, a run for each stretch of one column family."""
        if self._images is None:
            self._images = self._gathered()
        keys, values, transactions = self._images
        entries = self._entries
        tags, families = entries.tags[start:stop], entries.families[start:stop]
        entity = (tags == ENTITY) | (tags == FAMILY_ENTITY)
        runs = []
        for first, last in _stretches(families * 2 + entity):
            part = slice(start + first, start + last)
            columns = (
                OPS[entries.tags[part]],
                self._sequences[part],
                self._indexes[part],
                np.zeros(last - first, np.int64),
            )
            table = _table(
                self._database,
                self._names(int(families[first])),
                ENTITIES if entity[first] else VALUES,
            )
            runs.append(_run(table, columns, transactions[part], keys[part], values[part]))
        return runs

    def _gathered(self) -> tuple[pa.Array, pa.Array, pa.DictionaryArray]:
        entries = self._entries
        transactions = pa.array(entries.sequences).cast(pa.string())
        return (
            gathered(entries.data, entries.key_starts, entries.key_ends),
            gathered(entries.data, entries.value_starts, entries.value_ends),
            pa.DictionaryArray.from_arrays(pa.array(self._batches), transactions),
        )


@lru_cache(maxsize=1024)
def _table(database: str, family: str, columns: tuple[Column, ...]) -> Table:
    return Table(database, "", family, columns)


def _run(
    table: Table,
    columns: Sequence[npt.NDArray[Any]],
    transactions: pa.DictionaryArray,
    keys: pa.Array,
    values: pa.Array,
) -> Run:
    ops = columns[0]
    deleted, ranged = ops == Op.DELETE, ops == Op.DELETE_RANGE
    before = after = key_only = None
    if (deleted | ranged).any():
        key_only = deleted | ranged
        kept = pa.array(~key_only)
        nothing = pa.nulls(len(keys), pa.binary())
        before = pa.RecordBatch.from_arrays(
            [keys if key_only.all() else _chosen(keys, kept, invert=True), nothing], schema=table.arrow
        )
        if ranged.any():  # the range's end is a key, though it lies where values do
            ends = pa.array(ranged)
            after_keys = _if_else(ends, values, _chosen(keys, kept))
            after_values = _chosen(values, ends, invert=True)
        else:
            after_keys, after_values = _chosen(keys, kept), values
        if not deleted.all():
            after = pa.RecordBatch.from_arrays([after_keys, after_values], schema=table.arrow)
    else:
        after = pa.RecordBatch.from_arrays([keys, values], schema=table.arrow)
    ops8, sequences, indexes, times = columns
    return Run(
        table,
        ops8.astype(np.uint8, copy=False),
        sequences.astype(np.uint64, copy=False),
        indexes.astype(np.uint32, copy=False),
        times.astype(np.int64, copy=False),
        transactions,
        after,
        before,
        key_only=key_only,
    )


def _if_else(where: pa.Array, chosen: pa.Array, other: pa.Array) -> pa.Array:
    return pc.if_else(where, chosen, other)


def _chosen(values: pa.Array, where: pa.Array, *, invert: bool = False) -> pa.Array:
    none = pa.scalar(None, values.type)
    return _if_else(where, none, values) if invert else _if_else(where, values, none)


def _stretches(groups: Ints) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(groups)) + 1
    bounds = [0, *edges.tolist(), len(groups)] if len(groups) else []
    return pairwise(bounds)


def gathered(data: bytes, starts: Ints, ends: Ints) -> pa.Array:
    """The ranges of `data` as one binary array; null where the start is -1. The ranges must be in order.

    Ranges and the gaps between them make one array over the very bytes, of which Arrow then takes every other.
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

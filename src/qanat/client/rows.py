"""What `publish_many` accepts, cut into batches without a loop over events."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from qanat.events import arguments
from qanat.events.attributes import check_type, from_rows
from qanat.events.encode import check_strings
from qanat.events.errors import MalformedBatch

SMALLEST_BYTES = 4 * 1024 * 1024
"""Of a file laid down for a stream; less is sent, for a file of its own costs the log more than a copy."""
LARGEST_BYTES = 14 * 1024 * 1024
"""Of such a file: it must go into one frame where it is sent after all."""
_ROWS_PER_BATCH = 1_048_576
"""Bounds what a filter computes at once; ten-byte events reach `batch_bytes` long before."""


class Rows(NamedTuple):
    """Columns of equal length; slices of them share their bytes."""

    payloads: Any
    keys: Any
    attributes: dict[str, Any]

    @staticmethod
    def of(payloads: Any, keys: Any, attributes: Any) -> "Rows":
        """From lists, Arrow arrays, 2-D uint8 arrays, or an Arrow table with a column `payload`."""
        if isinstance(payloads, pa.RecordBatch):
            payloads = pa.Table.from_batches([payloads])
        if isinstance(payloads, pa.Table):
            return _from_table(payloads, keys, attributes)
        if isinstance(attributes, Mapping):
            named = {
                arguments.name("an attribute's name", name): _column(name, values)
                for name, values in attributes.items()
            }
        elif attributes is not None and not isinstance(attributes, list | tuple):
            wanted = "a list of dicts, one for each event, or a dict of columns"
            raise arguments.wrong("attributes", wanted, attributes)
        else:
            named = {
                name: [_column(name, array) for array in arrays]
                for name, arrays in from_rows(attributes or ()).items()
            }
        return Rows(_binary(payloads, "payloads"), None if keys is None else _binary(keys, "keys"), named)

    def __len__(self) -> int:
        return len(self.payloads)

    def parts(self, batch_bytes: int) -> "Iterator[Rows]":
        """Pieces of about `batch_bytes` payload bytes each."""
        total = len(self)
        if not total:
            return
        mean = max(1, _bytes_of(self.payloads) // total)
        step = max(1, min(_ROWS_PER_BATCH, batch_bytes // mean))
        for i in range(0, total, step):
            j = min(i + step, total)
            yield from self._bounded(i, j, batch_bytes * 4)

    def groups(self, batch_bytes: int) -> "Iterator[list[Rows]]":
        """The same pieces; those together that may lie in one file, in files of about equal size."""
        if self.bytes < SMALLEST_BYTES:
            yield from ([part] for part in self.parts(batch_bytes))
            return
        parts = list(self.parts(batch_bytes))
        share = -(-len(parts) // -(-self.bytes // LARGEST_BYTES))
        held, size = list[Rows](), 0
        for part in parts:
            if len(held) >= share or size + part.bytes > LARGEST_BYTES:
                yield held
                held, size = [], 0
            held.append(part)
            size += part.bytes
        yield held

    @property
    def bytes(self) -> int:
        """Of all its columns: about what a batch of them takes."""
        return sum(
            _bytes_of(array)
            for column in (self.payloads, self.keys, *self.attributes.values())
            if column is not None
            for array in (column if isinstance(column, list) else [column])
        )

    def _bounded(self, i: int, j: int, limit: int) -> "Iterator[Rows]":
        """Halves a piece whose rows are much larger than the mean."""
        part = self._cut(i, j)
        if j - i > 1 and _bytes_of(part.payloads) > limit:
            middle = (i + j) // 2
            yield from self._bounded(i, middle, limit)
            yield from self._bounded(middle, j, limit)
        else:
            yield part

    def _cut(self, i: int, j: int) -> "Rows":
        def cut(column: Any) -> Any:
            if isinstance(column, list):
                return [array.slice(i, j - i) for array in column]
            return column[i:j] if isinstance(column, np.ndarray) else column.slice(i, j - i)

        return Rows(
            cut(self.payloads),
            None if self.keys is None else cut(self.keys),
            {name: cut(column) for name, column in self.attributes.items()},
        )


def _from_table(table: pa.Table, keys: Any, attributes: Any) -> Rows:
    if keys is not None or attributes is not None:
        raise MalformedBatch(
            "an Arrow table brings its own keys and attributes: leave keys= and attributes= out"
        )
    if "payload" not in table.column_names:
        raise MalformedBatch(
            f"an Arrow table to publish has a column 'payload'; this one has {table.column_names}"
        )
    named = {
        name: _column(name, table[name]) for name in table.column_names if name not in ("payload", "key")
    }
    keys = _binary(table["key"], "keys") if "key" in table.column_names else None
    return Rows(_binary(table["payload"], "payloads"), keys, named)


def _column(name: str, values: Any) -> Any:
    """One array; or a list of them, where an attribute has several types, each with values where the others
    have none."""
    if isinstance(values, list) and values and isinstance(values[0], pa.Array):
        return values
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, str | bytes | Mapping):
        with suppress(pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
            column = values if isinstance(values, pa.Array) else pa.array(values)
            check_type(name, column.type)
            return column
    raise arguments.wrong(
        f"attribute {name!r}", "a list or an Arrow array with a value for each event", values
    )


def _binary(values: Any, what: str) -> Any:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray | pa.Array):
        check_strings(values, what)
        return values
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping):
        raise MalformedBatch(f"{what} is one {type(values).__name__}; give a list of bytes, or use publish()")
    try:
        return pa.array(values, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise MalformedBatch(f"{what} must be bytes: {error}") from error


def _bytes_of(values: Any) -> int:
    """Payload bytes, from offsets where there are some: Arrow's own `nbytes` counts a slice's share."""
    return int(values.nbytes)

"""Parquet files written by the tasks that have their rows, be they read from a stream, where rows never leave
Arrow, or from files.

That is what tasks do where the archive is a folder that they see; on HDFS they hand their rows to Spark,
which alone can write there. Until a file is put in its place its name does not end in `.parquet`: whoever
reads `**/*.parquet` does not see what is not in the archive yet.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qanat.pipeline.archive.manifest import Range
from qanat.pipeline.archive.reading import read_rows
from qanat.pipeline.columns import FILED

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""A replay reads row groups ahead, several at once, and holds them in memory."""
CODEC, LEVEL = "zstd", 1
"""At level 1 about as fast as snappy, and a third smaller on text."""
NAMES_DDL = "name string, piece int"
PIECE = "piece"
"""Of rows that become several files: which one each is of."""
_STAGED = "parquet.staged"
_REPEATED = (
    "kind",
    "attributes.key_value.key",
    "attributes.key_value.value",
    "types.key_value.key",
    "types.key_value.value",
    "source.name",
)
"""Columns that are worth a dictionary. On the others one is tried, and thrown away again, at half the
speed."""


def write_ranges(
    url: str, stream: str, ranges: Sequence[Range], folder: str, parts: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task: each range whose number comes becomes a file in the folder; tells its name.

    A task may run twice, so a name is never used again: whose names Spark hands over, those files count.
    """
    for part in parts:
        for number in part.column(0).to_pylist():
            yield _named(write_staged(folder, read_rows(url, stream, *ranges[number])), number)


def write_partition(folder: str, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task: the rows of its partition, which are sorted by the piece that each is of if there are several;
    each piece becomes a file. Tells their names."""
    for piece, rows in groupby(_pieces(parts), lambda pair: pair[0]):
        yield _named(write_staged(folder, (_as_filed(batch) for _, batch in rows)), piece)


def write_staged(folder: str, batches: Iterable[pa.RecordBatch]) -> str:
    """A file in a folder for staging; returns its name."""
    name = f"{uuid.uuid4().hex}.{_STAGED}"
    write_file(os.path.join(folder, name), batches)
    return name


def _named(name: str, piece: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"name": [name], PIECE: pa.array([piece], pa.int32())})


def _pieces(parts: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows with the number of their piece; the loop is over runs of one piece."""
    for part in parts:
        if PIECE not in part.schema.names or not part.num_rows:
            yield 0, part
            continue
        numbers = np.asarray(part.column(PIECE))
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), part.num_rows]
        for i, j in pairwise(cuts):
            yield int(numbers[i]), part.slice(i, j - i)


def _as_filed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as Spark hands them over (`tables.without_null_maps`): no types are null again, as they were."""
    at = rows.schema.get_field_index("types")
    types = rows.column(at)
    offsets = np.frombuffer(types.buffers()[1], np.int32)[types.offset : types.offset + len(types) + 1]
    there = pa.py_buffer(np.packbits(np.diff(offsets) > 0, bitorder="little"))
    entries = pa.StructArray.from_arrays(
        [types.keys, types.items], fields=[types.type.key_field, types.type.item_field]
    )
    buffers = [there, pa.py_buffer(np.ascontiguousarray(offsets))]
    nulled = pa.Array.from_buffers(types.type, len(types), buffers, children=[entries])
    return rows.set_column(at, rows.schema.field(at), nulled)


def write_file(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Rows of the form that files have as a file, in their order."""
    with pq.ParquetWriter(
        path,
        FILED,
        compression=CODEC,
        compression_level=LEVEL,
        use_dictionary=list(_REPEATED),
        write_page_checksum=True,
    ) as writer:
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            held.append(batch.select(FILED.names))
            size += held[-1].nbytes
            if size >= ROW_GROUP_BYTES:
                _put(writer, held)
                held, size = [], 0
        if held:
            _put(writer, held)


def _put(writer: pq.ParquetWriter, batches: list[pa.RecordBatch]) -> None:
    rows = pa.Table.from_batches(batches).cast(
        FILED
    )  # Spark's have its session's zone, and other names inside maps
    writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

"""A range of a stream written as a Parquet file by the very process that reads it: rows never leave Arrow.

That is what tasks do where the archive is a folder that they see; on HDFS they hand their rows to Spark, which alone can write there.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from qanat.pipeline.archive.manifest import Range
from qanat.pipeline.archive.reading import read_rows
from qanat.pipeline.columns import ARROW

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""A replay reads row groups ahead, several at once, and holds them in memory."""
CODEC, LEVEL = "zstd", 1
"""At level 1 about as fast as snappy, and a third smaller on text."""
NAMES_DDL = "name string"
_REPEATED = (
    "stream",
    "kind",
    "attributes.key_value.key",
    "attributes.key_value.value",
    "types.key_value.key",
    "types.key_value.value",
    "source.name",
)
"""Columns that are worth a dictionary. On the others one is tried, and thrown away again, at half the speed."""


def write_ranges(
    url: str, stream: str, ranges: Sequence[Range], folder: str, parts: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task: each range whose number comes becomes a file in the folder; tells its name.

    A task may run twice, so a name is never used again: whose names Spark hands over, those files count.
    """
    for part in parts:
        for number in part.column(0).to_pylist():
            name = f"{number}-{uuid.uuid4().hex}.parquet"
            write_file(os.path.join(folder, name), read_rows(url, stream, *ranges[number]))
            yield pa.RecordBatch.from_pydict({"name": [name]})


def write_file(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Rows of the tabular form as a file, in their order."""
    with pq.ParquetWriter(
        path,
        ARROW,
        compression=CODEC,
        compression_level=LEVEL,
        use_dictionary=list(_REPEATED),
        write_page_checksum=True,
    ) as writer:
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                _put(writer, held)
                held, size = [], 0
        if held:
            _put(writer, held)


def _put(writer: pq.ParquetWriter, batches: list[pa.RecordBatch]) -> None:
    rows = pa.Table.from_batches(batches, ARROW)
    writer.write_table(rows, row_group_size=max(rows.num_rows, 1))

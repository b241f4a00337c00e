"""What a Parquet file says of itself, without reading its rows: how an archive's writer knows what Spark has
written."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from qanat.pipeline.archive.errors import ArchiveDamaged
from qanat.pipeline.archive.storage import Storage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Footer(NamedTuple):
    """Rows, and the least and greatest of their sequence numbers and times. A tombstone's number is the last
    it stands for."""

    rows: int
    min_seq: int
    max_seq: int
    min_time_us: int
    max_time_us: int
    first_time_us: int
    """Of its first row."""


def read_footer(storage: Storage, path: str) -> Footer | None:
    """The footer of a file of the tabular form, None if it has no rows; raises `ArchiveDamaged` if it is no
    such file."""
    try:
        with storage.open(path) as file:
            parquet = pq.ParquetFile(file)
            metadata = parquet.metadata
            if not metadata.num_rows:
                return None
            head = next(parquet.iter_batches(batch_size=1, row_groups=[0], columns=["time"]))
    except Exception as error:
        raise ArchiveDamaged(f"{storage.url(path)} is no whole Parquet file: {error}") from error
    seqs, times = _bounds(metadata, "seq"), _bounds(metadata, "time")
    if seqs is None or times is None:
        raise ArchiveDamaged(
            f"{storage.url(path)} has no statistics of seq and time: it was not written by an archive"
        )
    return Footer(metadata.num_rows, seqs[0], seqs[1], _us(times[0]), _us(times[1]), head["time"][0].value)


def _bounds(metadata: Any, name: str) -> tuple[Any, Any] | None:
    index = metadata.schema.names.index(name)
    found = [metadata.row_group(i).column(index).statistics for i in range(metadata.num_row_groups)]
    if not found or any(statistics is None or not statistics.has_min_max for statistics in found):
        return None
    return min(s.min for s in found), max(s.max for s in found)


def _us(time: datetime) -> int:
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since = time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

"""Row groups of an archive's files as batches of the stream: the very events, and what they cover."""

from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qanat.events.batch import Batch
from qanat.events.encode import Array
from qanat.events.errors import LocalError
from qanat.events.filters import Filter, evaluate
from qanat.log.cover import check_covered
from qanat.pipeline.archive.errors import ArchiveDamaged
from qanat.pipeline.archive.manifest import DataFile
from qanat.pipeline.archive.storage import Storage
from qanat.pipeline.columns import FILED, events_from


class RowGroup(NamedTuple):
    """A part of a file, which covers first..last."""

    file: DataFile
    number: int
    first: int
    last: int
    bytes: int


class FileGone(LocalError):
    """The file is not there; perhaps a newer version of the archive has others in its place."""


def row_groups(storage: Storage, file: DataFile, start: int = 1) -> list[RowGroup]:
    """Those of a file that have something from `start` on."""
    with _opened(storage, file) as source:
        metadata = _parquet(source, storage, file).metadata
        column = metadata.schema.names.index("seq")
        found, first = [], file.first
        for number in range(metadata.num_row_groups):
            about = metadata.row_group(number)
            last = about.column(column).statistics.max
            if last >= start:
                found.append(RowGroup(file, number, first, last, about.total_byte_size))
            first = last + 1
    if first != file.last + 1:
        raise ArchiveDamaged(
            f"{storage.url(file.path)} ends at {first - 1} and should at {file.last}: restore it from a copy"
        )
    return found


def read_batches(
    storage: Storage, stream: str, group: RowGroup, batch_bytes: int, where: Filter | None = None
) -> list[Batch]:
    """A row group as batches that cover it, each number once; with a filter without the data that do not
    pass."""
    with _opened(storage, group.file) as source:
        try:
            table = _parquet(source, storage, group.file).read_row_group(group.number, columns=FILED.names)
            batches = list(
                batches_of(table.select(FILED.names).cast(FILED), stream, group.first, batch_bytes)
            )
        except (OSError, LocalError) as error:
            raise _damaged(storage, group.file, error) from error
    for batch in batches:
        check_covered(batch)
    if batches[-1].last != group.last:
        raise _damaged(
            storage,
            group.file,
            f"row group {group.number} ends at {batches[-1].last} and should at {group.last}",
        )
    return batches if where is None else [passing(batch, where) for batch in batches]


def batches_of(rows: pa.Table, stream: str, first: int, batch_bytes: int) -> Iterator[Batch]:
    """Rows in their order as batches of about that size; the first covers from `first` on."""
    for part in rows.combine_chunks().to_batches():
        cuts = _cuts(part, batch_bytes)
        for i, j in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            batch = events_from(part.slice(i, j - i)).batch(stream, first)
            first = batch.last + 1
            yield batch


def _cuts(rows: pa.RecordBatch, batch_bytes: int) -> Array:
    """Where batches begin: by size, and where rows with a source follow rows without one or the other way
    round."""
    count = rows.num_rows
    payloads = rows.column("payload")
    offsets = np.frombuffer(payloads.buffers()[1], np.int32, count + 1, 4 * payloads.offset).astype(np.int64)
    others = (rows.nbytes - payloads.nbytes) / count
    upto = offsets[1:] - offsets[0] + np.arange(1, count + 1) * others
    large = np.flatnonzero(np.diff(upto // batch_bytes)) + 1
    sourced = np.asarray(rows.column("source").is_valid())
    mixed = np.flatnonzero(sourced[1:] != sourced[:-1]) + 1
    return np.unique(np.concatenate((large, mixed, [0, count])))


def passing(batch: Batch, where: Filter) -> Batch:
    """The rows that pass, and what is no data: that says what became of other events. Perhaps none."""
    mask = evaluate(where, batch)
    if batch.kinds is not None:
        mask = mask | (batch.kinds != 0)
    if mask.any():
        return batch.take(mask)
    return Batch.build(batch.stream, [], first=batch.first, seqs=np.empty(0, np.uint64), span=batch.span)


def _opened(storage: Storage, file: DataFile) -> IO[bytes]:
    try:
        return storage.open(file.path)
    except FileNotFoundError:
        raise FileGone(f"{storage.url(file.path)} is missing") from None


def _parquet(source: object, storage: Storage, file: DataFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(storage, file, error) from error


def _damaged(storage: Storage, file: DataFile, error: object) -> ArchiveDamaged:
    return ArchiveDamaged(
        f"{storage.url(file.path)}, which holds {file.first} to {file.last}, cannot be read ({error}):"
        " restore it from a copy; `qanat archive check` lists all that is wrong"
    )

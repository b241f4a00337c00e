"""Rows of an archive for publishing again, encoded: read here, which is enough for a while of history, or by
Spark in parallel."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.filters import Filter
from qanat.events.tombstones import GC_ATTRIBUTE, predicates
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import DataFile, Range
from qanat.pipeline.archive.storage import Storage
from qanat.pipeline.replay.encoding import ENCODED_DDL, encode_rows, publishable
from qanat.pipeline.replay.row_groups import read_batches, row_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Wanted(NamedTuple):
    """Which events, and as whose: of `into`, under the positions of `source`."""

    range: Range
    where: Filter | None
    skip_gc: bool
    source: str
    into: str
    batch_bytes: int


class Encoded(NamedTuple):
    """A batch ready to be published, and what numbers it has."""

    first: int
    last: int
    data: bytes


class PublishableRows(Protocol):
    """Tombstones are left out: there is nothing to publish."""

    def collecting(self, files: Sequence[DataFile], wanted: Wanted) -> Iterable[tuple[str, int]]:
        """Predicates of GC events among them, and a number of each."""

    def encoded(self, files: Sequence[DataFile], wanted: Wanted) -> Iterator[Encoded]:
        """In order."""


class RowsHere:
    """Read one row group after the other by this process: nothing has to be started for it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def collecting(self, files: Sequence[DataFile], wanted: Wanted) -> Iterator[tuple[str, int]]:
        for batch in self._batches(files, wanted):
            texts = None if batch.kinds is None else predicates(batch)
            if texts is not None:
                rows = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
                for text, seq in zip(texts.take(rows).to_pylist(), batch.seqs()[rows].tolist(), strict=True):
                    yield str(text), seq

    def encoded(self, files: Sequence[DataFile], wanted: Wanted) -> Iterator[Encoded]:
        for batch in self._batches(files, wanted):
            seqs = batch.seqs()
            yield Encoded(int(seqs[0]), int(seqs[-1]), bytes(publishable(batch, wanted.source).encode()))

    def _batches(self, files: Sequence[DataFile], wanted: Wanted) -> Iterator[Batch]:
        first, last = wanted.range
        for file in files:
            for group in row_groups(self._storage, file, first):
                if group.first > last:
                    return
                found = read_batches(self._storage, wanted.into, group, wanted.batch_bytes, wanted.where)
                yield from (batch for each in found if (batch := _chosen(each, wanted)) is not None)


def _chosen(batch: Batch, wanted: Wanted) -> Batch | None:
    if not batch.count:
        return None
    seqs, kinds = batch.seqs(), batch.kinds
    mask = (seqs >= np.uint64(wanted.range.first)) & (seqs <= np.uint64(wanted.range.last))
    if kinds is not None:
        mask &= kinds == Kind.DATA if wanted.skip_gc else kinds != Kind.TOMBSTONE
    return batch if mask.all() and kinds is None else batch.take(mask) if mask.any() else None


class RowsBySpark:
    """Read, filtered, sorted and encoded in parallel."""

    def __init__(self, spark: "SparkSession", history: History) -> None:
        self._spark, self._history = spark, history

    def collecting(self, files: Sequence[DataFile], wanted: Wanted) -> Iterator[tuple[str, int]]:
        from pyspark.sql import functions as F

        gc = self._rows(files, wanted).where(F.col("kind") == "gc")
        found = gc.groupBy(F.col("attributes").getItem(GC_ATTRIBUTE)).agg(F.min("seq"))
        for text, seq in found.toLocalIterator():
            yield str(text), int(seq)

    def encoded(self, files: Sequence[DataFile], wanted: Wanted) -> Iterator[Encoded]:
        from qanat.pipeline.archive.tables import without_null_maps

        tasks = self._spark.sparkContext.defaultParallelism
        encode = partial(encode_rows, wanted.source, wanted.into, wanted.batch_bytes)
        rows = self._rows(files, wanted).repartitionByRange(tasks, "seq").sortWithinPartitions("seq")
        encoded = without_null_maps(rows).mapInArrow(encode, ENCODED_DDL)
        for first, last, _, data in encoded.toLocalIterator(prefetchPartitions=True):
            yield Encoded(first, last, bytes(data))

    def _rows(self, files: Sequence[DataFile], wanted: Wanted) -> "DataFrame":
        from pyspark.sql import functions as F

        from qanat.pipeline.archive.tables import read_files

        rows = read_files(self._spark, self._history, files)
        chosen = F.col("kind") == "data"
        if wanted.where is not None:
            from qanat.pipeline.filters.columns import column_of

            chosen = chosen & column_of(wanted.where)
        if not wanted.skip_gc:
            chosen = chosen | (F.col("kind") == "gc")
        return rows.where(F.col("seq").between(*wanted.range) & chosen)

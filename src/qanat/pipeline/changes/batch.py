"""A log as a batch: from where it is asked to begin up to where the log has come, in ranges that are read
side by side where it can be divided."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from qanat.capture.url import split_warning
from qanat.events.position import Position
from qanat.pipeline.changes.log import Log
from qanat.pipeline.changes.offsets import Offset
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.changes.ranges import range_end
from qanat.pipeline.changes.rows import chosen, rows_of
from qanat.pipeline.changes.snapshot import whole
from qanat.pipeline.sentences import in_sentences

logger = logging.getLogger("qanat.pipeline")

_ROWS = 250_000
"""In one partition, about."""


class SnapshotPartition(InputPartition):
    """What the tables have, and what the log says meanwhile, of one task: their order is what makes them
    whole."""


class RangePartition(InputPartition):
    """Updates after one position and up to another."""

    def __init__(self, after: Position, upto: Position) -> None:
        self.after, self.upto = after, upto


@in_sentences
class ChangesBatch(DataSourceReader):
    """The rows of a log."""

    def __init__(self, options: ChangesOptions) -> None:
        self._log = Log(options)

    def partitions(self) -> Sequence[InputPartition]:
        log, begin = self._log, self._log.options.begin()
        if warning := split_warning(log.options.url, log.choice.sharding):
            logger.warning(warning)
        if log.options.takes_snapshot:
            return [SnapshotPartition(None)]
        try:
            reader = log.reader
            newest = reader.latest()
            at = reader.oldest() if begin == "earliest" else newest if begin == "latest" else begin
            assert isinstance(at, Position)
            log.go(Offset(reader.source, at, at))
            found: list[InputPartition] = []
            while end := range_end(reader, log.options.scheme, at, newest, _ROWS):
                found.append(RangePartition(at, end))
                at = end
            return found or [RangePartition(at, at)]
        finally:
            log.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SnapshotPartition):
            try:
                yield from whole(self._log)
            finally:
                self._log.close()
            return
        assert isinstance(partition, RangePartition)
        log = self._log
        if partition.after == partition.upto:
            return
        try:
            log.go(Offset(log.reader.source, partition.after, partition.after))
            for item in log.upto(partition.upto):
                made = rows_of(*chosen(item, log.choice, log.options), log.source)
                if len(made):
                    yield made
        finally:
            log.close()

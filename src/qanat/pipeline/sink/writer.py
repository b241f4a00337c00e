"""Streams as a sink of Spark: of a streaming query, or of a batch. See `publishing` for why nothing is lost
or doubled."""

import time
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from qanat.events.errors import InvariantError
from qanat.pipeline.sentences import in_sentences
from qanat.pipeline.sink.options import SinkOptions
from qanat.pipeline.sink.publishing import Publication
from qanat.pipeline.sink.staging import Piece, Staged, Staging, lay_down
from qanat.pipeline.source.options import BadOption

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""What Spark tells each task of a streaming query: its checkpoint's own number, and that of the
micro-batch."""


@in_sentences
class BatchSink(DataSourceArrowWriter):
    """A write that is made once. With a version it may be repeated: the stream knows whether it has it."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        _append_only(overwrite)
        self._options = options
        # A passing source (`~`): nobody comes back under it, so the stream need not remember it for ever.
        self._source = options.name if options.version else f"~{options.name}/{uuid.uuid4().hex}"
        self._batch = options.version or 1
        self._staging = Staging.prepare(options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _laid_down(iterator, self._options, self._source, self._batch, self._staging)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        what = f"version {self._batch}" if self._options.version else "this write"
        self._publication(what).publish(_pieces(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        publication = self._publication("this write")
        if not publication.is_planned:
            publication.clear()

    def _publication(self, what: str) -> Publication:
        return _publication(self._options, self._source, self._batch, self._staging, what)


@in_sentences
class StreamSink(DataSourceStreamArrowWriter):
    """Micro-batch after micro-batch of one query, that is: of one checkpoint."""

    def __init__(self, options: SinkOptions, *, overwrite: bool) -> None:
        _append_only(overwrite)
        if options.version:
            raise BadOption(
                "option 'version' is for batches; a streaming query numbers its micro-batches itself"
            )
        self._options = options
        self._staging = Staging.prepare(options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if query is None or batch is None:
            raise InvariantError("a task of a streaming query was not told its query and its micro-batch")
        source = f"{self._options.name}/{query}"
        return _laid_down(iterator, self._options, source, int(batch) + 1, self._staging)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = [message for message in messages if isinstance(message, Staged) and message.source]
        if not staged:
            return
        publication = self._publication(staged[0].source, batchId)
        publication.publish(_pieces(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """What a plan names is kept: the micro-batch may be in the stream in part, and comes again."""
        for message in messages:
            if isinstance(message, Staged) and message.source:
                publication = self._publication(message.source, batchId)
                if not publication.is_planned:
                    publication.clear()
                return

    def _publication(self, source: str, batch_id: int) -> Publication:
        what = f"micro-batch {batch_id}"
        return _publication(self._options, source, batch_id + 1, self._staging, what)


def _publication(options: SinkOptions, source: str, batch: int, staging: Staging, what: str) -> Publication:
    return Publication(
        options.url, source, batch, staging, what, options.durability, patience=options.patience
    )


def _append_only(overwrite: bool) -> None:
    if overwrite:
        raise BadOption(
            'a stream is only ever appended to: use mode("append"), and outputMode "append" or "update"'
        )


def _laid_down(
    iterator: Iterator[pa.RecordBatch], options: SinkOptions, source: str, batch: int, staging: Staging
) -> Staged:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    folder = staging.of(source, batch) if staging.is_here else None
    now_us, near = time.time_ns() // 1000, options.is_near
    pieces = lay_down(iterator, options.stream, source, folder, f"{partition:06}", now_us, near=near)
    return Staged(partition, source, batch, pieces)


def _pieces(messages: Sequence[WriterCommitMessage | None]) -> list[Piece]:
    """In the order of the partitions: so the order of the rows of a query that has one is kept."""
    staged = sorted((m for m in messages if isinstance(m, Staged)), key=lambda message: message.partition)
    return [piece for message in staged for piece in message.pieces]

"""A range of a stream as Arrow record batches: what a task of Spark does."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from qanat.client import BlockingSubscription, EventsLost
from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.errors import LocalError
from qanat.pipeline.columns import arrow_of, joined, schema_of
from qanat.pipeline.source.clients import client_of
from qanat.runtime.patience import PATIENCE_S

log = logging.getLogger("qanat.pipeline")

LOST_ATTRIBUTE = "@lost"
"""Of a tombstone that no stream has: events that were to be read are gone, and the query was told to go
on."""
_BATCH_BYTES = 1 << 20
"""Smaller batches are joined: each costs Spark some tenths of a millisecond, whatever is in it."""


class EventsGone(LocalError):
    """The stream no longer keeps events that were not read."""


@dataclass(frozen=True)
class StreamRange(InputPartition):
    """Events `first` to `last` of a stream; `where` if only some of them."""

    stream: str
    first: int
    last: int
    where: str = ""


def read_range(
    url: str,
    part: StreamRange,
    columns: Sequence[str],
    *,
    losses: str,
    patience: float = PATIENCE_S,
) -> Iterator[pa.RecordBatch]:
    """All of a range, in large batches, in order."""
    with client_of(url, patience=patience) as client:
        subscription = client.read(part.stream, part.first, part.last, where=part.where)
        try:
            yield from _in_large_ones(part, columns, _taken(subscription, part, losses))
        finally:
            subscription.close()


def _taken(subscription: BlockingSubscription, part: StreamRange, losses: str) -> Iterator[Batch]:
    while True:
        try:
            batches = subscription.take()
        except EventsLost as lost:
            first, last = max(lost.first, part.first), min(lost.last, part.last)
            if losses == "stop":
                raise gone(part.stream, first, last) from None
            if losses == "accept":
                yield lost_batch(part.stream, first, last)
            else:
                log.warning(
                    "stream %r no longer keeps events %d to %d (%d of them): they are passed over, since"
                    " losses=skip or failOnDataLoss=false",
                    part.stream,
                    first,
                    last,
                    last - first + 1,
                )
            continue
        if not batches:
            return
        yield from batches


def _in_large_ones(
    part: StreamRange, columns: Sequence[str], batches: Iterator[Batch]
) -> Iterator[pa.RecordBatch]:
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        rows = arrow_of(part.stream, batch, columns)
        if batch.size >= _BATCH_BYTES // 2 and not small:
            yield rows
            continue
        small.append(rows)
        size += batch.size
        if size >= _BATCH_BYTES:
            yield joined(small)
            small, size = [], 0
    if small:
        yield joined(small)


def gone(stream: str, first: int, last: int) -> EventsGone:
    return EventsGone(
        f"stream {stream!r} no longer keeps events {first} to {last} ({last - first + 1} of them), which were"
        " to be read. To go on without them set the option losses=accept: a tombstone with the attribute"
        f" {LOST_ATTRIBUTE} then stands in their place; or losses=skip, which only the log tells of"
    )


def lost_batch(stream: str, first: int, last: int) -> Batch:
    """One tombstone for events that are gone, and that says so."""
    span = last - first + 1
    return Batch.build(
        stream_id(stream),
        [b""],
        first=first,
        span=span,
        seqs=np.array([last], np.uint64),
        ranges=[span],
        kinds=[Kind.TOMBSTONE],
        attributes=[{LOST_ATTRIBUTE: True}],
    )


def no_rows(columns: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema_of(tuple(columns)))

"""A range of a stream as rows, every number of it: read by a task of Spark, or by whoever else wants it
whole."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from qanat.client import Client
from qanat.events.batch import Batch
from qanat.events.errors import RemoteError
from qanat.events.join import concat
from qanat.events.tombstones import from_sequence
from qanat.log.cover import check_covered
from qanat.pipeline.columns import FILED, arrow_of
from qanat.pipeline.source.clients import client_of

JOINED_BYTES = 4 * 1024 * 1024
"""Batches are joined up to this size before they become rows: what a conversion costs apart from its rows
then vanishes."""
SILENT_S = 60.0
"""A server that has the events and says nothing for this long is not going to."""


def read_batches(client: Client, stream: str, first: int, last: int) -> Iterator[Batch]:
    """Batches that cover first..last, each number once and in order; raises `EventsLost` if the stream lacks
    some."""
    at = first
    with client.read(stream, first, last) as source:
        while at <= last:
            taken = source.take(timeout_s=SILENT_S)
            if not taken:
                raise RemoteError(
                    f"stream {stream!r} has {at} to {last} but for {SILENT_S:.0f} s does not send them"
                )
            for batch in taken:
                part = from_sequence(batch, at)
                check_covered(part)
                if part.first != at:
                    raise RemoteError(f"stream {stream!r} sent {part.first} where {at} was to come")
                at = part.last + 1
                yield part


def read_rows(
    url: str, stream: str, first: int, last: int, columns: Sequence[str] = tuple(FILED.names)
) -> Iterator[pa.RecordBatch]:
    """The same as rows of the form that files have, in pieces of some megabytes."""
    with client_of(url) as client:
        for batches in _gathered(read_batches(client, stream, first, last)):
            yield arrow_of(stream, concat(batches), columns)


def _gathered(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Runs of batches that join: of some megabytes, and all with a source or all without."""
    held: list[Batch] = []
    size, sourced = 0, False
    for batch in batches:
        mine = bool(batch.source_names)
        if held and (size + batch.size > JOINED_BYTES or mine != sourced):
            yield held
            held, size = [], 0
        held.append(batch)
        size, sourced = size + batch.size, mine
    if held:
        yield held

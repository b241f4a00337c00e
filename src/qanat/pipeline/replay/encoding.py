"""Archived rows as batches that can be published: under their numbers in the archived stream, as positions of
one source."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from qanat.client.encoded import dense_flight, jumping_flight
from qanat.client.flight import Flight
from qanat.events.batch import Batch, from_draft
from qanat.events.position import Position
from qanat.pipeline.columns import ARROW
from qanat.pipeline.replay.row_groups import batches_of

ENCODED = pa.schema(
    [("first", pa.int64()), ("last", pa.int64()), ("count", pa.int64()), ("data", pa.binary())]
)
ENCODED_DDL = "first bigint, last bigint, count bigint, data binary"


def encode_rows(
    source: str, into: str, batch_bytes: int, parts: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task: rows in their order (events, no tombstones) become encoded batches, one in a row."""
    for part in parts:
        if not part.num_rows:
            continue
        for batch in batches_of(pa.Table.from_batches([part]).cast(ARROW), into, 1, batch_bytes):
            seqs = batch.seqs()
            data = publishable(batch, source).encode()
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([int(seqs[0])], pa.int64()),
                    pa.array([int(seqs[-1])], pa.int64()),
                    pa.array([batch.count], pa.int64()),
                    pa.array([bytes(data)], pa.binary()),
                ],
                schema=ENCODED,
            )


def publishable(batch: Batch, source: str) -> Batch:
    """The same events without sequence numbers, which are their positions now: dense if they are."""
    seqs = batch.seqs()
    dense = int(seqs[-1]) - int(seqs[0]) + 1 == len(seqs)
    return from_draft(
        batch.draft()._replace(
            first=0,
            span=batch.count,
            seqs=None,
            ranges=None,
            sources=(source,),
            source_codes=None,
            position=int(seqs[0]) if dense else None,
            positions=None if dense else (seqs, np.zeros(len(seqs), np.uint32)),
        )
    )


def flight_of(data: bytes, source: str, after: int) -> Flight:
    """An encoded batch ready to be sent; `after` is the position before it: what follows on from it need not
    wait for it."""
    batch = Batch.decode(data, verify=False)
    sequences, _ = batch.positions() or (np.empty(0, np.uint64), None)
    if not batch.positions_dense:
        flight = Flight((bytearray(data),), batch.count)
        flight.end = Position(int(sequences[-1]), 0)
        return flight
    if after and batch.position == after + 1:
        return dense_flight(batch, source, batch.position)
    return jumping_flight(batch, source, sequences)

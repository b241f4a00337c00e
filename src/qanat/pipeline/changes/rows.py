"""Updates as rows of the one tabular form, with their shard beside it."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.choice import Choice
from qanat.capture.events import Events, events_of
from qanat.capture.losses import loss_event
from qanat.capture.reader import Lost
from qanat.capture.sharding import SHARD
from qanat.capture.updates import Updates
from qanat.events.batch import Batch
from qanat.pipeline.changes.offsets import ChangesDisagree
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.columns import ARROW, DDL, arrow_of

log = logging.getLogger("qanat.pipeline")

SHARDED_DDL = f"{DDL}, shard string"
SHARDED = ARROW.append(pa.field("shard", pa.string()))

Times = npt.NDArray[np.int64]


def chosen(item: Updates | Lost, choice: Choice, options: ChangesOptions) -> tuple[Events, Times]:
    """Events, and when they were committed (µs; 0 where the log does not say)."""
    if isinstance(item, Lost):
        if options.losses == "skip":
            log.warning(
                "%s: what is after %s and up to %s is gone: %s; it is passed over, since losses=skip or"
                " failOnDataLoss=false",
                options,
                item.after,
                item.upto,
                item.reason,
            )
            return events_of(Updates([], item.upto), choice.sharding), np.zeros(0, np.int64)
        if options.losses == "stop":
            raise ChangesDisagree(
                f"{options}: what is after {item.after} and up to {item.upto} is gone: {item.reason}. To go"
                " on without it, and have it said in a row of its own, set the option losses to accept, or"
                " to skip to have only the log say it; to have everything, take a snapshot into a new stream"
            )
        return loss_event(item), np.zeros(1, np.int64)
    updates = choice.of(item)
    times = [run.times_us for run in updates.runs]
    return events_of(updates, choice.sharding), np.concatenate(times) if times else np.zeros(0, np.int64)


def rows_of(events: Events, times_us: Times, source: str) -> pa.RecordBatch:
    """Rows that are not of any stream yet, under the positions of their log."""
    batch = Batch.build(
        0,
        events.payloads,
        keys=events.keys,
        attributes=events.attributes or None,
        source=source,
        positions=(events.sequences, events.indexes),
        times=times_us,
    )
    made = arrow_of("", batch)
    columns = dict(zip(made.schema.names, made.columns, strict=True))
    columns["stream"] = pa.nulls(batch.count, pa.string())
    columns["seq"] = pa.nulls(batch.count, pa.int64())
    columns["shard"] = _shards(batch)
    return pa.RecordBatch.from_arrays([columns[name] for name in SHARDED.names], schema=SHARDED)


def _shards(batch: Batch) -> pa.Array:
    """`#S` as text, of whatever type it is."""
    parts = [
        (values.dictionary_decode() if pa.types.is_dictionary(values.type) else values).cast(pa.string())
        for values in batch.attributes().get(SHARD, [])
    ]
    return pc.coalesce(*parts) if parts else pa.nulls(batch.count, pa.string())


def packed(batches: list[pa.RecordBatch]) -> bytes:
    """Rows as bytes that a partition carries to its task."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SHARDED) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> Iterator[pa.RecordBatch]:
    reader: Any = pa.ipc.open_stream(data)
    yield from reader

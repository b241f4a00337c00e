"""Where a stream begins and ends, and what stands at a place in it: for clients that plan before they
read."""

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.checksum import crc32c
from qanat.log.reader import Truncated
from qanat.serving.served_stream import ServedStream
from qanat.wire.streams import Look, Seen


def look(stream: ServedStream, message: Look) -> Seen:
    log, readable = stream.log, stream.readable
    start = _start(stream, message)
    within = readable
    if message.bytes > 0 and log.first <= start <= readable:
        within = min(readable, log.within(start, message.bytes))
    return Seen(
        subscription=message.subscription,
        start=start,
        first=log.first,
        readable=readable,
        within=within,
        born_us=log.born_us,
        mark=mark_at(stream, start - 1),
        end_mark=mark_at(stream, within),
    )


def _start(stream: ServedStream, message: Look) -> int:
    end = stream.readable + 1
    if message.start_us is not None:
        return min(stream.log.seek_time(message.start_us), end)
    match message.start:
        case "earliest":
            return min(stream.log.first, end)
        case "latest":
            return end
        case number:
            return number


def mark_at(stream: ServedStream, seq: int) -> str:
    """What tells the event of this number from another one, and is the same at every replica of every region.

    An event keeps its bytes until it is collected; then nothing is left to compare.
    """
    if not stream.log.first <= seq <= stream.readable:
        return ""
    chunk = stream.log.read(seq, 1, upto=stream.readable)
    if isinstance(chunk, Truncated):
        return ""
    for batch in chunk.batches():
        if batch.last >= seq:
            return _mark(batch, seq)
    return ""


def _mark(batch: Batch, seq: int) -> str:
    """Looks at that one row: a question is forty bytes, and a batch may have a million rows."""
    row = seq - batch.first if batch.is_dense else int(np.searchsorted(batch.seqs(), np.uint64(seq)))
    if row >= batch.count:
        return ""
    one = batch.slice(row, row + 1)
    if one.last != seq or one.kind(0) is Kind.TOMBSTONE:
        return ""
    return f"{int(one.times()[0]):x}-{crc32c(one.payload(0), crc32c(one.key(0))):08x}"

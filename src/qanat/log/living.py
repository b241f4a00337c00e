"""What of a log is alive: events that no GC event and no policy names, as far as is known when they are read.

An event that is named stays in its segment until that is rewritten. Who wants none of these asks here, a
chunk at a time; all tests are on columns.
"""

from typing import NamedTuple

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.log.reader import Chunk
from qanat.log.stream_log import StreamLog


class Living(NamedTuple):
    """Rows that are alive, without tombstones. If some were left out, nothing behind `asof` is the reason."""

    batches: list[Batch]
    asof: int


def living(log: StreamLog, chunk: Chunk) -> Living | None:
    """None if the chunk's segment was rewritten since it was read: read it again."""
    store, _, _, collection = log.parts
    found, out = [], False
    with store.lock:
        segment = store.segment_of(chunk.first)
        if segment.name != chunk.file:
            return None
        asof = store.next - 1
        for batch in chunk.batches():
            if not batch.count:
                continue
            dead = collection.is_dead(segment, batch.seqs())
            kinds = batch.kinds
            graves = np.zeros(batch.count, bool) if kinds is None else kinds == Kind.TOMBSTONE
            out = out or bool((dead & ~graves).any())
            dead = dead | graves
            if not dead.any():
                found.append(batch)
            elif not dead.all():
                found.append(batch.take(~dead))
    return Living(found, asof if out else chunk.last)


def find_dead(log: StreamLog, budget_bytes: int, now_us: int) -> int:
    """Looks for what GC events match, through about so many bytes; the first one that is not done, `next` if
    all are. For a worker thread."""
    return log.parts.collection.find(budget_bytes, now_us)

"""What a log holds and costs, in numbers."""

from typing import NamedTuple

from qanat.log.collector import Collector
from qanat.log.key_index import KEY_BYTES
from qanat.log.positions import SOURCE_BYTES
from qanat.log.store import Store


class Stats(NamedTuple):
    """For metrics, and for the budget of memory."""

    segments: int
    bytes: int
    rows: int
    dead_rows: int
    index_bytes: int
    tail_bytes: int
    keys: int
    sources: int
    hunts: int
    prefix: int

    @property
    def remembered_bytes(self) -> int:
        """Kept in memory beside the events, about."""
        return self.tail_bytes + self.index_bytes + KEY_BYTES * self.keys + SOURCE_BYTES * self.sources


def stats_of(store: Store, collector: Collector, sources: int) -> Stats:
    """Under the log's lock."""
    segments = store.segments
    return Stats(
        segments=len(segments),
        bytes=store.bytes,
        rows=sum(segment.rows for segment in segments),
        dead_rows=sum(segment.graves.count for segment in segments) + collector.marks_waiting,
        index_bytes=sum(segment.index_bytes + segment.graves.bytes for segment in segments),
        tail_bytes=store.tail.bytes,
        keys=0 if collector.keys is None else len(collector.keys),
        sources=sources,
        hunts=len(collector.hunts),
        prefix=collector.prefix,
    )

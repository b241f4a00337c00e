"""A log to collect garbage in, and what is left of its events."""

from __future__ import annotations

from typing import Any

from qanat.events.batch import Batch, stream_id
from qanat.log import Chunk, LogConfig, StreamLog
from qanat.log.checker import Event, Grave, rows_of
from qanat.log.crash_disk import CrashDisk

STREAM = stream_id("collection")


def opened(disk: CrashDisk | None = None, **options: Any) -> StreamLog:
    defaults: dict[str, Any] = {"mode": "interval", "segment_bytes": 64 * 1024, "index_stride_bytes": 1024}
    return StreamLog.open(disk or CrashDisk(), "log", STREAM, LogConfig(**{**defaults, **options}))


def events(count: int, *, key: Any = None, time_us: Any = None, first: int = 0, **columns: Any) -> Batch:
    """Numbered payloads of 100 bytes; `key` and `time_us` are functions of the number."""
    numbers = range(first, first + count)
    return Batch.build(
        STREAM,
        [b"%08d" % i + bytes(92) for i in numbers],
        keys=None if key is None else [key(i) for i in numbers],
        times=None if time_us is None else [time_us(i) for i in numbers],
        **columns,
    )


def rows(log: StreamLog, start: int = 1) -> list[Event | Grave]:
    found: list[Batch] = []
    while start < log.next:
        chunk = log.read(start, 1 << 20)
        assert isinstance(chunk, Chunk)
        found += chunk.batches()
        start = chunk.last + 1
    return rows_of(found)


def alive(log: StreamLog) -> list[int]:
    return [row.seq for row in rows(log) if isinstance(row, Event)]


def collect(log: StreamLog) -> None:
    while log.collect(everything=True).more:
        pass

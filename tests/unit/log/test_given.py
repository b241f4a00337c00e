"""Batches whose memory the log is given: kept and written where they lie, and read as any others."""

from __future__ import annotations

import pytest

from qanat.events.batch import Batch, stream_id
from qanat.log import LogConfig, StreamLog
from qanat.log.crash_disk import CrashDisk
from qanat.log.reader import Chunk

STREAM = stream_id("s")
LARGE, SMALL = 256 * 1024, 1024


def made(byte: int, size: int, position: int, count: int = 1) -> bytearray:
    built = Batch.build(STREAM, [bytes([byte]) * size] * count, source="writer", position=position)
    return bytearray(built.encode())


def contents(log: StreamLog) -> list[tuple[int, int]]:
    """(sequence number, first byte) of every event."""
    found: list[tuple[int, int]] = []
    at = 1
    while True:
        chunk = log.read(at, 1 << 20, upto=log.next - 1)
        assert isinstance(chunk, Chunk)
        if not chunk.data:
            return found
        for batch in chunk.batches():
            checked = Batch.decode(bytes(batch.encode()))
            found += [(checked.first + i, checked.payload(i)[0]) for i in range(checked.count)]
        at = chunk.last + 1


def test_large_ones_stay_where_they_came_and_small_ones_are_copied() -> None:
    disk = CrashDisk()
    log = StreamLog.open(disk, "s", STREAM, LogConfig(mode="interval"))
    buffers = [made(1, LARGE, 1), made(2, SMALL, 2), made(3, LARGE, 3), made(4, SMALL, 4)]
    for buffer in buffers:
        log.append(Batch.decode(memoryview(buffer)), given=True)
    assert contents(log) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert Batch.decode(buffers[2]).first == 3, "it was numbered where it lies"
    assert Batch.decode(buffers[1]).first == 0
    log.sync()
    log.close()
    again = StreamLog.open(disk, "s", STREAM, LogConfig(mode="interval"))
    assert contents(again) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    again.close()


def test_what_cannot_be_written_to_is_copied() -> None:
    log = StreamLog.open(CrashDisk(), "s", STREAM, LogConfig(mode="interval"))
    data = bytes(made(1, LARGE, 1))
    log.append(Batch.decode(data), given=True)
    assert contents(log) == [(1, 1)]
    assert Batch.decode(data).first == 0
    log.close()


def test_of_a_repetition_only_the_new_rows_are_kept() -> None:
    log = StreamLog.open(CrashDisk(), "s", STREAM, LogConfig(mode="interval"))
    log.append(Batch.decode(made(1, LARGE, 1)), given=True)
    appended = log.append(Batch.decode(made(2, LARGE, 1, count=2)), given=True)
    assert (appended.first, appended.last, appended.dropped) == (2, 2, 1)
    assert contents(log) == [(1, 1), (2, 2)]
    log.close()


@pytest.mark.parametrize("tail_bytes", [0, LARGE, 4 * LARGE])
def test_the_newest_bytes_stay_bounded(tail_bytes: int) -> None:
    log = StreamLog.open(CrashDisk(), "s", STREAM, LogConfig(mode="interval", tail_bytes=tail_bytes))
    for i in range(20):
        size = LARGE if i % 3 else SMALL
        log.append(Batch.decode(made(i, size, i + 1)), given=True)
        assert log.stats().tail_bytes <= max(tail_bytes, 1 << 20), (
            "the newest block may be over the bound alone"
        )
    assert contents(log) == [(i + 1, i) for i in range(20)]
    log.close()

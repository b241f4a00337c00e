"""Appending: numbering, modes, source positions, numbered batches, full and failing disks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.servers.small_disk import small_disk

from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.errors import LocalError, MalformedBatch
from qanat.events.tombstones import gc_event, tombstone
from qanat.log import (
    Chunk,
    DiskFailed,
    DiskFull,
    LogClosed,
    LogConfig,
    NotForThisLog,
    OsDisk,
    Policy,
    PositionGap,
    PositionOrder,
    SequenceGap,
    SourceLimit,
    StreamLog,
    Truncated,
)
from qanat.log.crash_disk import CrashDisk
from qanat.log.errors import PositionLeap, TimeAhead
from qanat.log.positions import LEAP_MAX

STREAM = stream_id("append")


def opened(disk: CrashDisk | None = None, **options: Any) -> StreamLog:
    return StreamLog.open(disk or CrashDisk(), "log", STREAM, LogConfig(**options))


def batch(*payloads: bytes, **columns: Any) -> Batch:
    return Batch.build(STREAM, list(payloads), **columns)


def contents(log: StreamLog) -> list[bytes]:
    found: list[bytes] = []
    start = log.first
    while start < log.next:
        chunk = log.read(start, 1 << 20, upto=log.next - 1)
        assert isinstance(chunk, Chunk)
        for one in chunk.batches():
            found += one.payloads().to_pylist()
        start = chunk.last + 1
    return found


@pytest.mark.paper("S11")
def test_always_reads_only_what_is_durable_and_the_other_modes_everything() -> None:
    log = opened(mode="always")
    assert log.append(batch(b"a", b"b")) == (1, 2, 0)
    assert (log.next, log.durable, log.readable) == (3, 0, 0)
    assert log.read(1, 1000) == Chunk([], 1, 0)
    assert log.sync() == 2
    log.append(batch(b"c"))
    chunk = log.read(1, 1000)
    assert (chunk.first, chunk.last) == (1, 2)
    for mode in ("interval", "memory"):
        log = opened(mode=mode)
        log.append(batch(b"a", b"b"))
        assert log.read(1, 1000).last == 2


@pytest.mark.paper("S11")
def test_memory_touches_no_disk_and_drops_the_oldest_at_its_bound() -> None:
    disk = CrashDisk()
    log = opened(disk, mode="memory", segment_bytes=64 * 1024, retain_bytes=256 * 1024, tail_bytes=0)
    for i in range(100):
        log.append(batch(b"%04d" % i + bytes(10_000)))
    assert not disk.names and log.stats().bytes < 400 * 1024
    lost = log.read(1, 1000)
    assert isinstance(lost, Truncated) and lost.first == 1 and lost.last == log.first - 1 > 0
    assert [payload[:4] for payload in contents(log)] == [b"%04d" % i for i in range(lost.last, 100)]


def test_what_a_source_sends_again_is_dropped() -> None:
    log = opened()
    assert log.append(batch(b"1", b"2", b"3", source="w", position=10)) == (1, 3, 0)
    assert log.append(batch(b"1", b"2", b"3", source="w", position=10)) == (4, 3, 3)
    assert log.append(batch(b"3", b"4", source="w", position=12)) == (4, 4, 1)
    with pytest.raises(PositionGap, match="must continue at position 14, not at 15") as gap:
        log.append(batch(b"6", source="w", position=15))
    assert gap.value.definite and (gap.value.expected, gap.value.got) == (14, 15)
    assert contents(log) == [b"1", b"2", b"3", b"4"]


def test_positions_with_indexes_only_rise() -> None:
    log = opened()

    def positions(*pairs: tuple[int, int]) -> Batch:
        sequences, indexes = zip(*pairs, strict=True)
        return batch(
            *[b"%d:%d" % pair for pair in pairs],
            source="s",
            positions=(np.array(sequences), np.array(indexes)),
        )

    assert log.append(positions((5, 0), (5, 1), (9, 0))).dropped == 0
    assert log.append(positions((5, 1), (9, 0), (9, 1), (40, 7))).dropped == 2
    with pytest.raises(PositionOrder, match="must rise"):
        log.append(positions((50, 1), (50, 1)))
    assert contents(log) == [b"5:0", b"5:1", b"9:0", b"9:1", b"40:7"]
    assert log.positions() == {"s": (40, 7)}


def test_sources_are_bounded_and_known_ones_go_on() -> None:
    log = opened(sources_max=2)
    log.append(batch(b"a", source="a", position=1))
    log.append(batch(b"b", source="b", position=1))
    with pytest.raises(SourceLimit, match="sources_max"):
        log.append(batch(b"c", source="c", position=1))
    assert log.append(batch(b"a", source="a", position=2)).dropped == 0
    assert contents(log) == [b"a", b"b", b"a"]


def test_passing_sources_make_room_and_lasting_ones_stay() -> None:
    log = opened(sources_max=3)
    log.append(batch(b"x", source="lasting", position=1))
    log.append(batch(b"x", source="~1", position=1))
    log.append(batch(b"x", source="~2", position=1))
    log.append(batch(b"x", source="~1", position=2))
    log.append(batch(b"x", source="~3", position=1))
    assert set(log.positions()) == {"lasting", "~1", "~3"}
    log.append(batch(b"x", source="another", position=1))
    assert set(log.positions()) == {"lasting", "another", "~3"}
    assert log.position("lasting") == (1, 0)
    assert log.position("~2") == (0, 0)


def test_rows_of_several_sources_are_dropped_each_by_its_own() -> None:
    from qanat.events.join import concat

    log = opened()
    log.append(batch(b"a1", b"a2", source="a", position=1))
    mixed = concat(
        [
            batch(b"a2", b"a3", source="a", position=2, first=1),
            batch(b"b1", source="b", position=1, first=3),
            batch(b"a4", source="a", position=4, first=4),
        ]
    )
    assert log.append(mixed).dropped == 1
    assert contents(log) == [b"a1", b"a2", b"a3", b"b1", b"a4"]
    assert log.append(mixed).dropped == 4


def test_positions_survive_rewriting_and_reopening() -> None:
    disk = CrashDisk()
    options: dict[str, Any] = {"policy": Policy(by_key=True), "segment_bytes": 64 * 1024}
    log = opened(disk, **options)
    for i in range(40):
        log.append(batch(bytes(5000), keys=[b"k"], source=f"s{i % 3}", position=1 + i // 3))
    expected = log.positions()
    log.collect(everything=True)
    log.close()
    disk.crash()
    again = opened(disk, **options)
    assert again.positions() == expected
    assert again.stats().rows == 1


def test_numbered_batches_continue_overlap_or_are_refused() -> None:
    owner, replica = opened(mode="interval"), opened(mode="interval")
    owner.append(batch(b"1", b"2", b"3", source="w", position=1))
    owner.append(batch(b"4", b"5", source="w", position=4))
    stored = list(owner.read(1, 1 << 20).batches())  # type: ignore[union-attr]
    with pytest.raises(SequenceGap, match="but 1 comes next"):
        replica.append_numbered(stored[1])
    assert replica.append_numbered(stored[0]) == (1, 3, 0)
    assert replica.append_numbered(stored[0]) == (4, 3, 3)
    overlapping = Batch.build(STREAM, [b"3", b"4", b"5"], first=3, source="w", position=3)
    assert replica.append_numbered(overlapping) == (4, 5, 1)
    assert contents(replica) == contents(owner)
    assert replica.positions() == {"w": (5, 0)}
    with pytest.raises(SequenceGap, match="left out"):
        replica.append_numbered(Batch.build(STREAM, [b"6", b"8"], first=6, seqs=[6, 8]))
    with pytest.raises(NotForThisLog):
        replica.append_numbered(Batch.build(1, [b"6"], first=6))


def test_a_tombstone_from_elsewhere_replaces_and_may_reach_back() -> None:
    log = opened(mode="interval")
    log.append_numbered(batch(b"1", b"2", first=1))
    assert log.append_numbered(tombstone(STREAM, 1, 7)) == (3, 7, 0)
    log.append_numbered(batch(b"8", first=8))
    rows = [(one.kind(0), one.first, one.last) for one in log.read(3, 1 << 20).batches()]  # type: ignore[union-attr]
    assert rows[-2:] == [(Kind.TOMBSTONE, 3, 7), (Kind.DATA, 8, 8)]


def test_what_is_not_for_this_log_is_refused_whole() -> None:
    log = opened()
    with pytest.raises(NotForThisLog, match="stream"):
        log.append(Batch.build(7, [b"x"]))
    with pytest.raises(NotForThisLog, match="tombstones"):
        log.append(tombstone(STREAM, 1, 3))
    with pytest.raises(NotForThisLog, match="@gc"):
        log.append(Batch.build(STREAM, [b"x"], first=1, kinds=[Kind.GC]))
    with pytest.raises(NotForThisLog, match="does not parse"):
        log.append(gc_event(STREAM, "colour = ("))
    assert log.next == 1


def test_a_full_disk_refuses_definitely_and_goes_on_without_restart() -> None:
    disk = CrashDisk()
    log = opened(disk, segment_bytes=64 * 1024, tail_bytes=0)
    stored = []
    log.append(batch(b"kept"))
    stored.append(b"kept")
    log.sync()
    for room in [*range(0, 400, 7), 5000]:
        disk.capacity = sum(len(inode.data) for inode in disk.names.values()) + room
        try:
            log.append(batch(b"x" * 300, source="w", position=len(stored)))
            stored.append(b"x" * 300)
        except DiskFull as refusal:
            assert refusal.definite
        assert contents(log) == stored
        disk.capacity = None
        log.append(batch(b"y" * 50, source="w", position=len(stored)))
        stored.append(b"y" * 50)
    log.sync()
    disk.crash()
    assert contents(opened(disk)) == stored


def test_a_disk_that_fills_up_at_the_start_of_a_segment() -> None:
    disk = CrashDisk()
    log = opened(disk, segment_bytes=64 * 1024)
    for _ in range(6):
        log.append(batch(bytes(10_000)))
    log.sync()
    disk.capacity = sum(len(inode.data) for inode in disk.names.values()) + 2000
    with pytest.raises(DiskFull):
        log.append(batch(bytes(10_000)))
    disk.capacity = None
    log.append(batch(b"after"))
    log.append(batch(bytes(10_000)))
    log.sync()
    disk.crash()
    assert contents(opened(disk))[-2] == b"after"


def test_a_failed_sync_stops_the_log_and_acknowledges_nothing() -> None:
    disk = CrashDisk()
    log = opened(disk)
    log.append(batch(b"a"))
    log.sync()
    log.append(batch(b"b"))
    disk.sync_error = True
    with pytest.raises(DiskFailed) as failure:
        log.sync()
    assert not failure.value.definite and log.durable == 1
    disk.sync_error = False
    with pytest.raises(LogClosed, match="sync failed"):
        log.append(batch(b"c"))
    with pytest.raises(LogClosed):
        log.sync()
    assert contents(log) == [b"a", b"b"]
    assert contents(opened(disk))[0] == b"a"


def test_a_real_disk_that_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "1m"):
        log = StreamLog.open(
            OsDisk(), str(tmp_path / "small/log"), STREAM, LogConfig(segment_bytes=256 * 1024)
        )
        ballast = tmp_path / "small/ballast"
        ballast.write_bytes(bytes(200 * 1024))
        count = 0
        with pytest.raises(DiskFull, match="free some space"):
            while True:
                log.append(batch(b"%06d" % count + bytes(20_000)))
                count += 1
        assert count > 10
        log.sync()
        assert len(contents(log)) == count
        ballast.unlink()
        log.append(batch(b"%06d" % count))
        log.sync()
        log.close()
        again = StreamLog.open(
            OsDisk(), str(tmp_path / "small/log"), STREAM, LogConfig(segment_bytes=256 * 1024)
        )
        assert [payload[:6] for payload in contents(again)] == [b"%06d" % i for i in range(count + 1)]
        again.close()


def test_group_commit_one_sync_serves_all_that_waited() -> None:
    disk = CrashDisk()
    log = opened(disk)
    started, go = threading.Event(), threading.Event()

    def slow() -> None:
        if threading.current_thread().name == "first":
            started.set()
            assert go.wait(10)

    log.append(batch(b"a"))
    disk.on_step = slow
    first = threading.Thread(target=log.sync, name="first")
    first.start()
    assert started.wait(10)
    log.append(batch(b"b"))  # while the first sync waits for the disk
    waiting = [threading.Thread(target=log.sync) for _ in range(8)]
    for thread in waiting:
        thread.start()
    before = disk.operations
    go.set()
    for thread in [first, *waiting]:
        thread.join(10)
    assert log.durable == 2
    assert disk.operations - before <= 6  # two syncs and their marks, not nine


@pytest.mark.parametrize(
    "options",
    [
        {"segment_bytes": 1},
        {"interval_ms": 0},
        {"rewrite_dead_fraction": 0.0},
        {"policy": Policy(by_key=True), "index_keys_max": 0},
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        LogConfig(**options)


def test_a_wrong_policy_is_refused() -> None:
    with pytest.raises(LocalError, match="keep_last"):
        Policy(keep_last=0)
    with pytest.raises(LocalError, match="age_ms"):
        Policy(age_ms=0)


def test_a_folder_of_another_stream_is_refused() -> None:
    disk = CrashDisk()
    opened(disk).close()
    with pytest.raises(LocalError, match="holds stream"):
        StreamLog.open(disk, "log", 5)


@pytest.mark.paper("S11")
def test_a_stream_ends_at_its_last_number_and_stays_whole() -> None:
    """What is numbered past the end could not be read again, so it is refused before it is written."""
    disk = CrashDisk()
    log = opened(disk)
    log.append_numbered(tombstone(STREAM, 1, (1 << 63) - 2))
    with pytest.raises(NotForThisLog, match="end at 2"):
        log.append(batch(b"a", b"b"))
    assert log.append(batch(b"last")).last == (1 << 63) - 1
    with pytest.raises(NotForThisLog, match="publish to a new stream"):
        log.append(batch(b"a"))
    log.close()
    log = opened(disk)
    assert (log.next, log.read((1 << 63) - 1, 1).last) == (1 << 63, (1 << 63) - 1)


@pytest.mark.paper("S11")
def test_a_source_at_the_highest_position_stops_nothing() -> None:
    """The highest positions there are go into the manifest and come back from it."""
    disk = CrashDisk()
    log = opened(disk, segment_bytes=64 * 1024)
    top = (1 << 63) - 1
    log.append(batch(b"a", source="dense", position=top))
    log.append(batch(b"a", source="sparse", positions=(np.array([top], np.uint64), np.array([2**32 - 1]))))
    assert log.append(batch(b"a", source="sparse", position=1)).dropped == 1
    for _ in range(3):
        log.append(batch(bytes(60_000)))
        log.sync()
    log.close()
    log = opened(disk, segment_bytes=64 * 1024)
    assert log.positions() == {"dense": (top, 0), "sparse": (top, 2**32 - 1)}


def test_a_source_does_not_leap_to_where_all_that_it_publishes_later_would_be_a_repetition() -> None:
    log = opened()
    log.append(batch(b"a", source="feed", positions=(np.array([5], np.uint64), np.array([0], np.uint32))))
    for leap in (1 << 62, (1 << 63), (1 << 64) - 1):
        with pytest.raises(PositionLeap) as caught:
            log.append(
                batch(b"b", source="feed", positions=(np.array([leap], np.uint64), np.array([0], np.uint32)))
            )
        assert caught.value.definite
    with pytest.raises(PositionLeap):
        log.append(
            batch(b"b", source="new", positions=(np.array([1 << 63], np.uint64), np.array([0], np.uint32)))
        )
    near = 5 + LEAP_MAX
    assert (
        log.append(
            batch(b"c", source="feed", positions=(np.array([near], np.uint64), np.array([0], np.uint32)))
        ).dropped
        == 0
    )
    assert (
        log.append(
            batch(b"d", source="lsn", positions=(np.array([1 << 62], np.uint64), np.array([0], np.uint32)))
        ).dropped
        == 0
    )
    assert log.positions() == {"feed": (near, 0), "lsn": (1 << 62, 0)}


def test_a_batch_without_its_payloads_is_refused() -> None:
    with pytest.raises(MalformedBatch, match="simulations"):
        opened().append(Batch.build(STREAM, (3, 10), ghost=True))


def test_an_event_is_dated_no_later_than_clocks_differ() -> None:
    log = opened()
    with pytest.raises(TimeAhead) as caught:
        log.append(batch(b"a", time_us=11), latest_us=10)
    assert caught.value.definite
    with pytest.raises(TimeAhead):
        log.append(batch(b"a", b"b", times=[3, 11]), latest_us=10)
    with pytest.raises(TimeAhead, match="before all time"):
        log.append(batch(b"a", time_us=-(1 << 63)), latest_us=10)
    assert log.append(batch(b"a", time_us=10), latest_us=10).first == 1

"""Files that a publisher has laid down become segments as they are, at any moment of which the power may
go."""

from __future__ import annotations

from itertools import count

import pytest

from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.errors import MalformedBatch
from qanat.log import LogConfig, Policy, StreamLog
from qanat.log.crash_disk import CrashDisk, PowerCut
from qanat.log.errors import NotForThisLog, PositionGap
from qanat.log.reader import Chunk
from qanat.log.segment_file import HEAD_BYTES

STREAM, NAME = stream_id("s"), "x-1.staged.tmp"
CONFIG = LogConfig(mode="interval", segment_bytes=64 * 1024)


def batch(first: int, n: int, stream: int = STREAM, **columns: object) -> Batch:
    """Events that are named by their numbers."""
    return Batch.build(
        stream, [b"%d" % i for i in range(first, first + n)], source="w", position=first, **columns
    )


def lay_down(disk: CrashDisk, *batches: Batch, more: bytes = b"") -> None:
    file = disk.open(f"s/{NAME}")
    file.write(bytes(HEAD_BYTES) + b"".join(bytes(each.encode()) for each in batches) + more)
    file.close()


def names(log: StreamLog) -> list[tuple[int, int]]:
    """(sequence number, name) of every event, each checked."""
    found: list[tuple[int, int]] = []
    while True:
        chunk = log.read(len(found) + 1, 1 << 20, upto=log.next - 1)
        assert isinstance(chunk, Chunk)
        if not chunk.data:
            return found
        for each in chunk.batches():
            checked = Batch.decode(bytes(each.encode()))
            found += [(checked.first + i, int(checked.payload(i))) for i in range(checked.count)]


def upto(n: int) -> list[tuple[int, int]]:
    return [(i, i) for i in range(1, n + 1)]


def test_a_file_becomes_a_segment_without_being_copied() -> None:
    disk = CrashDisk()
    log = StreamLog.open(disk, "s", STREAM, CONFIG)
    log.append(batch(1, 10))
    lay_down(disk, batch(11, 10), batch(21, 5))
    laid = disk.names[f"s/{NAME}"]
    assert log.adopt(NAME) == (11, 25, 0)
    assert laid in disk.names.values() and NAME not in disk.list("s")
    assert names(log) == upto(25) and log.stats().segments == 2
    log.append(batch(26, 5))  # goes on behind it
    assert log.stats().segments == 2
    log.sync()
    log.close()
    again = StreamLog.open(disk, "s", STREAM, CONFIG)
    assert names(again) == upto(30) and again.position("w") == (30, 0)


def test_the_power_may_go_at_any_moment() -> None:
    """What was synced is there afterwards, in order; what follows it is there or not, from its beginning."""
    for step in count(1):
        disk = CrashDisk(step)
        synced = 0
        try:
            log = StreamLog.open(disk, "s", STREAM, CONFIG)
            disk.cut_at = disk.operations + step
            log.append(batch(1, 10))
            synced = log.sync()
            for first in (11, 31):
                lay_down(disk, batch(first, 10), batch(first + 10, 10))
                assert log.adopt(NAME) is not None
                log.append(batch(first + 20, 0))
                if first == 31:
                    synced = log.sync()
            disk.cut_at = None
            break
        except PowerCut:
            disk.cut_at = None
        disk.crash()
        found = StreamLog.open(disk, "s", STREAM, CONFIG)
        assert found.next - 1 >= synced
        assert names(found) == upto(found.next - 1)
        assert NAME not in disk.list("s")
        lay_down(disk, batch(found.next, 7))
        if found.adopt(NAME) is None:
            found.append(found.staged(NAME)[0])
        assert names(found) == upto(found.next - 1)
    assert step > 12


@pytest.mark.parametrize(
    "why", ["nothing is there yet", "some of it is had", "it is larger than a segment", "it has GC events"]
)
def test_what_cannot_be_taken_over_is_left_to_be_copied(why: str) -> None:
    disk = CrashDisk()
    log = StreamLog.open(disk, "s", STREAM, CONFIG)
    if why != "nothing is there yet":
        log.append(batch(1, 10))
    first = {"nothing is there yet": 1, "some of it is had": 8}.get(why, 11)
    if why == "it is larger than a segment":
        lay_down(disk, Batch.build(STREAM, [bytes(1000)] * 100, source="w", position=first))
    elif why == "it has GC events":
        lay_down(disk, batch(first, 1, kinds=[1], attributes=[{"gc": "upto 3"}]))
    else:
        lay_down(disk, batch(first, 10))
    before = log.next
    assert log.adopt(NAME) is None
    assert log.next == before and NAME in disk.list("s")
    (held,) = log.staged(NAME)
    assert held.count in (1, 10, 100)
    log.discard("x-")
    assert NAME not in disk.list("s")


def test_what_is_damaged_or_does_not_belong_here_is_refused_and_nothing_is_stored() -> None:
    disk = CrashDisk()
    log = StreamLog.open(disk, "s", STREAM, CONFIG)
    log.append(batch(1, 10))
    damaged = bytearray(batch(11, 10).encode())
    damaged[-3] ^= 1
    for error, laid in [
        (MalformedBatch, lambda: lay_down(disk, batch(11, 3), more=bytes(damaged))),
        (MalformedBatch, lambda: lay_down(disk, batch(11, 3), more=b"QNTB")),
        (MalformedBatch, lambda: lay_down(disk)),
        (PositionGap, lambda: lay_down(disk, batch(11, 3), batch(20, 3))),
        (NotForThisLog, lambda: lay_down(disk, batch(11, 3, stream=STREAM + 1))),
    ]:
        laid()
        with pytest.raises(error):
            log.adopt(NAME)
        assert names(log) == upto(10) and log.position("w") == (10, 0)
        log.discard("x-")


def test_policies_learn_what_was_taken_over() -> None:
    disk = CrashDisk()
    config = LogConfig(mode="interval", segment_bytes=64 * 1024, policy=Policy(by_key=True))
    log = StreamLog.open(disk, "s", STREAM, config)
    log.append(batch(1, 2, keys=[b"a", b"b"]))
    lay_down(disk, batch(3, 2, keys=[b"a", b"c"]))
    assert log.adopt(NAME) is not None
    log.collect(everything=True)
    kept, at = [], 1
    while at < log.next:
        chunk = log.read(at, 1 << 20, upto=4)
        assert isinstance(chunk, Chunk)
        for each in chunk.batches():
            kept += [each.payload(i) for i in range(each.count) if each.kind(i) == Kind.DATA]
        at = chunk.last + 1
    assert kept == [b"2", b"3", b"4"]


def test_many_small_segments_do_not_become_more() -> None:
    disk = CrashDisk()
    log = StreamLog.open(disk, "s", STREAM, CONFIG)
    log.append(batch(1, 1))
    taken = 0
    for first in range(2, 400):
        lay_down(disk, batch(first, 1))
        if log.adopt(NAME) is None:
            log.append(log.staged(NAME)[0])
            log.discard("x-")
        else:
            taken += 1
    assert taken == 255 and log.stats().segments == 256
    assert names(log) == upto(399)


def test_files_of_a_fifth_of_a_segment_are_taken_however_many_there_are() -> None:
    """What a publisher lays down is not much larger; and now and then there is a rest."""
    disk = CrashDisk()
    log = StreamLog.open(disk, "s", STREAM, CONFIG)
    log.append(batch(1, 1))
    for first in range(2, 300):
        size = 100 if first % 5 == 0 else CONFIG.segment_bytes // 5
        lay_down(disk, Batch.build(STREAM, [bytes(size)], source="w", position=first))
        assert log.adopt(NAME) is not None
    assert log.stats().segments == 299


def test_what_is_stored_is_known_as_had_whatever_fails_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a retry stores it no second time."""
    disk = CrashDisk()
    log = StreamLog.open(disk, "s", STREAM, LogConfig(mode="interval", policy=Policy(by_key=True)))
    log.append(batch(1, 10, keys=[b"k"] * 10))
    lay_down(disk, batch(11, 10, keys=[b"k"] * 10))

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(log._collector, "ingest", no_memory)
    with pytest.raises(MemoryError):
        log.adopt(NAME)
    monkeypatch.undo()
    assert log.append(batch(11, 10, keys=[b"k"] * 10)).dropped == 10
    assert log.next == 21

"""What was synced is written down apart from the log: an end, a file or a folder that vanished is noticed,
and so are older copies."""

from __future__ import annotations

import pytest

from qanat.events.batch import Batch, stream_id
from qanat.log import CorruptLog, LogConfig, StreamLog
from qanat.log.config import Policy
from qanat.log.crash_disk import CrashDisk
from qanat.log.manifest import NAME as MANIFEST

STREAM = stream_id("synced")
FOLDER, RECORD = "streams/log", "streams.synced/log"
CONFIG = LogConfig(segment_bytes=64 * 1024, policy=Policy(by_key=True), rewrite_dead_fraction=0.1)
EVENTS = 12


def opened(disk: CrashDisk, *, repair: bool = False) -> StreamLog:
    return StreamLog.open(disk, FOLDER, STREAM, CONFIG, synced=RECORD, repair=repair)


def a_life() -> list[CrashDisk]:
    """The disk after each step: events, segments, a rewriting; the last one is how it is in the end."""
    disk = CrashDisk()
    log = opened(disk)
    moments = [disk.copy()]
    for number in range(EVENTS):
        keys = [b"key %d" % (number % 3)]
        log.append(Batch.build(STREAM, [b"%d" % number + bytes(12_000)], keys=keys, time_us=1))
        log.sync()
        moments.append(disk.copy())
        if number == 8:
            log.collect()
            moments.append(disk.copy())
    return moments


def check_whole(disk: CrashDisk) -> None:
    log = opened(disk)
    assert (log.next, log.recovery_notes) == (EVENTS + 1, [])


def names(disk: CrashDisk) -> list[str]:
    return [f"{FOLDER}/{name}" for name in disk.list(FOLDER)]


def check_refused(disk: CrashDisk, whole: CrashDisk) -> None:
    """It is said, and nothing is removed or cut: with what was damaged put back, all is there."""
    with pytest.raises(CorruptLog):
        opened(disk)
    for path in whole.names:
        if path not in disk.names or disk.raw(path) != whole.raw(path):
            disk.open(path).truncate(0)
            disk.open(path).write(bytes(whole.raw(path)))
    check_whole(disk)


def test_a_file_that_vanished_or_lost_its_end_is_noticed_and_nothing_is_removed() -> None:
    whole = a_life()[-1]
    check_whole(whole.copy())
    assert len(names(whole)) > 3
    for path in names(whole):
        gone = whole.copy()
        gone.remove(path)
        check_refused(gone, whole)
        for size in (0, 10, whole.size(path) // 2, whole.size(path) - 1):
            short = whole.copy()
            short.open(path).truncate(size)
            check_refused(short, whole)


def test_an_older_copy_of_a_file_is_noticed_and_nothing_is_removed() -> None:
    moments = a_life()
    whole, tried = moments[-1], 0
    for earlier in moments[:-1]:
        for path in names(whole):
            if path in earlier.names and earlier.raw(path) != whole.raw(path):
                older = whole.copy()
                older.raw(path)[:] = earlier.raw(path)
                check_refused(older, whole)
                tried += 1
    assert tried > 12


def test_an_older_copy_of_the_folder_is_noticed() -> None:
    moments = a_life()
    for earlier in moments[:-1]:
        older = earlier.copy()
        older.raw(RECORD)[:] = moments[-1].raw(RECORD)
        with pytest.raises(CorruptLog):
            opened(older)


def test_a_folder_that_vanished_is_noticed() -> None:
    whole = a_life()[-1]
    gone = whole.copy()
    for path in names(whole):
        gone.remove(path)
    with pytest.raises(CorruptLog, match=f"events up to {EVENTS} were synced in {FOLDER}, as {RECORD} says"):
        opened(gone)
    assert names(gone) == []


def test_a_record_that_is_older_or_half_damaged_is_as_true() -> None:
    moments = a_life()
    for earlier in moments:
        older = moments[-1].copy()
        older.raw(RECORD)[:] = earlier.raw(RECORD)
        check_whole(older)
    for at in (20, 532):
        half = moments[-1].copy()
        half.raw(RECORD)[at] ^= 1
        check_whole(half)


@pytest.mark.parametrize("size", [None, 0, 700])
def test_a_record_that_is_gone_or_damaged_is_made_again_and_that_is_said(size: int | None) -> None:
    disk = a_life()[-1]
    if size is None:
        disk.remove(RECORD)
    else:
        disk.raw(RECORD)[:] = bytes(size)
    log = opened(disk)
    (note,) = log.recovery_notes
    assert (log.next, f"{RECORD} was " in note, "made again" in note) == (EVENTS + 1, True, True)
    check_whole(disk)


def test_a_log_that_never_held_anything_is_made_again() -> None:
    disk = a_life()[0]
    for path in names(disk):
        disk.remove(path)
    assert opened(disk).next == 1


def test_repair_gives_up_what_is_gone_and_says_so() -> None:
    disk = a_life()[-1]
    manifest = f"{FOLDER}/{MANIFEST}"
    del disk.raw(max(path for path in names(disk) if path != manifest))[20_000:]
    log = opened(disk, repair=True)
    assert log.recovery_notes and log.next < EVENTS + 1
    log.close()
    assert opened(disk).next == log.next


def test_the_end_of_a_stream_is_remembered_though_its_marks_are_damaged_too() -> None:
    """After `kill -9` the record is exact: not one batch of the last sync may be taken for a torn write."""
    disk = a_life()[-1]
    newest = max(path for path in names(disk) if path.endswith(".seg"))
    disk.raw(newest)[512:544] = disk.raw(newest)[1024:1056] = bytes(32)
    del disk.raw(newest)[-1:]
    with pytest.raises(CorruptLog, match="only 12095 are left"):
        opened(disk)

"""Files under collection: rewritten, dropped by retention, cut by power failures, too full, read
meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.unit.log.collecting import STREAM, alive, collect, events, opened, rows

from qanat.events.batch import Kind
from qanat.events.tombstones import GC_ATTRIBUTE, gc_event
from qanat.log import Chunk, DiskFailed, DiskFull, LogConfig, OsDisk, Policy, StreamLog, Truncated
from qanat.log import manifest as manifests
from qanat.log.checker import Event, Grave, check_history, rows_of
from qanat.log.crash_disk import CrashDisk, PowerCut


def workload(disk: CrashDisk, acknowledged: list[int]) -> StreamLog:
    log = opened(disk, mode="always", policy=Policy(by_key=True), rewrite_batch_bytes=4096)
    for i in range(0, 1200, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n * n % 97)))
        acknowledged[0] = log.sync()
        if i % 300 == 200:
            log.collect(everything=i > 600)
    log.append(gc_event(STREAM, "upto 150"))
    acknowledged[0] = log.sync()
    collect(log)
    return log


def published_by_workload() -> list[Event]:
    found = [Event(n + 1, b"%08d" % n + bytes(92), b"k%d" % (n * n % 97)) for n in range(1200)]
    return [*found, Event(1201, b"", b"", 0, Kind.GC, {GC_ATTRIBUTE: "upto 150"})]


@pytest.mark.paper("S2")
@pytest.mark.parametrize("orderly", [True, False])
def test_a_power_cut_at_any_operation_of_collecting_loses_nothing(orderly: bool) -> None:
    disk = CrashDisk()
    acknowledged = [0]
    workload(disk, acknowledged)
    published = published_by_workload()
    policy = Policy(by_key=True)
    for cut_at in range(1, disk.operations + 1):
        crashing = CrashDisk(cut_at, orderly=orderly)
        crashing.cut_at = cut_at
        acknowledged = [0]
        with pytest.raises(PowerCut):
            workload(crashing, acknowledged)
        crashing.crash()
        log = opened(crashing, mode="always", policy=policy, rewrite_batch_bytes=4096)
        survived = log.next - 1
        assert survived >= acknowledged[0]
        check_history(published[:survived], rows(log), policy)
        collect(log)
        check_history(published[:survived], rows(log), policy)


def test_a_disk_too_full_to_rewrite_harms_nothing() -> None:
    disk = CrashDisk()
    log = opened(disk, policy=Policy(by_key=True))
    for i in range(0, 1000, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n % 300)))
    log.sync()
    disk.capacity = sum(len(inode.data) for inode in disk.names.values()) + 9000
    with pytest.raises(DiskFull):
        collect(log)
    assert len(alive(log)) == 1000
    disk.capacity = None
    collect(log)
    assert alive(log) == list(range(701, 1001))


def test_a_rewrite_that_no_manifest_names_leaves_no_file() -> None:
    """No room for the manifest alone: each attempt would leave a whole segment behind, on a disk that is
    full."""
    disk = CrashDisk()
    log = opened(disk, policy=Policy(by_key=True))
    for i in range(0, 1000, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n % 300)))
    log.append(events(1, first=1000, key=lambda n: b"k0"))
    while log.collect(1, everything=True).rewritten_bytes:  # all that can be sealed is
        pass
    log.append(events(100, first=1000, key=lambda n: b"k%d" % (n % 300)))
    log.sync()
    before, opening = disk.list("log"), disk.open

    def refuse(path: str) -> Any:
        if path.endswith("manifest.tmp"):
            raise DiskFull("no space left")
        return opening(path)

    disk.open = refuse  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(DiskFull):
            log.collect(everything=True)
    assert set(disk.list("log")) - set(before) <= {log._store.segments[-1].name}
    disk.open = opening  # type: ignore[method-assign]
    collect(log)
    assert len(alive(log)) == 300
    log.close()
    assert alive(opened(disk, policy=Policy(by_key=True))) == alive(log)


def test_a_rewrite_stays_where_the_manifest_on_disk_names_it() -> None:
    """The manifest was replaced and only the folder's sync failed: whoever opens the log next needs the new
    file."""
    disk = CrashDisk()
    log = opened(disk, policy=Policy(by_key=True))
    for i in range(0, 1000, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n % 300)))
    log.sync()
    renaming, syncing = disk.rename, disk.sync_folder
    renamed: list[str] = []

    def rename(old: str, new: str) -> None:
        renaming(old, new)
        named = manifests.load(disk, "log", STREAM)
        if named is not None and any(each.generation > 2 for each in named.sealed):
            renamed.append(new)

    def refuse(path: str) -> None:
        if renamed:
            raise DiskFailed("the test's disk failed to sync")
        syncing(path)

    disk.rename, disk.sync_folder = rename, refuse  # type: ignore[method-assign]
    with pytest.raises(DiskFailed):
        collect(log)
    disk.rename, disk.sync_folder = renaming, syncing  # type: ignore[method-assign]
    assert renamed
    again = opened(disk, policy=Policy(by_key=True))
    collect(again)
    assert alive(again) == list(range(701, 1001))


def test_files_do_not_multiply_and_the_disk_is_given_back() -> None:
    disk = CrashDisk()
    log = opened(disk, policy=Policy(by_key=True))
    for i in range(0, 20_000, 200):
        log.append(events(200, first=i, key=lambda n: b"k%d" % (n % 50)))
        log.collect()
    while log.collect().more:
        pass
    assert log.stats().segments <= 4
    assert sum(len(inode.data) for inode in disk.names.values()) < 200 * 1024
    assert len(disk.list("log")) <= 5


def test_readers_keep_their_views_while_segments_are_rewritten() -> None:
    log = opened(policy=Policy(by_key=True), tail_bytes=0)
    log.append(events(500, key=lambda n: b"k%d" % (n % 10)))
    log.append(events(500, first=500, key=lambda n: b"k%d" % (n % 10)))
    chunk = log.read(1, 1 << 20)
    assert isinstance(chunk, Chunk)
    collect(log)
    assert [row.seq for row in rows_of(chunk.batches()) if isinstance(row, Event)] == list(
        range(1, chunk.last + 1)
    )
    assert alive(log) == list(range(991, 1001))


def test_appends_reads_and_collection_in_threads(tmp_path: Any) -> None:
    config = LogConfig(
        mode="interval", policy=Policy(by_key=True), segment_bytes=64 * 1024, tail_bytes=16 * 1024
    )
    log = StreamLog.open(OsDisk(), str(tmp_path / "log"), STREAM, config)
    done = threading.Event()
    trouble: list[BaseException] = []

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                while not done.is_set():
                    work()
            except BaseException as error:
                trouble.append(error)

        return threading.Thread(target=run)

    def read() -> None:
        seen = 0
        for row in rows(log):
            first, last = (row.first, row.last) if isinstance(row, Grave) else (row.seq, row.seq)
            # Between two reads tombstones are joined: one that covers what comes next may begin earlier.
            assert first == seen + 1 or (isinstance(row, Grave) and first <= seen < last)
            seen = last

    threads = [guarded(read), guarded(read), guarded(log.sync), guarded(lambda: log.collect(everything=True))]
    for thread in threads:
        thread.start()
    for i in range(0, 12_000, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n % 61)))
    done.set()
    for thread in threads:
        thread.join(60)
    assert not trouble
    collect(log)
    assert alive(log) == list(range(12_000 - 60, 12_001))
    log.close()


def test_retention_drops_whole_segments_and_says_what_is_lost() -> None:
    disk = CrashDisk()
    log = opened(disk, retain_bytes=200 * 1024)
    for i in range(0, 6000, 100):
        log.append(events(100, first=i, source="w", position=1 + i))
    log.collect()
    lost = log.read(1, 1000)
    assert isinstance(lost, Truncated) and lost.first == 1
    assert log.first == lost.last + 1 > 1
    assert log.stats().bytes < 300 * 1024
    again = opened(disk, retain_bytes=200 * 1024)
    assert again.read(5, 1000) == Truncated(5, lost.last)
    assert again.append(events(100, first=5900, source="w", position=5901)).dropped == 100
    assert [row.seq for row in rows(again, again.first) if isinstance(row, Event)] == list(
        range(again.first, 6001)
    )


def test_retention_by_age_is_relative_to_the_newest_event() -> None:
    log = opened(retain_age_ms=1)
    for i in range(0, 6000, 100):
        log.append(events(100, first=i, time_us=lambda n: n))
    log.collect()
    assert 4000 < log.first < 5002

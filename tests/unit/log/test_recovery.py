"""Opening a log after `kill -9`, a power cut, and decay of the medium."""

from __future__ import annotations

import random

import pytest

from qanat.events.batch import Batch, stream_id
from qanat.log import Chunk, CorruptLog, LogConfig, StreamLog
from qanat.log.crash_disk import CrashDisk
from qanat.log.segment_file import HEAD_BYTES

STREAM = stream_id("recovery")
FOLDER = "log"
CONFIG = LogConfig(segment_bytes=64 * 1024)


def opened(disk: CrashDisk, config: LogConfig = CONFIG, *, repair: bool = False) -> StreamLog:
    return StreamLog.open(disk, FOLDER, STREAM, config, repair=repair)


def batch(*payloads: bytes) -> Batch:
    return Batch.build(STREAM, list(payloads), time_us=1)


def contents(log: StreamLog) -> list[bytes]:
    payloads: list[bytes] = []
    start = log.first
    while start < log.next:
        chunk = log.read(start, 4096, upto=log.next - 1)
        assert isinstance(chunk, Chunk)
        for one in chunk.batches():
            assert one.first == start or not payloads
            payloads += one.payloads().to_pylist()
            start = one.last + 1
    return payloads


def small_log(disk: CrashDisk) -> list[bytes]:
    log = opened(disk)
    log.append(batch(b"one", b"two"))
    log.append(batch(b"three"))
    log.sync()
    log.append(batch(b"four", b"five"))
    log.sync()
    return [b"one", b"two", b"three", b"four", b"five"]


def active_path(disk: CrashDisk) -> str:
    return max(f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.endswith(".seg"))


def test_truncating_at_every_byte_after_the_synced_ones_recovers_them() -> None:
    disk = CrashDisk()
    published = small_log(disk)
    log = opened(disk)
    synced_bytes = disk.size(active_path(disk))
    log.append(batch(b"six"))
    log.append(batch(b"seven", b"eight"))
    later = [b"six", b"seven", b"eight"]
    whole = disk.size(active_path(disk))
    seen = set()
    for size in range(synced_bytes, whole + 1):
        cut = disk.copy()
        del cut.raw(active_path(cut))[size:]
        recovered = opened(cut)
        got = contents(recovered)
        assert got[:5] == published
        assert got[5:] in ([], later[:1], later)
        seen.add(len(got))
        appended = recovered.append(batch(b"again"))
        assert appended.first == len(got) + 1
        recovered.sync()
        assert contents(opened(cut)) == [*got, b"again"]
    assert seen == {5, 6, 8}


def test_losing_synced_bytes_is_refused_and_repair_recovers_a_prefix() -> None:
    disk = CrashDisk()
    published = small_log(disk)
    for size in range(disk.size(active_path(disk))):
        cut = disk.copy()
        del cut.raw(active_path(cut))[size:]
        with pytest.raises(CorruptLog) as refusal:
            opened(cut)
        assert active_path(cut) in str(refusal.value)
        if size >= HEAD_BYTES:
            recovered = opened(cut, repair=True)
            assert recovered.recovery_notes
            got = contents(recovered)
            assert got == published[: len(got)]
            recovered.close()
            assert contents(opened(cut)) == got


def flips(disk: CrashDisk, path: str) -> range:
    size = disk.size(path)
    return range(min(size, 1100) * 8 if not path.endswith(".seg") else size * 8)


def test_one_flipped_bit_in_any_file_is_never_delivered() -> None:
    disk = CrashDisk()
    published = small_log(disk)
    for name in disk.list(FOLDER):
        path = f"{FOLDER}/{name}"
        interesting = [bit for bit in flips(disk, path) if not _in_padding(path, bit // 8)]
        for bit in interesting:
            rotten = disk.copy()
            rotten.raw(path)[bit // 8] ^= 1 << bit % 8
            try:
                got = contents(opened(rotten))
            except CorruptLog as refusal:
                assert refusal.file == path
                continue
            assert got == published, (path, bit)
            assert _is_mark(path, bit // 8) or path == f"{FOLDER}/synced", (path, bit)


def _in_padding(path: str, byte: int) -> bool:
    """Bytes of a segment's head that mean nothing."""
    return path.endswith(".seg") and (40 <= byte < 512 or 544 <= byte < 1024 or 1056 <= byte < HEAD_BYTES)


def _is_mark(path: str, byte: int) -> bool:
    """A damaged mark is harmless: the other one, or the bytes themselves, still tell."""
    return path.endswith(".seg") and 512 <= byte < 1056


def test_one_flipped_bit_in_a_sealed_segment_is_never_delivered() -> None:
    disk = CrashDisk()
    log = opened(disk)
    blob = bytes(range(256)) * 64
    for _ in range(5):
        log.append(batch(blob))
    log.sync()
    log.append(batch(b"last"))
    log.close()
    published = contents(opened(disk))
    sealed = sorted(f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.endswith(".seg"))[0]
    assert sealed != active_path(disk)
    bits = random.Random(1).sample(range(HEAD_BYTES * 8, disk.size(sealed) * 8), 400)
    for bit in [*range(40 * 8), *range(HEAD_BYTES * 8, HEAD_BYTES * 8 + 640), *bits]:
        rotten = disk.copy()
        rotten.raw(sealed)[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLog) as refusal:
            contents(opened(rotten))
        assert refusal.value.file == sealed
    assert len(published) == 6


def test_rot_under_a_running_log_is_found_at_the_first_read() -> None:
    disk = CrashDisk()
    published = small_log(disk)
    log = opened(disk, LogConfig(segment_bytes=64 * 1024, tail_bytes=0))
    with pytest.raises(CorruptLog):
        disk.raw(active_path(disk))[-3] ^= 1
        log._store.segments[-1]._verified[:] = bytes(len(log._store.segments[-1]._verified))
        contents(log)
    disk.raw(active_path(disk))[-3] ^= 1
    assert contents(log) == published


@pytest.mark.parametrize("orderly", [True, False])
def test_a_power_cut_at_every_operation_keeps_what_was_synced(orderly: bool) -> None:
    from qanat.log.crash_disk import PowerCut

    total = _workload(CrashDisk(), [])
    for cut_at in range(1, total + 1):
        for seed in range(4):
            disk = CrashDisk(seed * 1000 + cut_at, orderly=orderly)
            disk.cut_at = cut_at
            acknowledged: list[bytes] = []
            with pytest.raises(PowerCut):
                _workload(disk, acknowledged)
            disk.crash()
            log = opened(disk)
            got = contents(log)
            assert got[: len(acknowledged)] == acknowledged
            assert got == [b"%06d" % i + b"." * 6000 for i in range(len(got))]
            log.append(batch(b"more"))
            log.sync()
            disk.crash()
            assert contents(opened(disk)) == [*got, b"more"]


def _workload(disk: CrashDisk, acknowledged: list[bytes]) -> int:
    log = opened(disk)
    for i in range(30):
        log.append(batch(b"%06d" % i + b"." * 6000))
        if i % 3 == 2 or 13 < i < 17:
            log.sync()
            acknowledged += [b"%06d" % j + b"." * 6000 for j in range(len(acknowledged), i + 1)]
    return disk.operations


def test_a_missing_manifest_or_sealed_file_is_refused() -> None:
    disk = CrashDisk()
    small_log(disk)
    gone = disk.copy()
    gone.remove(f"{FOLDER}/manifest")
    with pytest.raises(CorruptLog, match="manifest"):
        opened(gone)
    gone = disk.copy()
    gone.remove(active_path(gone))
    with pytest.raises(CorruptLog, match="missing"):
        opened(gone)

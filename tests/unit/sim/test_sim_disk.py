"""The file-level disk: what was synced survives, the rest may be lost or torn; and a log runs on it."""

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.batch import Batch
from qanat.log.config import LogConfig
from qanat.log.disk import Disk
from qanat.log.errors import DiskFailed, DiskFull
from qanat.log.reader import Chunk
from qanat.log.stream_log import StreamLog
from qanat.sim import SimDisk


def fresh(seed: int = 1, capacity_bytes: int = 1 << 30) -> SimDisk:
    disk = SimDisk(random.Random(seed), capacity_bytes=capacity_bytes)
    disk.make_folder("logs")
    return disk


def test_it_is_a_disk_as_the_log_sees_it() -> None:
    disk: Disk = fresh()
    file = disk.open("logs/x")
    file.write(b"hello")
    file.write_at(0, b"J")
    assert bytes(disk.read("logs/x", 0, 100)) == b"Jello"
    assert disk.read_copy("logs/x", 1, 2) == b"el"
    assert disk.size("logs/x") == file.size == 5
    file.truncate(2)
    assert disk.read_copy("logs/x", 0, 100) == b"Je"
    disk.rename("logs/x", "logs/y")
    assert disk.list("logs") == ["y"]
    disk.remove("logs/y")
    assert disk.list("logs") == []
    with pytest.raises(FileNotFoundError):
        disk.size("logs/y")


def test_a_view_outlives_the_file() -> None:
    disk = fresh()
    disk.open("logs/x").write(b"hello")
    view = disk.read("logs/x", 0, 5)
    disk.remove("logs/x")
    assert bytes(view) == b"hello"


@given(
    seed=st.integers(0, 10**6),
    parts=st.lists(st.binary(min_size=1, max_size=2000), min_size=1, max_size=8),
    synced=st.integers(0, 8),
)
def test_synced_bytes_survive_and_nothing_is_invented(seed: int, parts: list[bytes], synced: int) -> None:
    disk = fresh(seed)
    file = disk.open("logs/x")
    disk.sync_folder("logs")
    for number, part in enumerate(parts):
        file.write(part)
        if number + 1 == synced:
            file.sync()
    safe, whole = b"".join(parts[:synced]) if synced <= len(parts) else b"", b"".join(parts)
    disk.crash()
    found = disk.read_copy("logs/x", 0, len(whole) + 1)
    assert found.startswith(safe)
    assert len(found) <= len(whole)
    # Beyond the safe part each byte is as written, or zero where its sector never arrived.
    assert all(got in (0, want) for got, want in zip(found, whole, strict=False))


def test_every_fate_of_unsynced_bytes_occurs() -> None:
    fates = set()
    for seed in range(100):
        disk = fresh(seed)
        file = disk.open("logs/x")
        disk.sync_folder("logs")
        file.write(b"a" * 3000)
        disk.crash()
        found = disk.read_copy("logs/x", 0, 3000)
        if not found:
            fates.add("lost")
        elif found == b"a" * 3000:
            fates.add("kept")
        elif b"\0" in found:
            fates.add("holes")
        else:
            fates.add("torn")
    assert fates == {"lost", "kept", "holes", "torn"}


def test_names_survive_only_a_folder_sync_and_renames_are_atomic() -> None:
    seen = set()
    for seed in range(100):
        disk = fresh(seed)
        for name in ("old", "current"):
            file = disk.open(f"logs/{name}")
            file.write(name.encode())
            file.sync()
        disk.sync_folder("logs")
        disk.rename("logs/old", "logs/current")
        disk.remove("logs/current")
        disk.open("logs/new")
        disk.crash()
        seen.add(tuple(disk.list("logs")))
        if "current" in disk.list("logs") and "old" in disk.list("logs"):
            assert disk.read_copy("logs/current", 0, 9) == b"current"
    assert seen == {("current", "old"), ("current",), (), ("new",)}


def test_a_full_disk_refuses_and_then_takes_again() -> None:
    disk = fresh(capacity_bytes=10)
    file = disk.open("logs/x")
    file.write(bytes(8))
    with pytest.raises(OSError, match="no room") as refused:
        file.write(bytes(3))
    assert refused.value.errno == errno.ENOSPC
    assert file.size == 8
    disk.capacity_bytes = 20
    file.write(bytes(3))
    assert file.size == 11


def test_a_failed_sync_saves_nothing() -> None:
    disk = fresh()
    file = disk.open("logs/x")
    disk.sync_folder("logs")
    file.write(b"a")
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="did not sync"):
        file.sync()
    file.sync()
    disk.crash()
    assert disk.read_copy("logs/x", 0, 9) == b"a"


def test_the_users_own_errors_are_raised_and_time_is_counted() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=1, sync_us=70, full=MemoryError)
    file = disk.open("x")
    with pytest.raises(MemoryError):
        file.write(b"too long")
    file.sync()
    assert disk.elapsed_us == 70


def test_handles_from_before_the_power_cut_are_dead_and_bits_rot() -> None:
    disk = fresh()
    file = disk.open("logs/x")
    file.write(b"a")
    file.sync()
    disk.sync_folder("logs")
    disk.crash()
    with pytest.raises(OSError, match="power was cut"):
        file.write(b"b")
    disk.flip("logs/x", 0, 1)
    assert disk.read_copy("logs/x", 0, 1) == b"c"


@pytest.mark.parametrize("seed", range(25))
def test_a_log_on_it_keeps_all_it_acknowledged(seed: int) -> None:
    """The real stream log, unchanged, through five power cuts: a whole prefix, with all that was synced."""
    rng = random.Random(seed)
    disk = SimDisk(rng, full=DiskFull, failed=DiskFailed)
    config = LogConfig(segment_bytes=65536)
    synced = written = 0
    for _ in range(5):
        log = StreamLog.open(disk, "stream", 7, config)
        assert synced < log.next <= written + 1
        written = log.next - 1
        assert payloads(log) == [event(number) for number in range(1, written + 1)]
        for _ in range(rng.randrange(1, 6)):
            batch = [event(written + 1 + number) for number in range(rng.randrange(1, 40))]
            written = log.append(Batch.build(7, batch)).last
            if rng.random() < 0.5:
                synced = log.sync()
                assert synced == written
        disk.crash()


def event(number: int) -> bytes:
    return b"event %d " % number * 100


def payloads(log: StreamLog) -> list[bytes]:
    found: list[bytes] = []
    while len(found) + 1 < log.next:
        chunk = log.read(len(found) + 1, 1 << 20)
        assert isinstance(chunk, Chunk)
        for batch in chunk.batches():
            found += [batch.payload(row) for row in range(len(found) + 1 - batch.first, batch.count)]
    return found

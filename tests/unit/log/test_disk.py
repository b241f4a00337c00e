"""The operating system's disk: views that outlive their file, growth, failed and short writes, atomic
files."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from qanat.log.disk import Disk, OsDisk, write_atomically
from qanat.log.disk_memory import MemoryDisk
from qanat.log.errors import DiskFailed, DiskFull


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk() if request.param == "os" else MemoryDisk()


@pytest.fixture
def folder(tmp_path: Path, disk: Disk) -> str:
    path = str(tmp_path / "a/b")
    disk.make_folder(path)
    return path


def test_what_is_written_is_read_and_views_outlive_the_file(disk: Disk, folder: str) -> None:
    file = disk.open(f"{folder}/x")
    file.write(b"abcdef")
    view = disk.read(f"{folder}/x", 1, 3)
    assert (bytes(view), view.readonly) == (b"bcd", True)
    file.write(b"ghi" * 5000)  # past the pages that were mapped
    assert bytes(disk.read(f"{folder}/x", 5, 4)) == b"fghi"
    assert disk.read_copy(f"{folder}/x", 15_004, 10) == b"hi"
    file.write_at(0, b"A")
    assert disk.read_copy(f"{folder}/x", 0, 2) == b"Ab"
    assert disk.size(f"{folder}/x") == file.size == 15_006
    file.truncate(4)
    assert disk.read_copy(f"{folder}/x", 0, 100) == b"Abcd"
    file.sync()
    file.close()
    disk.remove(f"{folder}/x")
    assert bytes(view) == b"bcd"
    with pytest.raises(FileNotFoundError):
        disk.size(f"{folder}/x")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{folder}/x")


def test_a_file_is_replaced_whole(disk: Disk, folder: str) -> None:
    write_atomically(disk, folder, "x", b"one")
    write_atomically(disk, folder, "x", b"two")
    assert disk.read_copy(f"{folder}/x", 0, 10) == b"two"
    assert disk.list(folder) == ["x"]


def test_a_write_that_does_not_fit_leaves_nothing_and_the_next_goes_where_it_began(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "x"))
    file.write(b"kept")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(DiskFull, match="nothing was stored") as refusal:
            file.write(bytes(200))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refusal.value.definite and (tmp_path / "x").read_bytes() == b"kept"
    file.write(b"more")
    assert (tmp_path / "x").read_bytes() == b"keptmore"
    file.close()


def test_other_trouble_says_what_and_where(tmp_path: Path) -> None:
    disk = OsDisk()
    with pytest.raises(DiskFailed, match="cannot open") as failure:
        disk.open(str(tmp_path))
    assert not failure.value.definite
    with pytest.raises(FileNotFoundError):
        disk.read(str(tmp_path / "none"), 0, 1)
    (tmp_path / "empty").touch()
    assert not disk.read(str(tmp_path / "empty"), 0, 10)

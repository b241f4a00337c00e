"""Blocks asked for before they are written are no part of the file, and do not stay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qanat.log import ahead
from qanat.log.disk import OsFile

MIB = 1024 * 1024


def blocks_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture
def roomy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose disk counts as roomy enough."""
    monkeypatch.setattr(ahead, "_FREE_STEPS", 1)
    if ahead._fallocate is None or os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize < 64 * MIB:
        pytest.skip("no fallocate here, or no room")
    return tmp_path


def test_the_file_is_as_long_as_what_was_written_and_has_more_blocks_until_it_is_closed(roomy: Path) -> None:
    path = roomy / "s"
    file = OsFile(str(path))
    file.write(bytes(MIB))
    assert path.stat().st_size == file.size == MIB
    assert blocks_bytes(path) >= ahead._STEP_BYTES
    file.close()
    assert path.stat().st_size == MIB
    assert blocks_bytes(path) <= 2 * MIB


def test_what_a_killed_process_left_goes_back_when_the_file_is_opened(roomy: Path) -> None:
    path = roomy / "s"
    killed = (
        "import os; from qanat.log import ahead; from qanat.log.disk import OsFile; ahead._FREE_STEPS = 1;"
        f"OsFile({str(path)!r}).write(b'x' * {MIB}); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", killed]).returncode == -9
    assert blocks_bytes(path) >= ahead._STEP_BYTES
    file = OsFile(str(path))
    assert blocks_bytes(path) <= 2 * MIB
    file.write(b"and more")
    file.close()
    assert path.read_bytes() == b"x" * MIB + b"and more"


def test_small_writes_ask_for_nothing(roomy: Path) -> None:
    file = OsFile(str(roomy / "s"))
    for _ in range(10):
        file.write(bytes(1000))
    assert blocks_bytes(roomy / "s") < MIB
    file.close()


def test_nothing_is_asked_for_where_space_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_FREE_STEPS", 1 << 40)
    file = OsFile(str(tmp_path / "s"))
    file.write(bytes(MIB))
    assert blocks_bytes(tmp_path / "s") <= 2 * MIB
    file.close()


def test_after_the_blocks_that_were_asked_for_more_are(roomy: Path) -> None:
    path = roomy / "s"
    file = OsFile(str(path))
    for _ in range(ahead._STEP_BYTES // MIB + 1):
        file.write(bytes(MIB))
    assert blocks_bytes(path) >= 2 * ahead._STEP_BYTES
    file.truncate(MIB)
    file.write(b"end")
    file.close()
    assert path.stat().st_size == MIB + 3

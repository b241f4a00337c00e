"""A disk that is really full when it is full: a small file system in memory, mounted for a test."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """`size` as mount(8) takes it for a tmpfs, perhaps with `,nr_inodes=` behind it; the test is skipped
    where this may not be done."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Takes all the room there is, to the last page and the last name."""
    folder.mkdir(exist_ok=True)
    with (folder / "bytes").open("ab", buffering=0) as out, pytest.raises(OSError, match="space"):
        while True:
            out.write(bytes(4096))
    with pytest.raises(OSError, match="space"):
        for i in itertools.count():
            (folder / f"name-{i}").touch()

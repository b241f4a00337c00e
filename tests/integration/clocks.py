"""Clocks of single processes: nodes and clients below `wrong_clocks` have one each, which a test sets while
they run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qanat.events.durable import replace
from qanat.operate.layout import file_name

HOUR_S = 3600
NOTICED_S = 1.5
"""A process looks at its clock's file once a second."""


class Clocks:
    """By the names of nodes, and of clients that were started with `called`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def set(self, name: str, ahead_s: int) -> None:
        """From now on that process is so far ahead of everybody's true time; below zero: behind. It notices
        within `NOTICED_S`."""
        replace(self._folder / file_name(name), f"{ahead_s:+d}".encode())


def called(name: str) -> dict[str, str]:
    """The environment of a client whose clock has that name."""
    return {**os.environ, "CLOCK": file_name(name)}


@contextmanager
def wrong_clocks(folder: Path) -> Iterator[Clocks]:
    """For all processes that are started meanwhile; `folder` is made, and has a file for each clock."""
    folder.mkdir()
    asked = subprocess.run(
        ["faketime", "-m", "-f", "+0", "printenv", "LD_PRELOAD"], capture_output=True, text=True, check=True
    )
    start = Path(__file__).with_name("clocks_start")
    paths = os.pathsep.join(filter(None, (str(start), os.environ.get("PYTHONPATH"))))
    added = {"CLOCKS": str(folder), "CLOCKS_LIBRARY": asked.stdout.strip(), "PYTHONPATH": paths}
    before = {name: os.environ.get(name) for name in added}
    os.environ |= added
    try:
        yield Clocks(folder)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

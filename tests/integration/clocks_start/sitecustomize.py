"""Begins every Python below `CLOCKS` anew with a clock that its test sets; Python imports this before
anything else.

A node is started by a supervisor that passes its own environment on, the same to all. So each finds its own
clock by its own words.
"""

import os
import select
import sys
import time
from pathlib import Path
from typing import SupportsIndex

FOLDER, LIBRARY = os.environ.get("CLOCKS", ""), os.environ.get("CLOCKS_LIBRARY", "")


def _name() -> str:
    """That of a node is its file's; a client is told its own."""
    words = sys.orig_argv
    if "--config" in words and "node" in words:
        return Path(words[words.index("--config") + 1]).stem
    return os.environ.get("CLOCK", "")


def _sleep(seconds: SupportsIndex | float, /) -> None:
    """libfaketime refuses the call behind `time.sleep`."""
    select.select([], [], [], float(seconds))


def _tidy() -> None:
    """What libfaketime shares with children, of which there are none. One that is killed would leave it, and
    the next process of its number would not start."""
    for file in ("faketime_shm_", "sem.faketime_sem_"):
        Path(f"/dev/shm/{file}{os.getpid()}").unlink(missing_ok=True)


if FOLDER and "LD_PRELOAD" not in os.environ:
    if name := _name():
        file = Path(FOLDER) / name
        if not file.exists():
            file.write_text("+0")
        _tidy()
        os.environ |= {
            "LD_PRELOAD": LIBRARY,
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",  # asked for each time, the file would cost more than the work
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # that of a real machine does not jump
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # or locks with a deadline wake up late
            "NO_FAKE_STAT": "1",
        }
        os.execv(sys.executable, sys.orig_argv)
elif FOLDER:
    time.sleep = _sleep
    _tidy()

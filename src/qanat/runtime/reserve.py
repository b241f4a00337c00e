"""Room that is set aside, so that a journal can be written for a while where a disk is full."""

import os
from contextlib import suppress
from pathlib import Path

RESERVE_BYTES = 64 * 1024
"""A hundred changes of chains at a coordinator, and as many heads at a replica, each written twice: days of a
chain that works."""


class Reserve:
    """A file that holds nothing but its room, beside a journal."""

    def __init__(self, journal: Path, size_bytes: int = RESERVE_BYTES) -> None:
        self.path = journal.with_suffix(".reserve")
        self._size_bytes = size_bytes
        self.there = False
        with suppress(OSError):
            self.there = self.path.stat().st_size == size_bytes
        self.make()

    def make(self) -> None:
        """Where there is room; whoever finds none tries again later."""
        if self.there:
            return
        with suppress(OSError):
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self.there = os.pwrite(handle, bytes(self._size_bytes), 0) == self._size_bytes
            finally:
                os.close(handle)
        if not self.there:
            self._remove()

    def give(self) -> bool:
        """Whether there was room to give."""
        had, self.there = self.there, False
        self._remove()
        return had

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

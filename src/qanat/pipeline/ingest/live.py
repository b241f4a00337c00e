"""How far a task is with a range that takes long, told while it works, in a file of the pipeline's folder.

Spark says what a task did when a micro-batch is done. Until then nobody would know which stream the others
wait for, nor how far the log has come meanwhile.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from qanat.events.durable import make_folder, tell
from qanat.events.position import Position

TELL_S = 1.0
"""Not more often than this, and nothing of a range that takes less."""
_STALE_S = 5.0
"""Who has told nothing for this long is no more."""


class Live(NamedTuple):
    told: float
    """When, as the clock says."""
    read: Position
    newest: Position
    positions: Mapping[str, Position]
    """How far streams have stored what they were given."""
    waiting: Mapping[str, float]
    """Since when the first of what they have not stored waits."""

    def is_fresh(self, now: float) -> bool:
        return now - self.told < _STALE_S

    def write(self, file: Path) -> None:
        told = {
            "told": self.told,
            "read": str(self.read),
            "newest": str(self.newest),
            "positions": {stream: str(position) for stream, position in self.positions.items()},
            "waiting": dict(self.waiting),
        }
        make_folder(file.parent)
        tell(file, json.dumps(told).encode())

    @classmethod
    def load(cls, file: Path) -> "Live | None":
        """None if there is nothing to tell, or no longer."""
        try:
            told = json.loads(file.read_bytes())
            return cls(
                float(told["told"]),
                Position.parse(told["read"]),
                Position.parse(told["newest"]),
                {stream: Position.parse(text) for stream, text in told["positions"].items()},
                told["waiting"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


class Teller:
    """Writes the file now and then, from the first second of a range on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last = time.monotonic()
        self._there = True
        """Perhaps by a process before this one."""

    def begin(self) -> None:
        self._last = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._last >= TELL_S

    def tell(self, live: Live) -> None:
        self._last = time.monotonic()
        try:
            live.write(self._file)
            self._there = True
        except OSError:
            pass  # to be told of less is no reason to do less

    def end(self) -> None:
        """The range is done: what Spark will say of it says more."""
        if self._there:
            self._file.unlink(missing_ok=True)
            self._there = False

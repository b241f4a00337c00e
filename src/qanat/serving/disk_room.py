"""Whether the disk of a node has room, in one sentence for its log, `status`, /healthz and whoever is
refused."""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("qanat.disk")

_OVER_S = 3.0
"""Nothing was refused for so long, and there is room: it is over. Sooner, a small record may have fitted
between two large ones."""
_FREE_BYTES = 1_000_000
"""Less than that is no room: what is written next may not fit, and what is set aside for journals could not
be."""


class DiskRoom:
    """Of the disk under `folder`. `waits` says what waits or is refused meanwhile, as a clause."""

    def __init__(self, node: str, folder: Path, waits: str) -> None:
        self._node, self._folder, self.waits = node, folder, waits
        self._lacking = False
        self._reason = ""
        self._refused_s = 0.0

    @property
    def sentence(self) -> str:
        """What is wrong and what to do; empty if there is room."""
        self._look()
        return (
            f"{self._full()}; {self.waits}; make room there, and all goes on by itself"
            if self._lacking
            else ""
        )

    def refusal(self) -> str:
        """For a publisher."""
        return f"{self._full()}: nothing of this was stored; make room there and publish again"

    def refused(self, reason: str = "") -> None:
        """Something found no room."""
        self._refused_s, self._reason = time.monotonic(), reason
        if not self._lacking:
            self._lacking = True
            log.error("the disk is full", extra={"node": self._node, "reason": self.sentence})

    def taken(self) -> None:
        """Something did."""
        if self._lacking:
            self._look()

    def journal(self, there: bool) -> None:
        """Whether a journal finds room."""
        if there:
            self.taken()
        else:
            self.refused()

    def _look(self) -> None:
        if self._lacking and time.monotonic() - self._refused_s >= _OVER_S and self._free() >= _FREE_BYTES:
            self._lacking = False
            log.info(
                "there is room on the disk again", extra={"node": self._node, "folder": str(self._folder)}
            )

    def _full(self) -> str:
        with suppress(OSError):
            found = os.statvfs(self._folder)
            free, size = (blocks * found.f_frsize / 1e6 for blocks in (found.f_bavail, found.f_blocks))
            reason = f", {self._reason}" if self._reason else ""
            return (
                f"the disk of {self._node} is full ({self._folder}: {free:,.1f} of {size:,.0f} MB"
                f" free{reason})"
            )
        return f"the disk of {self._node} is full ({self._folder})"

    def _free(self) -> float:
        with suppress(OSError):
            found = os.statvfs(self._folder)
            return found.f_bavail * found.f_frsize
        return 0.0

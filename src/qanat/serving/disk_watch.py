"""Whether a disk has room, in the log: once when it has none, and once when that is over."""

import logging
import time

from qanat.events.errors import LocalError
from qanat.log.errors import DiskFull

log = logging.getLogger("qanat.streams")

_OVER_S = 5.0
"""Nothing was refused for so long, and something taken: there is room. Sooner, a small event may have fitted
between two large ones."""


class Room:
    """For one stream, or for new ones."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.lacking = False
        self._refused_s = 0.0

    def refused(self, error: LocalError) -> None:
        """Something was, for whatever reason."""
        if not isinstance(error, DiskFull):
            return
        self._refused_s = time.monotonic()
        if not self.lacking:
            self.lacking = True
            log.error(
                "the disk is full, publishes are refused", extra={"what": self._what, "reason": str(error)}
            )

    def taken(self) -> None:
        if self.lacking and time.monotonic() - self._refused_s >= _OVER_S:
            self.lacking = False
            log.info("there is room on the disk again", extra={"what": self._what})

"""Publishes that wait for long: the server is asked why, and what it says is told in the log."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from qanat.wire.streams import Place

log = logging.getLogger("qanat.client")

_LATE_S = 2.0
"""An answer that takes longer has a reason that a person wants to know; a chain mends itself sooner."""


class Late:
    """Looks at the requests of publishers on one link, oldest first; `ask` asks for the server's place, where
    the reason stands."""

    def __init__(self, unanswered: Callable[[], Mapping[int, object]], ask: Callable[[], None]) -> None:
        self._unanswered, self._ask = unanswered, ask
        self._timer: asyncio.TimerHandle | None = None
        self._oldest = 0
        self._said = ""

    def begin(self) -> None:
        """There is one that waits."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LATE_S, self._look)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_place(self, place: Place) -> None:
        if not place.waits:
            self._said = ""
        elif self._oldest and place.waits != self._said:
            self._said = place.waits
            log.warning("publishes wait: %s", place.waits)

    def _look(self) -> None:
        self._timer = None
        before, self._oldest = self._oldest, next(iter(self._unanswered()), 0)
        if self._oldest:
            if self._oldest == before:
                self._ask()
            self.begin()

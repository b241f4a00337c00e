"""What the connections of a process hold, and which of them give it up when memory is short.

Nobody is asked who is wrong: who holds most goes first, and who holds little is never touched. So one that
fills buffers costs itself and others like it, while those who say small things and take what they are sent go
on.
"""

import time
from collections.abc import Collection

from qanat.runtime.budget import Level, MemoryBudget, Shed
from qanat.runtime.connection import Connection

_SMALL_BYTES = 32 * 1024
"""Who holds no more is left alone whatever happens: twice what a quiet connection has for receiving."""
_PART = 4
"""Connections that share this part of the budget evenly are not looked at before it is used up."""
_GRACE_S = 1.0
"""Memory has to be short for so long before anybody is cut off: frames that are under way are taken, and
queues drained."""
_EFFECT_S = 0.5
"""Between two times that some are cut off: what they held comes back with a delay."""


def account_connections(budget: MemoryBudget, live: Collection[Connection]) -> None:
    """Adds the holders; all that is given up counts for the first."""
    memory = _ConnectionMemory(live)
    budget.add("receive_buffers", lambda: sum(each.received_bytes for each in live), memory.shed)
    budget.add("send_queues", lambda: sum(each.queued_bytes for each in live))
    budget.add("subscriptions", lambda: sum(each.kept_bytes for each in live))


def held_bytes(connection: Connection) -> int:
    return connection.received_bytes + connection.queued_bytes + connection.kept_bytes


class _ConnectionMemory:
    def __init__(self, live: Collection[Connection]) -> None:
        self._live = live
        self._throttled: set[Connection] = set()
        self._short_s: float | None = None
        """Since when memory is short."""
        self._cut_s = 0.0

    def shed(self, asked: Shed) -> int:
        if asked.level:
            for connection in self._live:
                connection.release_buffers()
        if asked.level < Level.SHORT:
            self._relieve()
            return 0
        now_s = time.monotonic()
        if self._short_s is None:
            self._short_s = now_s
        share = max(_SMALL_BYTES, asked.budget // _PART // max(1, len(self._live)))
        self._throttle(share)
        if asked.over <= 0 or now_s - self._cut_s < _EFFECT_S:
            return 0
        if asked.level >= Level.FULL:
            return self._cut(asked.over, _SMALL_BYTES, now_s)
        return self._cut(asked.over, share, now_s) if now_s - self._short_s >= _GRACE_S else 0

    def _throttle(self, share: int) -> None:
        self._throttled = {each for each in self._throttled if not each.closing}
        for connection in self._live:
            if connection.received_bytes > share and connection not in self._throttled:
                connection.throttle()
                self._throttled.add(connection)

    def _relieve(self) -> None:
        self._short_s = None
        throttled, self._throttled = self._throttled, set()
        for connection in throttled:
            connection.unthrottle()

    def _cut(self, wanted: int, least: int, now_s: float) -> int:
        """Largest first, until so much is given up."""
        sizes = [(held_bytes(each), each) for each in self._live if not each.closing]
        given = 0
        for size, connection in sorted(sizes, key=lambda each: each[0], reverse=True):
            if given >= wanted or size <= least:
                break
            self._cut_s = now_s
            given += size
            connection.cut(
                "out_of_memory",
                f"this process is short of memory, and {size} bytes were held for this connection; come again"
                " later",
            )
        return given

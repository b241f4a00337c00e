"""Syncs of many logs in worker threads: one at a time for each stream, each for all that was appended before
it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from qanat.log import StreamLog
from qanat.log.errors import OutOfDescriptors
from qanat.protocols.history import Synced

AGAIN_S = 0.1
"""Before what found no descriptor is tried again."""


class Syncing:
    """`log_of(stream)` is a stream's log now, if it has one; `synced` is told on the loop, and `failed` once
    a sync did: that log takes nothing more, so its replica has to leave the chain."""

    def __init__(
        self,
        pool: Executor,
        log_of: Callable[[int], StreamLog | None],
        synced: Callable[[Synced], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._pool, self._log_of, self._synced, self._failed = pool, log_of, synced, failed
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, bool] = {}
        """Streams with a sync under way, and whether more was appended since it began."""
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def wants(self, stream: int) -> None:
        """Something was appended. In mode `interval` there is time."""
        if stream in self._running:
            self._running[stream] = True
            return
        log = self._log_of(stream)
        if log is None or stream in self._timers:
            return
        if log.config.mode == "interval":
            delay_s = log.config.interval_ms / 1000
            self._timers[stream] = self._loop.call_later(delay_s, self._begin, stream)
        else:
            self._begin(stream)

    def _begin(self, stream: int) -> None:
        self._timers.pop(stream, None)
        log = self._log_of(stream)
        if log is not None:
            self._running[stream] = False
            future = self._loop.run_in_executor(self._pool, log.sync)
            future.add_done_callback(partial(self._done, stream, log))

    def _done(self, stream: int, log: StreamLog, future: "asyncio.Future[int]") -> None:
        again = self._running.pop(stream)
        if future.cancelled():
            return
        error = future.exception()
        if self._log_of(stream) is not log:  # it was wiped meanwhile
            if again:
                self.wants(stream)
            return
        if isinstance(error, OutOfDescriptors):
            self._timers[stream] = self._loop.call_later(AGAIN_S, self._begin, stream)
            return
        if error is not None:
            self._failed(error)
            return
        if again:
            self.wants(stream)
        self._synced(Synced(stream, future.result()))

    async def close(self) -> None:
        """Until nothing is under way; what waited for its interval is synced by closing its log."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._running:
            await asyncio.sleep(0.001)

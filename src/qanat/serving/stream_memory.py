"""What streams keep in memory, and what of it they give up when memory is short.

What a log has in memory to be faster it can do without: its newest bytes are in the page cache, its keys are
hunted for. What is nowhere else, the events of streams in memory, may be a part of the budget in sum: beyond
it those that have most lose their oldest, so that nobody's many events push out others' few.
"""

import time
from collections.abc import Callable, Iterable

from qanat.log import StreamLog
from qanat.log.key_index import KEY_BYTES
from qanat.runtime.budget import Level, MemoryBudget, Shed

_SHARE = 4
"""Events in memory may be this part of the budget, and keys as much, once memory is short."""
_AGAIN_S = 1.0
"""What is kept to be faster is worth keeping for so long at least."""


def account_streams(budget: MemoryBudget, logs: Callable[[], Iterable[StreamLog]]) -> None:
    memory = _StreamMemory(logs)
    budget.add("logs", memory.remembered)
    budget.add("streams_in_memory", memory.in_memory, memory.shed)


class _StreamMemory:
    def __init__(self, logs: Callable[[], Iterable[StreamLog]]) -> None:
        self._logs = logs
        self._bounded = False
        self._forgot_s = 0.0

    def remembered(self) -> int:
        return sum(log.remembered_bytes for log in self._logs())

    def in_memory(self) -> int:
        return sum(log.in_memory_bytes for log in self._logs())

    def shed(self, asked: Shed) -> int:
        if not asked.level:
            self._bound(None)
            return 0
        given = self._forget(asked)
        if asked.level >= Level.SHORT:
            sizes = [log.in_memory_bytes for log in self._logs()]
            if sum(sizes) > asked.budget // _SHARE:
                self._bound(_level_off(sizes, asked.budget // _SHARE))
                given += sum(sizes) - self.in_memory()
        return given

    def _forget(self, asked: Shed) -> int:
        now_s = time.monotonic()
        if now_s - self._forgot_s < _AGAIN_S:
            return 0
        self._forgot_s = now_s
        logs = list(self._logs())
        before = self.remembered()
        most: StreamLog | None = None
        if asked.level >= Level.SHORT:
            keys = {log: log.stats().keys for log in logs}
            if sum(keys.values()) * KEY_BYTES > asked.budget // _SHARE:
                most = max(logs, key=keys.__getitem__)
        for log in logs:
            log.forget(keys=log is most)
        return max(0, before - self.remembered())

    def _bound(self, size: int | None) -> None:
        if size is None and not self._bounded:
            return
        self._bounded = size is not None
        for log in self._logs():
            log.keep_at_most(size)


def _level_off(sizes: list[int], share: int) -> int:
    """The bound for each with which all have `share` together."""
    left, count = share, len(sizes)
    for size in sorted(sizes):
        if size * count > left:
            break
        left -= size
        count -= 1
    return left // max(1, count)

"""Long work beside the event loop: one thread, which takes one piece of it from each who asked, in turn.

RE2, NumPy and Arrow let the loop go on while they work; Python's own part of it, such as parsing, shares the
interpreter with the loop in slices of 5 ms.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: Callable[[Any], None]
    loop: asyncio.AbstractEventLoop


class Aside:
    """A thread that is there as long as the process, and ends with it whatever it does."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: dict[Hashable, deque[_Job]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def submit(self, who: Hashable, work: Callable[[], _T], done: Callable[[_T | Exception], None]) -> None:
        """`done` is called on the running loop, with what `work` returned or raised."""
        job = _Job(work, done, asyncio.get_running_loop())
        with self._changed:
            self._waiting.setdefault(who, deque()).append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            job = self._next()
            try:
                result = job.work()
            except Exception as error:
                result = error
            with suppress(RuntimeError):  # the loop has ended
                job.loop.call_soon_threadsafe(job.done, result)
            del job, result

    def _next(self) -> _Job:
        with self._changed:
            while not self._waiting:
                self._changed.wait()
            who = next(iter(self._waiting))
            jobs = self._waiting.pop(who)
            job = jobs.popleft()
            if jobs:
                self._waiting[who] = jobs  # the others first
            return job


PARSING, SEARCHING = Aside("parsing"), Aside("searching")
"""Two, so that nobody waits with a filter for those who search long texts."""

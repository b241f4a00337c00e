"""Ctrl-C of a command that must clean up: the first one announces the clean-up, the second one ends at
once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130


@contextmanager
def for_the_main_thread() -> Iterator[None]:
    """Threads that start within this context never take a Ctrl-C: it goes to the main thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Interruption:
    """A context. The first Ctrl-C prints `sentence` and raises KeyboardInterrupt, the second calls `at_once`
    and ends the process."""

    def __init__(self, sentence: str, at_once: Callable[[], object] = lambda: None) -> None:
        self._sentence, self._at_once = sentence, at_once
        self._came = False
        self._kept: object = None

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._kept = signal.signal(signal.SIGINT, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            signal.signal(signal.SIGINT, self._kept)  # type: ignore[arg-type]

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            self._at_once()
            os._exit(INTERRUPTED)
        self._came = True
        print(f"\nqanat: {self._sentence}", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

"""Ctrl-C while something is started: it goes to the whole group of processes, and to any thread that takes
it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def masked() -> Iterator[None]:
    """Threads and processes that start within this context never take a Ctrl-C: they begin with it
    blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def put_off() -> Iterator[None]:
    """A Ctrl-C within this context counts at its end: a process that was told half of its work prints a
    traceback, or stays for ever. What starts within it takes none. Blocking does not keep one from other
    threads of ours, so the main thread notes it."""
    came: list[tuple[int, FrameType | None]] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda *how: came.append(how)) if in_main else None
    try:
        with masked():
            yield
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)
    if came and callable(handler):
        handler(*came[0])

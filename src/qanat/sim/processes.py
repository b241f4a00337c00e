"""Processes for many runs at once: they end when the one that started them does, however it ends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection

from qanat.events.interrupts import masked


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """At its end nothing of it is left: what still runs is given up at once.

    Each worker watches one end of a pipe whose other end this process alone has. It closes when we leave this
    block or are killed, and then the worker ends in the middle of whatever it does.
    """
    # Not `fork`: the parent may have threads (a progress bar).
    context = multiprocessing.get_context("forkserver")
    with masked():  # Ctrl-C is the parent's business
        forkserver.ensure_running()
    watched, leash = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(workers, context, _begin, (watched,))
    try:
        yield executor
    finally:
        leash.close()
        executor.shutdown(wait=True, cancel_futures=True)
        watched.close()


def _begin(watched: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server of forks may run since before this pool
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: Connection) -> None:
    watched.poll(None)  # nothing is ever sent: it is readable once the other end is closed
    os._exit(0)

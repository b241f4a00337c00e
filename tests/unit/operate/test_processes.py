"""Child processes of demonstrations and benchmarks."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from qanat.operate import processes
from qanat.operate.processes import Worker


def say_ready(pipe: Any) -> None:
    pipe.send("ready")
    pipe.recv()


def interrupt() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interruption_in_the_middle_of_a_start_waits_until_the_child_was_told_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread, which does not block the signal, is given it; Python then interrupts the main thread
    wherever that is."""
    started: list[bool] = []
    start = processes._CONTEXT.Process.start

    def interrupted(process: Any) -> None:
        thread = threading.Thread(target=interrupt)
        thread.start()
        thread.join()
        start(process)
        started.append(True)

    monkeypatch.setattr(processes._CONTEXT.Process, "start", interrupted)
    alive = set(processes._alive)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # whoever started us may have had it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            Worker(say_ready)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert started
    (worker,) = processes._alive - alive
    assert worker.wait() == "ready"
    worker.end()

"""A real Redis: a stream of its own for each measurement, with its append-only file on disk, synced each
second."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from qanat.bench.broadcast_latency import EVENT_BYTES
from qanat.bench.programs import NotThere, free_port, last_words, program
from qanat.bench.redis_roles import STREAM, consume, produce, tick, watch
from qanat.bench.resp import connect
from qanat.operate.processes import workers

_DEADLINE_S = 60.0
# It would rewrite the file and save all of its memory, beside what is measured; neither is needed for the log
# to be safe.
_SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "auto-aof-rewrite-percentage": "0",
    "save": "",
}


class RedisServer:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self.port = port

    def _clear(self) -> None:
        """What was measured before takes no memory; as the log of ours, the file keeps it."""
        with connect(self.port) as redis:
            redis.ask(b"XTRIM", STREAM, b"MAXLEN", b"0")

    @contextmanager
    def carrying(self, width: int, consumers: int, count: int) -> Iterator[Callable[[], float]]:
        """Gives what measures once: events per second that each of `consumers` receives."""
        with (
            workers(1, produce, self.port, width) as (source,),
            workers(consumers, consume, self.port, width) as sinks,
        ):

            def measure() -> float:
                self._clear()
                os.sync()  # as for ours
                for one in (*sinks, source):
                    one.tell(count)
                began: float = source.wait()
                source.wait()
                ends: list[float] = [sink.wait() for sink in sinks]
                return count / (max(ends) - began)

            yield measure

    @contextmanager
    def ticking(self, count: int) -> Iterator[Callable[[], tuple[float, float]]]:
        """Gives what measures once: (p50, p99) in ms of one event per ms."""
        with (
            workers(1, tick, self.port, EVENT_BYTES, 0.001) as (source,),
            workers(1, watch, self.port) as (sink,),
        ):

            def measure() -> tuple[float, float]:
                sink.tell(count)
                source.tell(count)
                source.wait()
                delays_ms = sink.wait() / 1e6
                return float(np.percentile(delays_ms, 50)), float(np.percentile(delays_ms, 99))

            yield measure


@contextmanager
def running() -> Iterator[RedisServer]:
    """A server with its file in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="qanat-redis-") as name:
        folder, port = Path(name), free_port()
        log = folder / "server.log"
        words = ["redis-server", "--port", str(port), "--dir", name]
        words += [word for key, value in _SETTINGS.items() for word in (f"--{key}", value)]
        with program(words, log) as process:
            deadline = time.monotonic() + _DEADLINE_S
            while not answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise NotThere(f"Redis does not start here: {last_words(log)}")
                time.sleep(0.05)
            yield RedisServer(port)


def answers(port: int) -> bool:
    """Whether a Redis is there."""
    with suppress(OSError), connect(port) as redis:
        return redis.ask(b"PING") == b"PONG"
    return False

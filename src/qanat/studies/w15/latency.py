"""How long after a commit on MariaDB an application is told of it (Wormhole, Fig. 9)."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from qanat.applications import Callbacks, Delivery, Instance
from qanat.operate.processes import workers
from qanat.runtime.loop import run
from qanat.runtime.workshop import workshop
from qanat.studies.publishing import publisher, publisher_text

if TYPE_CHECKING:
    from qanat_workshop.mariadb_server import MariadbServer

TABLE = "CREATE TABLE shop.rows (k INT PRIMARY KEY, sent_us BIGINT, v VARCHAR(300)) CHARACTER SET utf8mb4"
WARM = 200
"""Commits before those that count: the first of all find caches empty everywhere."""
Millis = npt.NDArray[np.float64]


class Timing(Callbacks):
    """Each row says when its statement was sent."""

    def __init__(self, enough: Callable[[], object], count: int) -> None:
        self._enough, self._left = enough, count
        self.taken: list[Millis] = []

    def on_updates(self, delivery: Delivery) -> None:
        now_us = time.time_ns() // 1000
        for column in delivery.attributes().get("sent_us", []):
            sent: npt.NDArray[Any] = column.drop_null().to_numpy()
            self.taken.append((now_us - sent) / 1000)
            self._left -= len(sent)
        if self._left <= 0:
            self._enough()


def listen(pipe: Pipe, url: str, count: int) -> None:
    """An application that says how late each of `count` updates was, in milliseconds."""

    async def main() -> None:
        loop, enough = asyncio.get_running_loop(), asyncio.Event()
        timing = Timing(lambda: loop.call_soon_threadsafe(enough.set), count)
        instance = Instance(timing, "cache", [url])
        await instance.start()
        pipe.send("ready")
        await enough.wait()
        pipe.send(np.concatenate(timing.taken))
        instance.stop()
        await instance.wait()

    run(main)


def launcher() -> ModuleType:
    """What starts a MariaDB, which only a checkout has."""
    return workshop("mariadb_server", "databases to measure are started")


@contextmanager
def database() -> Iterator[MariadbServer]:
    with (
        tempfile.TemporaryDirectory(prefix="qanat-w15-") as folder,
        launcher().mariadb_server(Path(folder), innodb_flush_log_at_trx_commit="0") as server,
    ):
        server.run("CREATE DATABASE shop", TABLE)
        yield server


def latencies_ms(server: MariadbServer, commits: int, per_s: float, first: int = 0) -> Millis:
    """From when an INSERT, a transaction of its own, was sent to the database until the callback had it."""
    text = publisher_text(server.url, ['cache\nstart = "latest"\ncolumns = true'])
    with (
        tempfile.TemporaryDirectory(prefix="qanat-w15-") as folder,
        publisher(Path(folder), text) as (url, _),
        workers(1, listen, url, commits + WARM) as (sink,),
    ):
        _commit(server, commits + WARM, per_s, first)
        taken: Millis = sink.wait()
    return taken[WARM:]


def _commit(server: MariadbServer, count: int, per_s: float, first: int) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        began = time.monotonic()
        for number in range(count):
            wait_s = began + number / per_s - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            now_us = time.time_ns() // 1000
            cursor.execute(
                f"INSERT INTO shop.rows VALUES ({first + number}, {now_us}, REPEAT('{number % 10}', 250))"
            )

"""A MariaDB primary and its replica, with a load on the primary that outlives any kill, and what their logs
have in the end."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pymysql  # type: ignore[import-untyped]
from tests.integration.mariadb_reading import read_all
from tests.servers.mariadb import MariadbServer, mariadb_server
from tests.waiting import wait_until

from qanat.capture.url import open_reader
from qanat.events.position import Position

KEYS = 300


class Pair(NamedTuple):
    primary: MariadbServer
    replica: MariadbServer

    def caught_up(self) -> None:
        """Returns when the replica has what the primary has now."""
        ((gtid,),) = self.primary.run("SELECT @@gtid_binlog_pos")
        assert self.replica.run(f"SELECT MASTER_GTID_WAIT('{gtid}', 60)") == ((0,),)


@contextmanager
def mariadb_pair(folder: Path) -> Iterator[Pair]:
    """The database `shop` with a table `items`, replicated by GTID, without any delay between two attempts to
    connect."""
    with ExitStack() as stack:
        primary = stack.enter_context(mariadb_server(folder / "primary"))
        replica = stack.enter_context(mariadb_server(folder / "replica", server_id="2"))
        replica.run(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, MASTER_USER='root', "
            "MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=1",
            "START SLAVE",
        )
        primary.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.items (id INT PRIMARY KEY, value VARCHAR(300) NOT NULL)",
        )
        yield Pair(primary, replica)


class Crashing:
    """A server that is killed, and started again beside the test, which takes a second."""

    def __init__(self, server: MariadbServer) -> None:
        self._server = server
        self._starting: threading.Thread | None = None

    def again(self) -> None:
        self.wait()
        self._server.kill()
        self._starting = threading.Thread(target=self._server.start, daemon=True)
        self._starting.start()

    def wait(self) -> None:
        if self._starting is not None:
            self._starting.join(60)


class Load(threading.Thread):
    """Transactions on the primary, as fast as `pause_s` allows; while it is away, it tries again."""

    def __init__(
        self, server: MariadbServer, seed: int = 1, pause_s: float = 0.005, keys: int = KEYS
    ) -> None:
        super().__init__(daemon=True)
        self._keys = keys
        self._server, self._rng, self._pause_s = server, random.Random(seed), pause_s
        self._stopping = threading.Event()
        self.transactions = 0
        """Committed, as far as it was told."""

    def run(self) -> None:
        while not self._stopping.is_set():
            with (
                suppress(pymysql.err.Error, OSError),
                closing(self._server.connect(connect_timeout=5)) as connection,
            ):
                while not self._stopping.is_set():
                    self._transaction(connection)
                    self.transactions += 1
                    time.sleep(self._pause_s)
            time.sleep(0.02)

    def _transaction(self, connection: Any) -> None:
        rng = self._rng
        connection.begin()
        with connection.cursor() as cursor:
            for _ in range(rng.choice((1, 1, 2, 5))):
                key = rng.randrange(self._keys)
                if rng.random() < 0.15:
                    cursor.execute("DELETE FROM shop.items WHERE id = %s", (key,))
                else:
                    value = rng.randbytes(rng.choice((3, 20, 120))).hex()
                    cursor.execute(
                        "INSERT INTO shop.items VALUES (%s, %s) ON DUPLICATE KEY UPDATE value ="
                        " VALUES(value)",
                        (key, value),
                    )
        connection.commit()

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


def rows_of(server: MariadbServer) -> dict[bytes, bytes]:
    """As `Nursery.table` has them."""
    return {
        str(key).encode(): json.dumps({"id": key, "value": value}).encode()
        for key, value in server.run("SELECT id, value FROM shop.items")
    }


def log_of(server: MariadbServer) -> dict[Position, bytes]:
    """All updates that its log has, with their keys."""
    with closing(open_reader(server.url + "shop?dataset=shop")) as reader:
        reader.seek("earliest")
        return {
            update.position: str((update.after or update.before or {})["id"]).encode()
            for update in read_all(reader)
        }


def oldest_of(server: MariadbServer) -> Position:
    """Everything after it, its log has."""
    with closing(open_reader(server.url + "shop?dataset=shop")) as reader:
        return reader.oldest()


def purge(server: MariadbServer, keep: int) -> None:
    """All files of the log but the last ones; a file that is being read goes when that reader has left."""

    def purged() -> bool:
        names = [row[0] for row in server.run("SHOW BINARY LOGS")]
        server.run(f"PURGE BINARY LOGS TO '{names[-keep]}'")
        return len(names) <= keep

    wait_until(purged, every_s=0.05)

"""A MariaDB database fed into a stream while the feed, the stream's server and the database are killed and
restarted."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.feeding import fed, feed_through_kills
from tests.servers.mariadb import MariadbServer, mariadb_server

from qanat.capture import Op
from qanat.capture.updates import Update

pytestmark = pytest.mark.server("mariadb")
_KILLS = 6


@pytest.fixture
def maria(tmp_path: Path) -> Iterator[MariadbServer]:
    with mariadb_server(tmp_path / "mariadb") as server:
        server.run("CREATE DATABASE shop CHARACTER SET utf8mb4")
        server.run("CREATE TABLE shop.orders (id INT PRIMARY KEY, n INT, price DECIMAL(10,2))")
        server.run("CREATE TABLE shop.other (id INT PRIMARY KEY)")
        yield server


class Writer(threading.Thread):
    """Writes small transactions until it is told to stop; a server that is away is tried again."""

    def __init__(self, server: MariadbServer, seed: int) -> None:
        super().__init__()
        self.server, self.rng = server, random.Random(seed)
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            rows = ", ".join(
                f"({self.rng.randrange(300)}, {self.rng.randrange(1000)}, 1.50)" for _ in range(3)
            )
            statements = [
                "BEGIN",
                f"REPLACE INTO shop.orders VALUES {rows}",
                f"INSERT IGNORE INTO shop.other VALUES ({self.rng.randrange(10_000)})",
                f"DELETE FROM shop.orders WHERE id = {self.rng.randrange(300)}",
                "COMMIT",
            ]
            try:
                self.server.run(*statements)
            except Exception:
                self.stopping.wait(0.1)

    def finish(self) -> None:
        self.stopping.set()
        self.join()


def rebuilt(updates: list[Update]) -> dict[int, Any]:
    rows: dict[int, Any] = {}
    for update in updates:
        if update.before is not None:
            rows.pop(update.before["id"], None)
        if update.after is not None:
            rows[update.after["id"]] = (update.after["n"], str(update.after["price"]))
    return rows


def in_datastore(server: MariadbServer) -> dict[int, Any]:
    return {row[0]: (row[1], str(row[2])) for row in server.run("SELECT id, n, price FROM shop.orders")}


def killed_again_and_again(
    command: list[str], maria: MariadbServer, server_process: Any, writer: Writer
) -> None:
    def restart_maria(turn: int) -> None:
        if turn == _KILLS // 2:
            maria.stop()
            maria.start()

    try:
        feed_through_kills(
            command,
            "orders",
            server_process,
            seed=5,
            kills=_KILLS,
            server_share=0.3,
            growth=200,
            between=restart_maria,
        )
    finally:
        writer.finish()
    done = subprocess.run([*command, "--until-end"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.paper("W2")
def test_every_update_is_in_the_stream_once(maria: MariadbServer, server_process: Any) -> None:
    server_process.start()
    writer = Writer(maria, 1)
    writer.start()
    command = [sys.executable, "-m", "qanat", "changes", f"{maria.url}shop?dataset=shop", "--into", "orders"]
    command += ["--url", server_process.url, "--table", "shop.orders"]
    killed_again_and_again(command, maria, server_process, writer)
    updates = fed(server_process.url, "orders")
    positions = [update.position for update in updates]
    assert positions == sorted(set(positions))
    assert {update.table.path for update in updates} == {"shop.orders"}
    assert rebuilt(updates) == in_datastore(maria) != {}


def test_a_snapshot_and_what_follows_make_the_table(
    maria: MariadbServer, server_process: Any, tmp_path: Path
) -> None:
    for start in range(0, 4000, 500):
        values = ", ".join(f"({number}, 0, 2.50)" for number in range(start, start + 500))
        maria.run(f"INSERT INTO shop.orders VALUES {values}")
    server_process.start()
    writer = Writer(maria, 2)
    writer.start()
    command = [
        sys.executable,
        "-m",
        "qanat",
        "changes",
        f"{maria.url}shop?dataset=shop",
        "--into",
        "orders",
        "--table",
        "orders",
    ]
    command += ["--url", server_process.url, "--from", "snapshot", "--state", str(tmp_path / "state.json")]
    killed_again_and_again([*command, "--rows-per-s", "1000"], maria, server_process, writer)
    updates = fed(server_process.url, "orders")
    assert rebuilt(updates) == in_datastore(maria)
    logged = [update.position for update in updates if update.op is not Op.READ]
    assert logged == sorted(set(logged))
    assert sum(update.op is Op.READ for update in updates) > 3000

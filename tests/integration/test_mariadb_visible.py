"""What the log has and no query sees yet: as long as a semi-synchronous replica is waited for, in which a
commit stands still."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.mariadb_reading import read_all, reader_of
from tests.servers.mariadb import MariadbServer, mariadb_server

from qanat.capture import Updates
from qanat.capture.errors import BadLogUrl
from qanat.capture.reader import LogReader

pytestmark = pytest.mark.server("mariadb")


def values(reader: LogReader, wait_s: float) -> list[object]:
    found = reader.read(100, wait_s)
    assert isinstance(found, Updates)
    return [update.after["value"] for update in found.rows() if update.after]


def row(server: MariadbServer) -> object:
    return server.run("SELECT value FROM shop.items WHERE id = 1")[0][0]


def test_updates_are_given_once_queries_see_them(tmp_path: Path) -> None:
    with mariadb_server(tmp_path, rpl_semi_sync_master_timeout="600000") as server:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.items (id INT PRIMARY KEY, value INT)")
        server.run("INSERT INTO shop.items VALUES (1, 10)")
        with closing(reader_of(server)) as plain, closing(reader_of(server, visible="yes")) as visible:
            server.run(
                "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
                "SET GLOBAL rpl_semi_sync_master_enabled = ON",
            )
            writer = threading.Thread(target=server.run, args=("UPDATE shop.items SET value = 11",))
            writer.start()
            assert values(plain, 60) == [11]
            assert row(server) == 10, "the log is ahead of what queries see"
            assert values(visible, 0.5) == []
            server.run("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
            assert values(visible, 60) == [11]
            assert row(server) == 11
            writer.join(60)


def test_nothing_is_held_back_that_is_seen(tmp_path: Path) -> None:
    """Files that are begun, statements without rows, transactions in parts, a server that was killed: all
    move the log's end."""
    with mariadb_server(tmp_path) as server:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.items (id INT PRIMARY KEY, value LONGTEXT)")
        with closing(reader_of(server, visible="yes", hold_bytes=10_000)) as reader:
            reader.seek("earliest")
            for number in range(3):
                server.run(f"INSERT INTO shop.items VALUES ({number}, 'x')", "FLUSH BINARY LOGS")
                assert len(read_all(reader)) == 1
            server.run(
                "INSERT INTO shop.items SELECT seq, REPEAT('y', 2000) FROM shop.seq_10_to_59",
                "CREATE TABLE shop.more (id INT)",
            )
            assert len(read_all(reader)) == 50
            server.run("INSERT INTO shop.items VALUES (100, 'z')")
            server.kill()
            server.start()
        with closing(reader_of(server, visible="yes")) as reader:
            reader.seek("earliest")
            assert len(read_all(reader)) == 54
        with pytest.raises(BadLogUrl, match="it is yes or no"):
            reader_of(server, visible="maybe")

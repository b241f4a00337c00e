"""An application that begins with the rows of a MariaDB, while they are written and everything is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.publishing import QUICK, Nursery
from tests.integration.publishing_mariadb import Load, purge, rows_of
from tests.servers.mariadb import MariadbServer, mariadb_server
from tests.waiting import wait_until

from qanat.events.errors import LocalError
from qanat.publisher.settings import PublisherSettings
from qanat.runtime.config import load

pytestmark = pytest.mark.server("mariadb")

ROWS = 3000
SLOW = "caravan_bytes_s = 700000.0\nwindow_bytes = 60000\n"
"""So slow that kills come in the midst."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MariadbServer]:
    with mariadb_server(tmp_path / "maria") as found:
        found.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.items (id INT PRIMARY KEY, value VARCHAR(300) NOT NULL)",
            "CREATE TABLE shop.empty (id INT PRIMARY KEY)",
            f"INSERT INTO shop.items SELECT seq, CONCAT('row ', seq) FROM shop.seq_0_to_{ROWS - 1}",
            "FLUSH BINARY LOGS",
        )
        purge(found, keep=1)
        yield found


def rows_read(home: Nursery) -> int:
    return sum(update.op == "READ" for update in home.updates("cache"))


@pytest.mark.paper("W6")
@pytest.mark.paper("W9")
def test_rows_then_changes_through_kills_of_publisher_and_subscribers(
    home: Nursery, server: MariadbServer
) -> None:
    writes = Load(server, keys=ROWS, pause_s=0.02)
    writes.start()
    text = f'[log]\nurl = "{server.url}shop?dataset=shop"\nsharding = "hash:8"\n{QUICK}{SLOW}'
    publisher = home.node("publisher", "publisher", text + '[applications.cache]\nstart = "snapshot"\n')
    subscribers = [home.subscriber("cache", [publisher.url]) for _ in range(2)]
    for count, victim in (
        (400, publisher),
        (1000, subscribers[0]),
        (1600, subscribers[1]),
        (2200, publisher),
    ):
        wait_until(lambda count=count: rows_read(home) >= count, say=publisher.status)  # type: ignore[misc]
        victim.again()
    writes.stop()
    wait_until(lambda: home.table("cache") == rows_of(server), say=publisher.status)
    wait_until(lambda: publisher.status().get("snapshots") == [], say=publisher.status)
    home.check_order("cache")
    assert not [words for lines in home.told("cache") for words in lines if words[0] == "lost"]
    assert writes.transactions


def test_a_log_without_tables_is_refused_with_a_sentence() -> None:
    flags = {"log.url": "rocksdb:///data/shop", "applications": {"cache": {"start": "snapshot"}}}
    with pytest.raises(LocalError, match="'cache' starts with a snapshot, but the log"):
        load(PublisherSettings, flags=flags)
    flags = {"applications": {"cache": {"start": "snapshot", "mode": "real-time"}}}
    with pytest.raises(LocalError, match="cannot start with a snapshot"):
        load(PublisherSettings, flags=flags)

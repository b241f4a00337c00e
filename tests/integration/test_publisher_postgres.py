"""A publisher of a PostgreSQL: rows as they are, then changes, through kills; one reader, whose slot is told what is marked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.publishing import QUICK, nursery
from tests.servers.postgres import PostgresServer, postgres_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.server("postgres")]
ROWS = 500


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        found.run(
            "CREATE TABLE items (id int PRIMARY KEY, value text NOT NULL)",
            f"INSERT INTO items SELECT n, 'row ' || n FROM generate_series(0, {ROWS - 1}) n",
        )
        yield found


def rows_of(server: PostgresServer) -> dict[bytes, bytes]:
    """As `Nursery.table` has them."""
    return {
        str(key).encode(): json.dumps({"id": key, "value": value}).encode()
        for key, value in server.run("SELECT id, value FROM items")
    }


def change(server: PostgresServer, number: int) -> None:
    first = 37 * number % ROWS
    server.run(
        f"UPDATE items SET value = 'changed {number}' WHERE id BETWEEN {first} AND {first + 20}",
        f"DELETE FROM items WHERE id = {first}",
        f"INSERT INTO items VALUES ({ROWS + number}, 'new {number}')",
    )


def confirmed(server: PostgresServer) -> int:
    """Up to where the server need keep nothing for the slot."""
    ((count, lsn),) = server.run(
        "SELECT COUNT(*), MAX(confirmed_flush_lsn - '0/0') FROM pg_replication_slots"
    )
    assert count == 1
    return int(lsn)


@pytest.mark.paper("W2")
@pytest.mark.paper("W6")
@pytest.mark.paper("W9")
def test_rows_then_changes_of_a_postgresql_by_one_reader_through_kills(
    tmp_path: Path, server: PostgresServer
) -> None:
    with nursery(tmp_path) as home:
        publisher = home.node(
            "publisher",
            "publisher",
            f'[log]\nurl = "{server.url}?create=yes"\nsharding = "hash:8"\n{QUICK}'
            '[applications.cache]\nstart = "snapshot"\n[applications.live]\nstart = "latest"\n',
        )
        subscribers = [home.subscriber(name, [publisher.url]) for name in ("cache", "cache", "live")]
        wait_until(lambda: home.table("cache") == rows_of(server), say=publisher.status)
        assert {update.op for update in home.updates("cache")} == {"READ"}
        before = confirmed(server)
        for number, victim in enumerate([publisher, *subscribers, publisher, None]):
            change(server, number)
            if victim is not None:
                victim.again()
        wait_until(lambda: home.table("cache") == rows_of(server), 120, say=publisher.status)
        wait_until(lambda: home.table("live").items() <= rows_of(server).items(), 120, say=publisher.status)
        wait_until(lambda: len(publisher.status().get("caravans", ())) == 1, say=publisher.status)
        newest = max(update.position.sequence for update in home.updates("cache"))
        assert newest > before
        wait_until(lambda: confirmed(server) >= newest, 120, say=publisher.status)
        for application in ("cache", "live"):
            home.check_order(application)
            assert not [words for lines in home.told(application) for words in lines if words[0] == "lost"]
        live = {(update.position, update.key) for update in home.updates("live")}
        changes = {(one.position, one.key) for one in home.updates("cache") if one.op != "READ"}
        wait_until(
            lambda: changes <= {(one.position, one.key) for one in home.updates("live")},
            120,
            say=publisher.status,
        )
        assert live

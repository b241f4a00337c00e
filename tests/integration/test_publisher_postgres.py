"""Publishers of a PostgreSQL: rows as they are, then changes, through kills; one reader, whose slot is told
what is marked. And two, with a slot each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.publishing import QUICK, NodeChild, nursery
from tests.servers.postgres import PostgresServer, postgres_server
from tests.waiting import wait_until

pytestmark = pytest.mark.server("postgres")
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


def confirmed(server: PostgresServer, slot: str = "qanat") -> int:
    """Up to where the server need keep nothing for the slot."""
    ((lsn,),) = server.run(
        f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
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
        wait_until(lambda: home.table("cache") == rows_of(server), say=publisher.status)
        wait_until(lambda: home.table("live").items() <= rows_of(server).items(), say=publisher.status)
        wait_until(lambda: len(publisher.status().get("caravans", ())) == 1, say=publisher.status)
        newest = max(update.position.sequence for update in home.updates("cache"))
        assert newest > before
        wait_until(lambda: confirmed(server) >= newest, say=publisher.status)
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


@pytest.mark.paper("W10")
def test_the_slot_of_a_copy_that_owns_nothing_moves_on_and_the_copy_takes_over_without_a_loss(
    tmp_path: Path, server: PostgresServer
) -> None:
    with nursery(tmp_path) as home:
        coordinator = home.node("coordinator", "coordinator", "[server]\nsession_min_ms = 200.0\n")
        coordinator.wait()

        def copy(name: str) -> NodeChild:
            node = home.node(
                "publisher",
                name,
                "[log]\nurl ="
                f' "{server.url}?create=yes&slot={name}&heartbeat_s=0&heartbeat_bytes=0"\nsharding ='
                f' "hash:8"\n{QUICK}[applications.cache]\nstart = "latest"\ncopies = ["test/one",'
                f' "test/two"]\n[coordinator]\nname = "{coordinator.name}"\nurl ='
                f' "{coordinator.url}"\n[session]\ntimeout_ms = 800.0\nretry_ms = 100.0\n',
            )
            node.wait()
            return node

        one, two = copy("one"), copy("two")
        home.subscriber("cache", [one.url, two.url])

        def owns(node: NodeChild) -> bool:
            return bool((node.status().get("copy") or {}).get("owns"))

        def say() -> object:
            return one.status(), two.status()

        wait_until(
            lambda: owns(one) and not owns(two) and one.application("cache").get("subscribers"), say=say
        )
        began = confirmed(server, "two")
        for number in range(3):
            change(server, number)
        newest = log_end(server)
        change(server, 3)
        wait_until(lambda: confirmed(server, "two") >= newest > began, say=say)
        for _ in range(
            3
        ):  # what is no update of anybody's, and past which the first moves its slot before it is marked
            wrote = log_end(server)
            server.run("SELECT pg_logical_emit_message(false, 'other', repeat('x', 100000))")
            wait_until(lambda wrote=wrote: confirmed(server, "two") > wrote, say=say)  # type: ignore[misc]
        assert one.status()["copy"]["returns"] == 0, "its log has what is marked"
        (home.folder / "cache.stall").touch()
        for number in range(4, 7):  # which the first may send, but nobody is done with it
            change(server, number)
        one.end()
        wait_until(lambda: owns(two), say=say)
        (home.folder / "cache.stall").unlink()
        wait_until(lambda: home.table("cache") == touched(server), say=say)
        one.start()
        wait_until(lambda: owns(one) and not owns(two), say=say)
        change(server, 7)
        wait_until(lambda: home.table("cache") == touched(server), say=say)
        home.check_order("cache")
        assert not [words for lines in home.told("cache") for words in lines if words[0] == "lost"]


def log_end(server: PostgresServer) -> int:
    ((lsn,),) = server.run("SELECT pg_current_wal_flush_lsn() - '0/0'")
    return int(lsn)


def touched(server: PostgresServer) -> dict[bytes, bytes]:
    """The rows that were changed since it began, and are still there."""
    return {key: value for key, value in rows_of(server).items() if b'"row ' not in value}

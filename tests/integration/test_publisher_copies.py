"""Publishers beside a real MariaDB primary and its replica: the primary's host dies under load, and comes
back."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.publishing import QUICK, NodeChild, Nursery
from tests.integration.publishing_mariadb import Load, Pair, log_of, mariadb_pair, oldest_of, purge, rows_of
from tests.servers.mariadb import MariadbServer
from tests.waiting import wait_until

from qanat.cli.main import main
from qanat.events.position import Position

pytestmark = [pytest.mark.server("mariadb"), pytest.mark.paper("W10")]
BOTH = ["cache/0", "cache/1"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with mariadb_pair(tmp_path / "maria") as found:
        yield found


class Copies:
    """A coordinator, a publisher beside each server, and an application with two instances."""

    def __init__(self, home: Nursery, pair: Pair, read_rows: int = 200) -> None:
        self.home, self.pair, self._limits = (
            home,
            pair,
            f"{QUICK}parts = 2\n".replace("read_rows = 200", f"read_rows = {read_rows}"),
        )
        self.coordinator = home.node("coordinator", "coordinator", "[server]\nsession_min_ms = 200.0\n")
        self.coordinator.wait()
        self.one, self.two = self._publisher("one", pair.primary), self._publisher("two", pair.replica)
        self.subscribers = [home.subscriber("cache", [self.one.url, self.two.url]) for _ in range(2)]

    def _publisher(self, name: str, server: MariadbServer) -> NodeChild:
        return self.home.node(
            "publisher",
            name,
            f'[log]\nurl = "{server.url}shop?dataset=shop"\nsharding = "hash:8"\n{self._limits}'
            '[applications.cache]\nstart = "earliest"\ncopies = ["test/one", "test/two"]\n'
            f'[coordinator]\nname = "{self.coordinator.name}"\nurl = "{self.coordinator.url}"\n'
            "[session]\ntimeout_ms = 800.0\nretry_ms = 100.0\n",
        )

    def kill_host(self) -> None:
        """Of the primary: the server and its publisher."""
        self.pair.primary.kill()
        self.one.end()

    def start_host(self) -> None:
        self.pair.primary.start()
        self.one.start()

    def owned(self, by: NodeChild) -> bool:
        other = self.two if by is self.one else self.one
        return owns(by) == BOTH and owns(other) == []

    def say(self) -> object:
        return self.one.status(), self.two.status()

    def positions(self) -> set[Position]:
        return {update.position for update in self.home.updates("cache")}

    def losses(self) -> list[tuple[set[str], Position, Position]]:
        return [
            (set(words[1].split(",")), Position.parse(words[2]), Position.parse(words[3]))
            for lines in self.home.told("cache")
            for words in lines
            if words[0] == "lost"
        ]


def owns(node: NodeChild) -> list[str]:
    return sorted((node.status().get("copy") or {}).get("owns", []))


def test_the_replicas_publisher_takes_over_at_the_datamarkers_and_gives_back(
    home: Nursery, pair: Pair
) -> None:
    copies, load = Copies(home, pair), Load(pair.primary)
    load.start()
    wait_until(lambda: copies.owned(copies.one) and copies.positions(), say=copies.say)
    pair.replica.run("STOP SLAVE SQL_THREAD")  # it has the primary's log, and is behind with its own
    before = len(copies.positions())
    wait_until(lambda: len(copies.positions()) > before + 200, say=copies.say)
    copies.kill_host()
    wait_until(lambda: owns(copies.two) == BOTH, say=copies.say)
    wait_until(lambda: "before the datamarker" in copies.two.status().get("log_problem", ""), say=copies.say)
    pair.replica.run("START SLAVE SQL_THREAD")
    wait_until(lambda: log_of(pair.replica).keys() <= copies.positions(), say=copies.say)
    assert copies.two.status()["copy"]["takeovers"] == 2
    copies.start_host()
    wait_until(lambda: copies.owned(copies.one), say=copies.say)
    more = load.transactions + 50
    wait_until(lambda: load.transactions > more)
    load.stop()
    pair.caught_up()
    everything = log_of(pair.primary)
    assert everything == log_of(pair.replica)
    wait_until(lambda: copies.positions() == everything.keys(), say=copies.say)
    assert home.table("cache") == rows_of(pair.primary)
    home.check_order("cache")
    assert copies.losses() == []


def test_what_the_survivors_log_no_longer_has_is_told_as_lost(home: Nursery, pair: Pair) -> None:
    copies, load = (
        Copies(home, pair, read_rows=20),
        Load(pair.primary),
    )  # so that little is handed over at once
    load.start()
    wait_until(lambda: copies.owned(copies.one) and len(copies.positions()) > 100, say=copies.say)
    stall = home.folder / "cache.stall"
    stall.touch()
    behind = load.transactions + 150
    wait_until(lambda: load.transactions > behind)
    pair.caught_up()
    pair.replica.run("FLUSH BINARY LOGS")
    behind = load.transactions + 50
    wait_until(lambda: load.transactions > behind)
    pair.caught_up()
    pair.replica.run("FLUSH BINARY LOGS")
    purge(pair.replica, keep=2)
    copies.kill_host()
    oldest = oldest_of(pair.replica)
    wait_until(lambda: owns(copies.two) == BOTH, say=copies.say)  # what they had of the other is void by now
    stall.unlink()
    wait_until(lambda: log_of(pair.replica).keys() <= copies.positions(), say=copies.say)
    losses = copies.losses()
    assert losses and {upto for _, _, upto in losses} == {oldest}
    copies.start_host()
    wait_until(lambda: copies.owned(copies.one), say=copies.say)
    load.stop()
    everything = log_of(pair.primary)
    newer = {position for position in everything if position > oldest}
    wait_until(lambda: newer <= copies.positions(), say=copies.say)
    missing = everything.keys() - copies.positions()
    assert missing, "they were behind by what the replica purged"
    for each in missing:
        shard = str(zlib.crc32(everything[each]) % 8)
        assert any(shard in some and after < each <= upto for some, after, upto in losses), each
    home.check_order("cache")


def test_a_copy_whose_datastore_is_away_gives_its_parts_to_one_that_can_read(
    home: Nursery, pair: Pair
) -> None:
    copies, load = Copies(home, pair), Load(pair.primary)
    load.start()
    wait_until(lambda: copies.owned(copies.one) and len(copies.positions()) > 100, say=copies.say)
    load.stop()
    pair.caught_up()  # or it would keep its parts: it has marked what the replica has not
    pair.primary.kill()
    wait_until(lambda: copies.owned(copies.two), say=copies.say)
    assert copies.one.runs()
    wait_until(lambda: log_of(pair.replica).keys() == copies.positions(), say=copies.say)
    copies.one.again()  # it waits for its datastore
    pair.primary.start()
    load = Load(pair.primary, seed=2)
    load.start()
    wait_until(lambda: copies.owned(copies.one) and load.transactions, say=copies.say)
    load.stop()
    everything = log_of(pair.primary)
    wait_until(lambda: copies.positions() == everything.keys(), say=copies.say)
    assert home.table("cache") == rows_of(pair.primary)
    home.check_order("cache")
    assert copies.losses() == []


def test_a_replica_that_was_made_the_primary_without_what_was_marked_passes_over_nothing(
    home: Nursery, pair: Pair
) -> None:
    copies, load = Copies(home, pair), Load(pair.primary)
    load.start()
    wait_until(lambda: copies.owned(copies.one) and len(copies.positions()) > 100, say=copies.say)
    pair.caught_up()
    pair.replica.run("STOP SLAVE")
    before = len(copies.positions())
    wait_until(lambda: len(copies.positions()) > before + 100, say=copies.say)
    load.stop()
    end = max(log_of(pair.primary))
    wait_until(lambda: marked(copies.one) >= end, say=copies.say)
    copies.kill_host()
    pair.replica.run("RESET SLAVE ALL")
    parted = max(log_of(pair.replica))
    assert parted < end
    wait_until(lambda: "before the datamarker" in copies.two.status().get("log_problem", ""), say=copies.say)
    load = Load(pair.replica, seed=9)
    load.start()

    def problem() -> str:
        return str(copies.two.application("cache").get("problem", ""))

    wait_until(lambda: "not the log that was read before" in problem(), say=copies.say)
    at = re.search(r"at (\S+) it has ", problem())
    # What the first had marked last may not have been on record yet when it died.
    assert at is not None and parted < Position.parse(at[1]) <= end and "qanat move cache" in problem()
    more = load.transactions + 50
    wait_until(lambda: load.transactions > more)
    load.stop()
    assert max(copies.positions()) == end, "it stands still"
    assert copies.losses() == []
    copies.two.again()  # nor does it go on because it has forgotten
    wait_until(lambda: "not the log that was read before" in problem(), say=copies.say)
    assert max(copies.positions()) == end
    assert main(["move", "cache", "--position", str(parted), "--publisher", str(copies.two.config)]) == 0
    since = {(position, key) for position, key in log_of(pair.replica).items() if position > parted}
    wait_until(lambda: since <= {(told.position, told.key) for told in home.updates("cache")}, say=copies.say)
    wait_until(lambda: not problem(), say=copies.say)


def marked(node: NodeChild) -> Position:
    """Up to where all that an application has is."""
    flows = node.application("cache").get("flows", [])
    return min((Position.parse(flow["marked"]) for flow in flows), default=Position(0, 0))

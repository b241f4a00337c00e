"""Many kills under load: publishers, subscribers, the ZooKeeper servers through which they agree, and both
copies of the database."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.publishing import QUICK, Nursery, nursery
from tests.integration.publishing_mariadb import Crashing, Load, log_of, mariadb_pair, rows_of
from tests.rotation import few, turn
from tests.servers.mariadb import MariadbServer
from tests.servers.zookeeper import TICK_MS, zookeeper_ensemble
from tests.waiting import wait_until

from qanat.events.position import Position

pytestmark = pytest.mark.server("mariadb")
KILLS = few(100, rarely=36)


@contextmanager
def loaded(server: MariadbServer) -> Iterator[Load]:
    load = Load(server, pause_s=0.02)
    load.start()
    try:
        yield load
    finally:
        load.stop()


def missing(home: Nursery, application: str, wanted: set[Position]) -> set[Position]:
    return wanted - {update.position for update in home.updates(application)}


@pytest.mark.rotating
@pytest.mark.paper("W4")
@pytest.mark.paper("W9")
@pytest.mark.paper("W10")
def test_every_table_equals_the_databases_after_many_kills(tmp_path: Path) -> None:
    rng = random.Random(11 + turn())
    with (
        zookeeper_ensemble(tmp_path / "zookeeper") as ensemble,
        mariadb_pair(tmp_path / "maria") as pair,
        nursery(tmp_path) as home,
    ):
        publishers = [
            home.node(
                "publisher",
                name,
                f'[log]\nurl = "{server.url}shop?dataset=shop"\nsharding = "hash:8"\n{QUICK}parts = 2\n'
                '[applications.cache]\nstart = "earliest"\ncopies = ["test/one", "test/two"]\n'
                "[applications.odd]\nstart = \"earliest\"\nwhere = '#S in (1, 3, 5, 7)'\n"
                f'[coordinator]\nurl = "{ensemble.url("shop")}"\n'
                f"[session]\ntimeout_ms = 1000.0\nretry_ms = 100.0\nzookeeper_tick_ms = {TICK_MS}.0\n",
            )
            for name, server in (("one", pair.primary), ("two", pair.replica))
        ]
        for publisher in publishers:
            publisher.wait()
        urls = [publisher.url for publisher in publishers]
        subscribers = [
            home.subscriber("cache", urls, "cache-1"),
            home.subscriber("cache", urls),
            home.subscriber("odd", urls),
        ]
        servers = [Crashing(pair.primary), Crashing(pair.replica)]
        with loaded(pair.primary):
            for number in range(KILLS):
                time.sleep(rng.uniform(0, 0.15))  # wherever they are then
                if number % 12 == 11:
                    servers[number // 12 % 2].again()
                elif number % 12 == 5:
                    keeper = rng.choice(ensemble.servers)
                    keeper.kill()
                    keeper.start()
                else:
                    rng.choice([*publishers, *subscribers]).again()
            for server in servers:
                server.wait()
        pair.caught_up()
        log = log_of(pair.primary)
        assert log == log_of(pair.replica)
        say = [publisher.status for publisher in publishers]
        wait_until(
            lambda: not missing(home, "cache", set(log)),
            120,
            every_s=0.3,
            say=lambda: [each() for each in say],
        )
        rows = rows_of(pair.primary)
        assert home.table("cache") == rows
        odd = {update.position for update in home.updates("cache") if int(update.shard) % 2}
        wait_until(
            lambda: not missing(home, "odd", odd), 120, every_s=0.3, say=lambda: [each() for each in say]
        )
        assert {update.position for update in home.updates("odd")} == odd
        shards = {update.key: int(update.shard) for update in home.updates("cache")}
        odd_rows = {key: value for key, value in rows.items() if shards[key] % 2}
        assert 0 < len(odd_rows) < len(rows)
        assert home.table("odd") == odd_rows
        for application in ("cache", "odd"):
            home.check_order(application)
            assert not [words for lines in home.told(application) for words in lines if words[0] == "lost"]
        assert all(one.runs() for one in (*publishers, *subscribers))
        assert all(server.runs() for server in ensemble.servers)

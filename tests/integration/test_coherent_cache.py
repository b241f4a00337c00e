"""The example of docs/cache.md on real servers: two regions, each with its copy of the database and its
memcached."""

from __future__ import annotations

import random
import runpy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest
from tests.integration.publishing import QUICK, Child, NodeChild, Nursery, nursery
from tests.integration.publishing_mariadb import Crashing, Load, mariadb_pair
from tests.servers.mariadb import MariadbServer
from tests.servers.memcached import MemcachedServer, memcached_server
from tests.waiting import wait_until

from qanat.capture.url import open_reader
from qanat.events.position import Position

pytestmark = pytest.mark.server("memcached")
EXAMPLE = Path(__file__).parents[2] / "examples" / "coherent_cache.py"
KEYS = 20
KILLS = 40


Client = Callable[[MemcachedServer], Any]


@pytest.fixture
def client() -> Iterator[Client]:
    """Makes the example's clients."""
    kind = runpy.run_path(str(EXAMPLE))["Memcached"]
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(closing(kind(server.address)))


@pytest.fixture
def memcached() -> Iterator[MemcachedServer]:
    with memcached_server() as server:
        yield server


class Region:
    """A copy of the database, its publisher, a memcached and the example between them."""

    def __init__(self, home: Nursery, name: str, database: MariadbServer, memcached: MemcachedServer) -> None:
        self.database, self.memcached = database, memcached
        self.publisher: NodeChild = home.node(
            "publisher",
            name,
            f'[log]\nurl = "{database.url}shop?dataset=shop&visible=yes"\nsharding = "hash:4"\n{QUICK}'
            "[applications.cache]\n",
        )
        self.subscriber: Child = home.script(EXAMPLE, self.publisher.url, memcached.address)
        self.server = Crashing(database)
        self.parts: list[Any] = [self.publisher, self.subscriber, memcached]

    def begun(self) -> bool:
        return bool(self.publisher.application("cache").get("begun"))

    def is_done(self) -> bool:
        """With everything that the log has."""
        with closing(open_reader(f"{self.database.url}shop?dataset=shop")) as reader:
            end = reader.latest()
        cache = self.publisher.application("cache")
        marked = Position.parse(cache.get("marked", "0:0"))
        return marked >= end and cache["shards"] == 4 and cache["unassigned"] == 0


class Reader(threading.Thread):
    """Reads rows of its region through the cache, as fast as it can; fills it, therefore."""

    def __init__(self, region: Region, cache: Any, seed: int) -> None:
        super().__init__(daemon=True)
        self._region, self._cache, self._rng = region, cache, random.Random(seed)
        self._stopping = threading.Event()
        self.hits = self.reads = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            with suppress(pymysql.err.Error, OSError), closing(self._region.database.connect()) as connection:
                while not self._stopping.is_set():
                    self._read(connection, self._rng.randrange(KEYS))
            time.sleep(0.02)

    def _read(self, connection: Any, key: int) -> None:
        def load() -> bytes | None:
            self.hits -= 1
            with connection.cursor() as cursor:
                cursor.execute("SELECT value FROM shop.items WHERE id = %s", (key,))
                found = cursor.fetchone()
            time.sleep(self._rng.choice((0, 0, 0.003)))  # time for a write, and for what follows from it
            return None if found is None else found[0].encode()

        self.reads += 1
        self.hits += 1
        self._cache.read(f"shop.items:{key}", load)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


@pytest.mark.server("mariadb")
@pytest.mark.paper("W4")
def test_every_cached_value_equals_the_row_after_kills_of_every_part(tmp_path: Path, client: Client) -> None:
    rng = random.Random(5)
    with ExitStack() as stack:
        pair = stack.enter_context(mariadb_pair(tmp_path / "maria"))
        home = stack.enter_context(nursery(tmp_path))
        regions = [
            Region(home, name, database, stack.enter_context(memcached_server()))
            for name, database in (("east", pair.primary), ("west", pair.replica))
        ]
        wait_until(lambda: all(region.begun() for region in regions))
        loads = [Load(pair.primary, seed, 0.01, KEYS) for seed in (1, 2)]
        readers = [Reader(region, client(region.memcached), seed) for seed, region in enumerate(regions * 2)]
        for thread in (*loads, *readers):
            thread.start()
        for number in range(KILLS):
            time.sleep(rng.uniform(0, 0.2))  # wherever they are then
            region = regions[number % 2]
            (region.server if number % 10 > 7 else rng.choice(region.parts)).again()
        for load in loads:
            load.stop()
        for region in regions:
            region.server.wait()
        pair.caught_up()
        for region in regions:
            wait_until(region.is_done, every_s=0.1, say=region.publisher.status)
        for reader in readers:
            reader.stop()
            assert reader.hits > 0, "nothing was ever read from the cache"
        cached = 0
        for region in regions:
            rows = dict(region.database.run("SELECT id, value FROM shop.items"))
            cache = client(region.memcached)
            for key in range(KEYS):
                value, _ = cache.get(f"shop.items:{key}")
                cached += value is not None
                assert value is None or value.decode() == rows.get(key), (
                    f"row {key} of {region.publisher.name}"
                )
        assert cached > 0, "nothing is cached in the end"


def test_who_read_before_the_row_was_forgotten_does_not_fill(
    memcached: MemcachedServer, client: Client
) -> None:
    one, other = client(memcached), client(memcached)
    assert one.read("a", lambda: b"1") == b"1"
    assert other.read("a", lambda: b"2") == b"1"

    def late() -> bytes:
        other.forget("b")
        return b"old"

    assert one.read("b", late) == b"old"
    assert other.get("b")[0] is None

    def later() -> bytes:
        other.forget_all()
        return b"old"

    assert one.read("c", later) == b"old"
    assert [other.get(key)[0] for key in "abc"] == [None, None, None]


def test_a_lease_does_not_outlive_the_memcached_that_gave_it(
    memcached: MemcachedServer, client: Client
) -> None:
    """One that is started again counts anew, so that the number of an old lease may be that of a new one."""
    cache = client(memcached)
    _, lease = cache.get("a")
    memcached.again()
    with pytest.raises(OSError):
        cache.fill(lease, b"old")
    assert cache.fill(lease, b"old") is False
    cache.forget("a")
    assert cache.get("a")[0] is None

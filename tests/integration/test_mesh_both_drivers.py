"""The meshes of a region, unchanged, under the simulator and on real sockets: clients that want different
streams, one to which nobody can connect, one that dies, and a proxy that hands its place to another."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.waiting import until

from qanat.events.batch import Batch
from qanat.kernel import Address, Context
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import Arrived, ClientMeshes, MeshConfig, ProxyMeshes, Serve, Subscribe
from qanat.protocols.views import UseProxy, ViewsConfig
from qanat.runtime.driver import Driver
from qanat.runtime.loop import new_loop
from qanat.runtime.members import member_name, with_members
from qanat.runtime.url import Url
from qanat.sim import Links, LinkSpec, World
from qanat.wire.control import Identity

pytestmark = pytest.mark.paper("S7")

CHANNEL = 17
STREAMS = (5, 6)
MESH = MeshConfig(proxy_shuffle_ms=50, idle_ms=100, answer_ms=200)
VIEWS = ViewsConfig(gossip_ms=20, proxy_rounds=5, forget_rounds=25)
PATIENCE_S = 300
LISTENING, ALL = 8, 9
Wants = tuple[int, ...]


def wants(client: int) -> Wants:
    """Every client the first stream, a few the second as well: in a mesh of everybody they would hardly
    meet."""
    return STREAMS if client in (2, 5, ALL - 1) else STREAMS[:1]


class OneHistory(MemoryHistory):
    """Both proxies are replicas of one chain: here they share what they store."""

    def holds(self, stream: int) -> bool:
        return stream in STREAMS


class Region:
    """What the story below needs of a driver; clients and proxies by number."""

    def __init__(self) -> None:
        self.history = OneHistory()
        self.got: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(ALL)]
        self.machines: dict[int, ClientMeshes] = {}
        self.proxies: dict[int, ProxyMeshes] = {}

    def took(self, client: int) -> Callable[[Any], None]:
        return lambda batch: self.got[client].setdefault(batch.stream, []).append((batch.first, batch.last))

    def proxy(self, number: int, context: Context) -> ProxyMeshes:
        made = self.proxies[number] = ProxyMeshes(context, MESH, VIEWS, self.history, serves=number == 0)
        return made

    def client(self, number: int, context: Context) -> ClientMeshes:
        listens = number < LISTENING
        made = self.machines[number] = ClientMeshes(context, MESH, VIEWS, Address("p0"), listens=listens)
        return made

    def publish(self, proxy: int, count: int) -> None:
        for stream in STREAMS:
            self.history.append(Batch.build(stream, [b"payload"] * count))
            self.ask_proxy(proxy, Arrived(stream))

    def complete(self, client: int) -> bool:
        return all(self.last(client, stream) == self.history.counter(stream) for stream in wants(client))

    def last(self, client: int, stream: int) -> int:
        ranges = self.got[client].get(stream, [])
        return ranges[-1][1] if ranges else 0

    def ask_proxy(self, number: int, request: object) -> None:
        raise NotImplementedError

    def ask_client(self, number: int, request: object) -> None:
        raise NotImplementedError

    def kill(self, client: int) -> None:
        raise NotImplementedError

    def address(self, client: int) -> Address:
        return self.machines[client].context.address

    def proxy_address(self, number: int) -> Address:
        return self.proxies[number].context.address

    def until(self, condition: Callable[[], bool]) -> None:
        raise NotImplementedError

    def close(self) -> None: ...


class Simulated(Region):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(3, links=Links(LinkSpec(latency_ms=0.5, jitter_ms=0.5, loss=0.02)))
        for number in range(2):
            self.world.add(Address(f"p{number}"), partial(self.proxy, number))
        for number in range(ALL):
            self.world.add(
                Address(f"c{number}"),
                partial(self.client, number),
            )
        self.world.deliver_hooks.append(
            lambda _, node, item: self.took(int(node.address[1:]))(item) if node.address[0] == "c" else None
        )
        self.world.start()
        self.world.run(1)

    def ask_proxy(self, number: int, request: object) -> None:
        self.world.nodes[Address(f"p{number}")].request(request)

    def ask_client(self, number: int, request: object) -> None:
        self.world.nodes[Address(f"c{number}")].request(request)

    def kill(self, client: int) -> None:
        self.world.crash(self.world.nodes[Address(f"c{client}")])

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = self.world.now + int(PATIENCE_S * 1e6)
        while not condition():
            assert self.world.now < deadline, "waited too long"
            self.world.run(self.world.now + 10_000)
            assert self.world.violations == []


class OnSockets(Region):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=new_loop)
        self.urls: dict[str, Url] = {}
        self.drivers: dict[str, Driver] = {}
        self.runner.run(self._start())

    async def _start(self) -> None:
        for number in range(2):
            driver = self._driver(f"p{number}", f"p{number}")
            driver.add(CHANNEL, "mesh", partial(self.proxy, number))
            self.urls[f"p{number}"] = await driver.start("127.0.0.1", 0)
        for number in range(ALL):
            port = _free_port()
            name = f"c{number}"
            name = member_name(name, "127.0.0.1", port) if number < LISTENING else Address(name)
            driver = self._driver(f"c{number}", name)
            driver.add(
                CHANNEL,
                "mesh",
                partial(self.client, number),
                self.took(number),
            )
            if number < LISTENING:
                await driver.start("127.0.0.1", port)
            else:
                await driver.start_unlisted()

    def _driver(self, key: str, name: str) -> Driver:
        driver = self.drivers[key] = Driver(
            Identity(name, time.time_ns()), with_members(self.urls.get), idle_ms=2000
        )
        return driver

    def ask_proxy(self, number: int, request: object) -> None:
        self.runner.run(self._ask(f"p{number}", request))

    def ask_client(self, number: int, request: object) -> None:
        self.runner.run(self._ask(f"c{number}", request))

    async def _ask(self, key: str, request: object) -> None:
        self.drivers[key].request(CHANNEL, request)

    def kill(self, client: int) -> None:
        self.runner.run(self.drivers.pop(f"c{client}").stop())

    def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            assert all(driver.failed() == {} for driver in self.drivers.values())
            return condition()

        self.runner.run(until(holds))

    def close(self) -> None:
        async def stop() -> None:
            for driver in self.drivers.values():
                await driver.stop()

        self.runner.run(stop())
        self.runner.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(params=[Simulated, OnSockets])
def region(request: pytest.FixtureRequest) -> Any:
    made = request.param()
    yield made
    made.close()


def test_everyone_gets_what_it_wants_in_order_whatever_happens(region: Region) -> None:
    everyone = set(range(ALL))
    for client in everyone:
        for stream in wants(client):
            region.ask_client(client, Subscribe(stream, 0))
    for _ in range(10):
        region.publish(0, 20)
    region.until(lambda: all(map(region.complete, everyone)))
    views = [mesh.membership.view for mesh in (region.proxies[0].meshes[stream] for stream in STREAMS)]
    assert set(views[1]) == {region.address(client) for client in (2, 5)}, "each stream has a mesh of its own"
    assert region.address(ALL - 1) not in views[0], "who cannot be reached is in no view"
    assert not region.proxies[1].meshes

    dead = region.address(3)
    region.kill(3)
    everyone.discard(3)
    region.publish(0, 20)
    region.until(lambda: all(map(region.complete, everyone)))

    region.ask_proxy(0, Serve(False))
    region.ask_proxy(1, Serve(True))
    region.publish(1, 20)
    for client in everyone:
        region.ask_client(client, UseProxy(region.proxy_address(1)))
    for _ in range(10):
        region.publish(1, 20)
    region.until(lambda: all(map(region.complete, everyone)))
    assert not region.proxies[0].meshes

    members = [region.machines[client].meshes[5] for client in everyone] + [region.proxies[1].meshes[5]]
    region.until(lambda: all(dead not in mesh.membership.view for mesh in members))
    for client in range(ALL):
        for stream in wants(client):
            ranges = region.got[client][stream]
            assert [first for first, _ in ranges] == [1, *(last + 1 for _, last in ranges[:-1])]
        assert set(region.got[client]) == set(wants(client))

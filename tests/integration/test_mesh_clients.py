"""Real clients in the mesh of one server: what they get, what it costs the server, and what happens when
things go wrong."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest
from tests.waiting import DEADLINE_S, run, until

from qanat.client import AsyncClient, Batch, Client, ClientSettings, EventsLost, MeshSettings, RequestRefused
from qanat.client.mesh_member import MeshMember
from qanat.client.mesh_subscription import MeshSubscription
from qanat.events.batch import stream_id
from qanat.events.errors import LocalError
from qanat.events.event import events
from qanat.protocols.mesh import MeshConfig
from qanat.protocols.views import ViewsConfig
from qanat.runtime.members import MESH_CHANNEL, member_url

pytestmark = pytest.mark.paper("S7")

VIEWS = ViewsConfig(gossip_ms=50, proxy_rounds=5, forget_rounds=20)
MESH = MeshSettings(mesh=MeshConfig(idle_ms=300, answer_ms=500), views=VIEWS)
VISITOR = MeshSettings(listen=False, mesh=MESH.mesh, views=VIEWS)
FLAGS = ("views.gossip_ms=50", "views.proxy_rounds=5", "views.forget_rounds=20", "log.mode=interval")


def way(subscription: MeshSubscription) -> str:
    return subscription.way


class Reader:
    """An application that takes what comes, and checks that nothing is missing."""

    def __init__(self, client: AsyncClient, subscription: Any) -> None:
        assert isinstance(subscription, MeshSubscription)
        self.client, self.subscription = client, subscription
        self.batches: list[Batch] = []
        self.last = self.rows = 0
        self.lost: list[tuple[int, int]] = []
        self.task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        await self.subscription.confirmed()
        self.last = self.subscription.next - 1
        while True:
            try:
                for batch in await self.subscription.take():
                    filtered = bool(self.subscription.where)
                    assert batch.first > self.last if filtered else batch.first == self.last + 1
                    self.last, self.rows = batch.last, self.rows + batch.count
                    self.batches.append(batch)
            except EventsLost as lost:
                self.lost.append((lost.first, lost.last))
                self.last = lost.last

    @property
    def member(self) -> MeshMember:
        assert self.client.member is not None
        return self.client.member

    @property
    def way(self) -> str:
        return self.subscription.way


class Readers(AsyncExitStack):
    """Clients that read the stream `s` by way of the mesh; all are closed at the end."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.readers: list[Reader] = []

    async def add(self, mesh: MeshSettings = MESH, **options: Any) -> Reader:
        client = await self.enter_async_context(AsyncClient(self.url, mesh=mesh))
        options = {"start": "earliest", **options}
        reader = Reader(client, client.subscribe("s", via="mesh", **options))
        self.readers.append(reader)
        self.callback(reader.task.cancel)
        return reader

    async def publisher(self) -> AsyncClient:
        return await self.enter_async_context(AsyncClient(self.url))

    async def warm_up(self, publisher: AsyncClient) -> int:
        """Publishes little by little until everyone gets its events from the mesh; how many there are
        then."""
        deadline = time.monotonic() + DEADLINE_S
        last = 0
        while not all(reader.way == "mesh" for reader in self.readers):
            assert time.monotonic() < deadline, [reader.way for reader in self.readers]
            last = await publisher.publish("s", b"warm")
            await asyncio.sleep(0.02)
        return last

    async def all_have(self, last: int) -> None:
        def have() -> bool:
            for reader in self.readers:
                if reader.task.done():
                    reader.task.result()
            return all(reader.last == last for reader in self.readers)

        await until(have)


def test_everyone_gets_everything_and_the_server_sends_few_copies(serving: Any) -> None:
    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            for number in range(14):
                await region.add(VISITOR if number in (3, 8) else MESH)
            await region.warm_up(publisher)
            before, data, last = server.traffic.sent_bytes, 0, 0
            for _ in range(20):
                _, last = await publisher.publish_many("s", [bytes(100)] * 1000)
                data += 100_000
                await asyncio.sleep(0.02)  # so that the mesh has many rounds, not one large one
            await region.all_have(last)
            assert [reader.subscription.fallbacks for reader in region.readers] == [0] * 14
            copies = (server.traffic.sent_bytes - before) / data
            assert copies < 11, "the server fed everyone itself"
            members = server.mesh.status(stream_id("s"))
            assert members["visitors"] == 2
            names = {reader.member.name for reader in region.readers if reader.member.listens}
            assert len(names) == 12
            assert set(members["members"]) <= names
            shown = server.metrics.render().decode()
            assert f'qanat_mesh_view_members{{stream="s"}} {len(members["members"])}.0' in shown
            assert 'qanat_mesh_visitors{stream="s"} 2.0' in shown
            assert all(member_url(name) is not None for name in names)

    run(work())


def test_filters_are_applied_to_what_the_mesh_brings(serving: Any) -> None:
    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            picky = await region.add(where="n in 3..4")
            await region.add()
            never = await region.add(where="n = 99")
            last = warm = await region.warm_up(publisher)
            for _ in range(10):
                rows = [{"n": n} for n in range(10)]
                _, last = await publisher.publish_many("s", [b"x"] * 10, attributes=rows)
            await until(lambda: picky.subscription.next == never.subscription.next == last + 1)
            assert picky.rows == 20
            got = [event.attributes["n"] for batch in picky.batches for event in events(batch)]
            assert got == [3, 4] * 10
            assert never.rows == 0
            assert warm + 100 == last
            assert picky.way == never.way == "mesh"

    run(work())


def test_a_slow_application_is_served_directly_and_memory_stays_bounded(serving: Any) -> None:
    window_bytes = 100_000

    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            for _ in range(3):
                await region.add()
            settings = ClientSettings(subscription_bytes=window_bytes)
            slow = await region.enter_async_context(AsyncClient(server.url, mesh=MESH, settings=settings))
            subscription = slow.subscribe("s", start=1, via="mesh")
            assert isinstance(subscription, MeshSubscription)
            while way(subscription) != "mesh":
                await publisher.publish("s", b"warm")
                await subscription.take()
            last = 0
            for _ in range(40):
                _, last = await publisher.publish_many("s", [bytes(100)] * 500)
                await asyncio.sleep(0.005)  # no faster than the others keep up
            await region.all_have(last)
            await until(lambda: way(subscription) == "server")
            arrived = sum(len(item) for item in subscription._arrived if isinstance(item, memoryview))
            held = sum(size for size, _ in subscription._come) + arrived
            assert held < 4 * window_bytes < 40 * 500 * 100, "more and more waited for the application"
            expected = subscription.next
            while expected <= last:
                for batch in await subscription.take():
                    assert batch.first == expected
                    expected = batch.last + 1
            assert subscription.fallbacks == 1
            # Once it has caught up it takes part again.
            follower = asyncio.ensure_future(_drain(subscription))
            while way(subscription) != "mesh":
                await publisher.publish("s", b"again")
                await asyncio.sleep(0.02)
            follower.cancel()

    run(work())


async def _drain(subscription: Any) -> None:
    while True:
        await subscription.take()


def test_where_to_start_and_what_is_lost_are_as_without_the_mesh(serving: Any) -> None:
    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            await publisher.publish_many("s", [b"x"] * 100)
            latest = await region.add(start="latest")
            await latest.subscription.confirmed()
            middle = await region.add(start=50)
            await region.warm_up(publisher)
            await region.all_have(server.registry.get("s").log.next - 1)
            assert latest.batches[0].first == 101
            assert middle.batches[0].first == 50
            with pytest.raises(RequestRefused):
                await publisher.subscribe("s", start=10_000, via="mesh").confirmed()
            with pytest.raises(LocalError, match="via"):
                publisher.subscribe("s", via="pigeon")  # type: ignore[arg-type]

    run(work())


def test_several_subscriptions_of_one_client(serving: Any) -> None:
    """Those of one stream share its mesh, each with its own place and pace; of several streams each has its
    own."""

    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            first = await region.add()
            await region.warm_up(publisher)
            second = Reader(first.client, first.client.subscribe("s", start="earliest", via="mesh"))
            other = Reader(first.client, first.client.subscribe("t", start="earliest", via="mesh"))
            region.callback(second.task.cancel)
            region.callback(other.task.cancel)
            last = 0
            while not first.way == second.way == other.way == "mesh":
                last = await publisher.publish("s", b"x")
                await publisher.publish("t", b"x")
                await asyncio.sleep(0.02)
            await until(lambda: first.last == second.last == last)
            first.task.cancel()
            await first.subscription.close()
            last = await publisher.publish("s", b"x")
            await until(lambda: second.last == last)
            assert second.way == "mesh"

    run(work())


def test_who_can_listen_nowhere_is_a_visitor(serving: Any) -> None:
    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            stuck = await region.add(MeshSettings(host="203.0.113.7", mesh=MESH.mesh, views=VIEWS))
            await region.add()
            await region.warm_up(publisher)
            _, last = await publisher.publish_many("s", [b"x"] * 100)
            await region.all_have(last)
            assert not stuck.member.listens
            assert server.mesh.status(stream_id("s"))["visitors"] == 1

    run(work())


def test_who_is_not_where_it_says_becomes_a_visitor(serving: Any) -> None:
    """As behind a router that changes addresses: what is sent to the member's name never arrives."""

    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            hidden = MeshSettings(mesh=MESH.mesh, views=VIEWS, advertised="192.0.2.1", deaf_ms=100)
            behind = await region.add(hidden)
            await region.add()
            await region.warm_up(publisher)
            await until(lambda: not behind.member.listens and behind.member.ready)
            await region.warm_up(publisher)
            _, last = await publisher.publish_many("s", [b"x"] * 100)
            await region.all_have(last)
            assert server.mesh.status(stream_id("s"))["visitors"] == 1

    run(work())


def test_without_datagrams_it_goes_back_to_the_server(serving: Any) -> None:
    """A firewall that lets no datagrams pass any more: silence, which only the server can tell from a quiet
    stream."""

    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            quick = MeshSettings(mesh=MESH.mesh, views=VIEWS, probe_ms=200)
            deaf = await region.add(quick)
            await region.add()
            await region.warm_up(publisher)
            driver = deaf.member._driver
            assert driver is not None and driver._datagrams is not None
            driver._datagrams.close()
            _, last = await publisher.publish_many("s", [b"x"] * 100)
            await region.all_have(last)
            assert deaf.subscription.fallbacks >= 1

    run(work())


def test_a_server_that_is_killed_and_comes_back(server_process: Any) -> None:
    async def work() -> None:
        server_process.start(*(f"--set={flag}" for flag in FLAGS[:3]))
        async with Readers(server_process.url) as region:
            publisher = await region.publisher()
            for number in range(5):
                await region.add(VISITOR if number == 4 else MESH)
            await region.warm_up(publisher)
            for _ in range(2):
                receipts = await publisher.send_many("s", [bytes(100)] * 5000)
                server_process.kill()
                server_process.start(*(f"--set={flag}" for flag in FLAGS[:3]))
                await receipts
                _, last = await publisher.publish_many("s", [b"after"])
                await region.all_have(last)
            await region.warm_up(publisher)

    run(work())


def test_clients_come_and_go_and_the_dead_vanish_from_views(serving: Any) -> None:
    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            readers = [await region.add() for _ in range(8)]
            await region.warm_up(publisher)
            gone = [reader.member.name for reader in readers[:3]]
            for reader in readers[:3]:
                reader.task.cancel()
                await reader.client.close()
                region.readers.remove(reader)
            last = 0
            for _ in range(10):
                _, last = await publisher.publish_many("s", [bytes(100)] * 100)
            await region.all_have(last)
            number = stream_id("s")

            def vanished() -> bool:
                views = [reader.member.view(number) for reader in region.readers]
                views.append(server.mesh.status(number)["members"])
                return not any(name in view for name in gone for view in views)

            await until(vanished)

    run(work())


def test_the_blocking_client(server_process: Any) -> None:
    server_process.start()
    with Client(server_process.url, mesh=MESH) as client, client.subscribe("s", via="mesh") as subscription:
        deadline = time.monotonic() + DEADLINE_S
        by_mesh = 0
        for number in count(1):
            client.publish("s", b"%d" % number)
            (batch,) = subscription.take()
            assert batch.first == number
            assert time.monotonic() < deadline, subscription.way
            by_mesh += subscription.way == "mesh"
            if by_mesh == 20:
                break


def test_idle_connections_between_members_are_closed(serving: Any) -> None:
    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            publisher = await region.publisher()
            settings = MeshSettings(mesh=MESH.mesh, views=VIEWS, idle_ms=200)
            for _ in range(4):
                await region.add(settings)
            await region.warm_up(publisher)
            members = [reader.member for reader in region.readers]
            assert any(member.traffic.connects.value for member in members)
            await until(lambda: not any(member.traffic.live for member in members))
            _, last = await publisher.publish_many("s", [b"x"] * 100)
            await region.all_have(last)
            assert all(reader.way == "mesh" for reader in region.readers)

    run(work())


def test_a_server_without_a_mesh_serves_directly(serving: Any) -> None:
    """An older one closes what comes on a channel that it does not know."""

    async def work() -> None:
        async with serving(*FLAGS) as server, Readers(server.url) as region:
            del server.driver.services[MESH_CHANNEL]
            server.driver._datagrams._receivers.clear()
            publisher = await region.publisher()
            reader = await region.add()
            last = 0
            for _ in range(30):
                last = await publisher.publish("s", b"x")
            await until(lambda: reader.last == last)
            assert reader.way in ("server", "both")

    run(work())

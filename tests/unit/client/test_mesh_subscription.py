"""When a subscription's events come from the mesh, and when from the server; with a server and a mesh made by
hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from qanat.client.client import AsyncClient
from qanat.client.link import Link
from qanat.client.mesh_member import MeshMember, MeshSettings, Taker
from qanat.client.mesh_subscription import MeshSubscription
from qanat.events.batch import Batch, stream_id
from qanat.runtime.url import Url
from qanat.wire.streams import Subscribe, Subscribed, decode_control

STREAM = stream_id("s")
WINDOW = 10_000


class Server:
    """A link's other end: remembers what it was asked for."""

    def __init__(self, name: str = "p1") -> None:
        self.asked: list[msgspec.Struct] = []
        self.dismissed: list[int] = []
        self.url = Url("127.0.0.1", 7411)
        self.connection = SimpleNamespace(peer=SimpleNamespace(name=name, cluster="qanat"), send=self._send)
        self._numbers = 0

    def _send(self, type_: int, channel: int, control: bytes) -> None:
        self.asked.append(decode_control(type_, control))

    def enlist(self, subscription: object) -> int:
        self._numbers += 1
        return self._numbers

    def dismiss(self, number: int) -> None:
        self.dismissed.append(number)

    def take(self) -> list[msgspec.Struct]:
        asked, self.asked = self.asked, []
        return asked

    @property
    def link(self) -> Link:
        return cast(Link, self)


class Mesh:
    """In place of `MeshMember`."""

    def __init__(self, *, ready: bool = True, probe_ms: int = 60_000) -> None:
        self.ready = ready
        self.settings = MeshSettings(probe_ms=probe_ms)
        self.proxies: list[str] = []
        self.joined: list[tuple[int, int]] = []
        self.left = 0
        self.waiting: list[Taker] = []

    def use_proxy(self, name: str, url: Url, cluster: str) -> None:
        self.proxies.append(name)

    def when_ready(self, taker: Taker) -> None:
        self.waiting.append(taker)

    def join(self, stream: int, after: int, taker: Taker) -> bool:
        self.joined.append((stream, after))
        return True

    def leave(self, stream: int, taker: Taker) -> None:
        self.left += 1


def play(
    story: Callable[[MeshSubscription, Server, Mesh], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def main() -> None:
        mesh, server = Mesh(**options), Server()
        client = cast(AsyncClient, SimpleNamespace(_forget=lambda _: None))
        subscription = MeshSubscription(client, "s", 1, "", WINDOW, cast(MeshMember, mesh))
        subscription.on_connect(server.link)
        (asked,) = server.take()
        assert isinstance(asked, Subscribe) and (asked.start, asked.credit) == (1, WINDOW)
        subscription.on_subscribed(Subscribed(1, 1, 1))
        async with asyncio.timeout(20):
            await story(subscription, server, mesh)

    asyncio.run(main())


def batch(first: int, last: int, size: int = 10) -> Batch:
    return Batch.build(STREAM, [bytes(size)] * (last - first + 1), first=first)


async def numbers(subscription: MeshSubscription) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in await subscription.take()]


async def enter(subscription: MeshSubscription, server: Server, upto: int = 5) -> None:
    """Catches up with the server to `upto`, then gets the next from the mesh."""
    subscription.on_item(batch(1, upto).encode())
    assert await numbers(subscription) == [(1, upto)]
    subscription.on_item(batch(upto + 1, upto + 1).encode())
    assert await numbers(subscription) == [(upto + 1, upto + 1)]
    assert subscription.way == "both"
    subscription.on_mesh(batch(upto + 1, upto + 1))
    assert way(subscription) == "mesh"
    server.take()


def way(subscription: MeshSubscription) -> str:
    return subscription.way


def test_it_enters_after_what_has_come_and_then_asks_the_server_for_nothing() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        subscription.on_item(batch(1, 3).encode())
        assert await numbers(subscription) == [(1, 3)]
        assert mesh.joined == [(STREAM, 3)]
        subscription.on_item(batch(4, 5).encode())
        assert await numbers(subscription) == [(4, 5)]
        subscription.on_mesh(batch(4, 4))
        assert way(subscription) == "both", "the server is ahead of the mesh"
        subscription.on_mesh(batch(5, 8))
        assert way(subscription) == "mesh"
        asked = server.take()
        assert [type(one).__name__ for one in asked] == ["Unsubscribe", "Subscribe"]
        assert isinstance(asked[1], Subscribe) and (asked[1].start, asked[1].credit) == ("latest", 0)
        assert await numbers(subscription) == [(6, 8)]
        subscription.on_mesh(batch(9, 9))
        assert await numbers(subscription) == [(9, 9)]
        assert server.take() == [], "no credit is given for what the mesh brings"

    play(story)


def test_not_before_it_has_caught_up() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        subscription.on_subscribed(Subscribed(1, 1, 100))
        subscription.on_item(batch(1, 50).encode())
        await subscription.take()
        subscription.on_item(batch(51, 99).encode())
        await subscription.take()
        assert mesh.joined == []
        subscription.on_item(batch(100, 100, WINDOW).encode())
        await subscription.take()
        assert mesh.joined == [], "a window full of events waited"
        subscription.on_item(batch(101, 101).encode())
        await subscription.take()
        assert mesh.joined == [(STREAM, 101)]

    play(story)


def test_it_follows_another_subscription_that_is_ahead() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        subscription.on_item(batch(1, 3).encode())
        assert await numbers(subscription) == [(1, 3)]
        subscription.on_mesh(batch(6, 7))
        assert way(subscription) == "both"
        subscription.on_item(batch(4, 8).encode())
        assert await numbers(subscription) == [(4, 8)]
        subscription.on_mesh(batch(8, 9))
        assert way(subscription) == "mesh"
        assert await numbers(subscription) == [(9, 9)]

    play(story)


def test_it_waits_for_the_member() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        taking = asyncio.ensure_future(subscription.take())
        await asyncio.sleep(0)
        assert mesh.waiting == [subscription] and mesh.joined == []
        mesh.ready = True
        subscription.on_member_ready()
        assert way(subscription) == "both"
        taking.cancel()

    play(story, ready=False)


def test_more_than_the_window_waits_so_the_server_goes_on_after_it() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        await enter(subscription, server)
        subscription.on_mesh(batch(7, 10, WINDOW // 4))
        assert way(subscription) == "server"
        await asyncio.sleep(0)
        assert mesh.left == 1
        again = server.take()[-1]
        assert isinstance(again, Subscribe) and again.start == 11
        subscription.on_mesh(batch(11, 12))
        subscription.on_item(batch(11, 13).encode())
        assert await numbers(subscription) == [(7, 10), (11, 13)]
        assert len(mesh.joined) == 1, "for a while it stays with the server"

    play(story)


def test_a_silent_mesh_is_left_when_the_server_has_more() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        await enter(subscription, server)
        while way(subscription) == "mesh":
            for asked in server.take():
                if isinstance(asked, Subscribe):
                    subscription.on_subscribed(Subscribed(asked.subscription, 9, 9))
            await asyncio.sleep(0.001)
        again = server.take()[-1]
        assert isinstance(again, Subscribe) and (again.start, again.credit) == (7, WINDOW)

    play(story, probe_ms=5)


def test_a_quiet_stream_is_no_reason() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        await enter(subscription, server)
        probes = 0
        while probes < 4:
            for asked in server.take():
                if isinstance(asked, Subscribe):
                    probes += 1
                    subscription.on_subscribed(Subscribed(asked.subscription, 7, 7))
            await asyncio.sleep(0.001)
        assert way(subscription) == "mesh"

    play(story, probe_ms=5)


def test_the_tail_moves() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        await enter(subscription, server)
        subscription.on_disconnect()
        other = Server("p2")
        subscription.on_connect(other.link)
        (watch,) = other.take()
        assert isinstance(watch, Subscribe) and (watch.start, watch.credit) == ("latest", 0)
        assert mesh.proxies == ["p1", "p2"]
        subscription.on_mesh(batch(7, 7))
        assert await numbers(subscription) == [(7, 7)]

    play(story)


def test_a_gap_is_mended_by_the_server() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        await enter(subscription, server)
        subscription.on_mesh(batch(9, 9))
        taking = asyncio.ensure_future(numbers(subscription))
        while way(subscription) == "mesh":
            await asyncio.sleep(0)
        again = server.take()[-1]
        assert isinstance(again, Subscribe) and again.start == 7
        subscription.on_item(batch(7, 9).encode())
        assert await taking == [(7, 9)]

    play(story)


def test_the_mesh_is_left_with_the_subscription() -> None:
    async def story(subscription: MeshSubscription, server: Server, mesh: Mesh) -> None:
        await enter(subscription, server)
        await subscription.close()
        await asyncio.sleep(0)
        assert mesh.left == 1
        assert type(server.take()[-1]).__name__ == "Unsubscribe"

    play(story)

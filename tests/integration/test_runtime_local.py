"""The short way between processes of one machine: a Unix socket beside the TCP port."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.runtime.link_proxy import LinkProxy
from qanat.runtime.listener import Listener, listen
from qanat.runtime.loop import run as run_loop
from qanat.runtime.peers import Peers
from qanat.runtime.service import Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.frame import Frame

CHANNEL = 20


class Echo(Service):
    """Sends back what comes, and remembers who came and who went."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.went: list[str] = []

    def on_connect(self, connection: Connection) -> None:
        self.came.append(connection.remote)

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        connection.send(frame.type, CHANNEL, frame.control, [frame.attachment])

    def on_close(self, connection: Connection, reason: object) -> None:
        self.went.append(str(reason))


class Heard(Service):
    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        self.heard.put_nowait(bytes(frame.attachment))


def run(work: Coroutine[Any, Any, None], uvloop: bool = True) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work

    run_loop(bounded, uvloop=uvloop)


async def serving(service: Service, settings: TransportSettings | None = None) -> Listener:
    return await listen("127.0.0.1", 0, Identity("server"), {CHANNEL: service}, settings=settings)


async def said_back(connection: Connection, heard: Heard) -> bytes:
    connection.send(200, CHANNEL, b"", [bytes(300_000)])
    return await heard.heard.get()


async def way_of(url: Url, role: str = "client", settings: TransportSettings | None = None) -> str:
    """Over what a dial ends up, with a frame there and back to see that it carries."""
    heard = Heard()
    connection = await dial(url, Identity("someone", role=role), {CHANNEL: heard}, settings=settings)
    assert await said_back(connection, heard) == bytes(300_000)
    remote = connection.remote
    connection.close()
    await connection.wait_closed()
    return "unix" if remote == "unix" else "tcp"


@pytest.mark.parametrize("uvloop", [True, False])
def test_a_client_of_the_same_machine_goes_on_over_a_unix_socket(uvloop: bool) -> None:
    async def work() -> None:
        echo = Echo()
        listener = await serving(echo)
        assert await way_of(listener.url) == "unix"
        assert await way_of(Url("localhost", listener.port)) == "unix"
        # The first connection, on which the short way was offered, never reached a service.
        assert echo.came == ["unix", "unix"]
        await listener.close()

    run(work(), uvloop)


def test_nodes_and_whoever_does_not_want_it_stay_with_tcp() -> None:
    async def work() -> None:
        listener = await serving(Echo())
        plain = TransportSettings(short_ways=False)
        assert await way_of(listener.url, role="node") == "tcp"
        assert await way_of(listener.url, settings=plain) == "tcp"
        without = await serving(Echo(), plain)
        assert await way_of(without.url) == "tcp"
        await listener.close()
        await without.close()

    run(work())


def test_a_node_that_always_dials_takes_the_short_way() -> None:
    """As an application's instance does. The one connection of the pair is the second, and the next one
    displaces it."""

    async def work() -> None:
        echo, peers, identity = Echo(), Peers(Identity("server")), Identity("instance", role="node")
        listener = await listen("127.0.0.1", 0, Identity("server"), {CHANNEL: echo}, peers=peers)
        heard, mine = Heard(), Peers(identity)
        for _ in range(2):
            connection = await dial(listener.url, identity, {CHANNEL: heard}, peers=mine, short_way=True)
            assert await said_back(connection, heard) == bytes(300_000)
            assert mine.get("server") is connection and connection.is_local
            there = peers.get("instance")
            assert there is not None and there.is_local
        assert echo.came == ["unix", "unix"]
        assert len(echo.went) == 1 and "duplicate" in echo.went[0]
        for connection in mine:
            connection.close()
            await connection.wait_closed()
        await listener.close()

    run(work())


def test_what_lies_between_is_not_passed_by() -> None:
    """A client that dials a link, a tunnel or a balancer goes through it, though the server is on the same
    machine."""

    async def work() -> None:
        listener = await serving(Echo())
        link = LinkProxy("127.0.0.1", listener.port)
        await link.start()
        assert await way_of(Url("127.0.0.1", link.port)) == "tcp"
        assert link.forwarded_bytes > 600_000
        await link.close()
        await listener.close()

    run(work())


def test_without_the_unix_socket_tcp_carries_on() -> None:
    """As when the loopback address leads into another network namespace."""

    async def work() -> None:
        listener = await serving(Echo())
        _tcp, local = listener._acceptors
        local.close()
        assert await way_of(listener.url) == "tcp"
        await listener.close()

    run(work())


@pytest.mark.parametrize("uvloop", [True, False])
def test_a_dial_that_is_cancelled_leaves_no_socket(uvloop: bool) -> None:
    def open_now() -> int:
        found = 0
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # that of this look itself
                found += os.readlink(each).startswith("socket:")
        return found

    async def work() -> None:
        listener = await serving(Echo())
        services: dict[int, Service] = {CHANNEL: Heard()}
        await asyncio.sleep(0.05)
        before = open_now()
        for steps in range(15):
            dialled = asyncio.create_task(dial(listener.url, Identity("client"), services))
            for _ in range(steps):
                await asyncio.sleep(0)
            dialled.cancel()
            (ended,) = await asyncio.gather(dialled, return_exceptions=True)
            if isinstance(ended, Connection):
                ended.close()
        gc.collect()
        await until(lambda: open_now() <= before)
        await listener.close()

    run(work(), uvloop)

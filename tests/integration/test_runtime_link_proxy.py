"""The link that can be cut, with real sockets through it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.waiting import run, until

from qanat.client import AsyncClient
from qanat.runtime.link_proxy import HELD_MAX, Direction, LinkProxy


class Set:
    """An echo server, a link to it, and connections through the link."""

    async def __aenter__(self) -> Set:
        self.writers: list[asyncio.StreamWriter] = []
        self.server = await asyncio.start_server(self.echo, "127.0.0.1", 0)
        self.link = LinkProxy("127.0.0.1", self.server.sockets[0].getsockname()[1])
        await self.link.start()
        return self

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.link.port)
        self.writers.append(writer)
        return reader, writer

    async def __aexit__(self, *exc: object) -> None:
        await self.link.close()
        self.server.close()
        for writer in self.writers:
            writer.close()
        for writer in self.writers:
            with suppress(ConnectionError):
                await writer.wait_closed()


async def nothing_comes(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.readexactly(1), 0.1)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("uvloop", [True, False])
def test_a_cut_stalls_and_healing_goes_on(uvloop: bool) -> None:
    async def work() -> None:
        async with Set() as it:
            reader, writer = await it.connect()
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            it.link.cut()
            writer.write(b"two")
            assert await nothing_comes(reader)
            late_reader, late_writer = await it.connect()
            late_writer.write(b"late")
            assert await nothing_comes(late_reader)
            it.link.heal()
            assert await reader.readexactly(3) == b"two"
            assert await late_reader.readexactly(4) == b"late"

    run(work(), uvloop=uvloop)


def test_those_who_come_to_a_cut_link_are_held_up_to_a_bound_and_the_oldest_is_let_go() -> None:
    async def work() -> None:
        async with Set() as it:
            it.link.cut()
            held = [await it.connect() for _ in range(HELD_MAX + 2)]
            for reader, _ in held[:2]:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            it.link.heal()
            for reader, writer in held[2:]:
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
            assert it.link.connections == HELD_MAX

    run(work())


def test_a_cut_may_be_one_way() -> None:
    async def work() -> None:
        async with Set() as it:
            reader, writer = await it.connect()
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            it.link.cut(frozenset({Direction.BACK}))
            before = it.link.forwarded_bytes
            writer.write(b"there")
            await until(lambda: it.link.forwarded_bytes >= before + 5)
            assert await nothing_comes(reader)
            it.link.heal()
            assert await reader.readexactly(5) == b"there"

    run(work())


def test_breaking_resets_and_serves_later_ones() -> None:
    async def work() -> None:
        async with Set() as it:
            reader, writer = await it.connect()
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            it.link.break_all()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            reader, writer = await it.connect()
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"

    run(work())


def test_a_dead_target_ends_the_connection() -> None:
    async def work() -> None:
        async with Set() as it:
            it.server.close()
            reader, _ = await it.connect()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)

    run(work())


def test_memory_is_bounded_while_nobody_reads() -> None:
    async def work() -> None:
        async with Set() as it:
            _, writer = await it.connect()
            for _ in range(200):
                writer.write(bytes(100_000))
            await asyncio.sleep(0)
            settled = -1
            while settled != it.link.forwarded_bytes:
                settled = it.link.forwarded_bytes
                await asyncio.sleep(0.05)  # as long as something moves, it moves sooner than that
            assert it.link.queued_bytes < 1_000_000

    run(work())


def test_a_stream_survives_a_cut(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server:
            link = LinkProxy("127.0.0.1", server.listener.port)
            await link.start()
            async with AsyncClient(f"127.0.0.1:{link.port}") as client:
                subscription = await client.subscribe("s").confirmed()
                await client.publish("s", b"before")
                link.cut()
                receipt = client.publish("s", b"during")
                await asyncio.sleep(0.05)  # how long the link is cut
                link.heal()
                assert await receipt == 2
                link.break_all()
                assert await client.publish("s", b"after") == 3
                seen: list[bytes] = []
                while len(seen) < 3:
                    for batch in await subscription.take():
                        seen += batch.payloads().to_pylist()
                assert seen == [b"before", b"during", b"after"]
            await link.close()

    run(work())

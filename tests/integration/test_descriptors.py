"""At its limit of descriptors a server refuses connections, not events; and whatever found none goes on by
itself when there are some again."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.integration.hostile import Peer
from tests.servers.stream_server import ServerProcess
from tests.waiting import run, until

from qanat.client import AsyncClient, PublishRefused

LIMIT = 128
SMALL = ("--set", "log.segment_bytes=65536")


def limited(server: ServerProcess, soft: int) -> None:
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))


def in_use(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data").start(*SMALL)
    try:
        yield process
    finally:
        process.end()


@contextmanager
def silent(server: ServerProcess, count: int) -> Iterator[None]:
    """So many dial, and say nothing."""
    with ExitStack() as sockets:
        for _ in range(count):
            sockets.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        yield


def test_connections_are_refused_before_files_are(server: ServerProcess) -> None:
    async def work() -> None:
        limited(server, LIMIT)
        peers: list[Peer] = []
        async with AsyncClient(server.url) as client:
            numbers = [await client.publish("s", bytes(20_000))]
            with silent(server, 2 * LIMIT):
                while "new connections are refused" not in server.health():
                    assert len(peers) < LIMIT
                    peers.append(await Peer.connect(server.url))
                for _ in range(40):  # each third begins a new segment
                    numbers.append(await client.publish("s", bytes(20_000)))
                assert in_use(server) <= LIMIT
                assert "new connections are refused" in server.health()
                assert server.status()["descriptors"]["limit"] == LIMIT
            assert numbers == list(range(1, 42))
            for peer in peers:
                await peer.close()
            await until(lambda: server.health() == "ok")
            async with AsyncClient(server.url) as newcomer:
                assert await newcomer.publish("s", b"") == 42

    run(work())


def test_who_says_nothing_keeps_nobody_out(server: ServerProcess) -> None:
    """As many as there may be at all are silent; the longest silent makes room for who speaks."""

    async def work() -> None:
        limited(server, LIMIT)
        with silent(server, LIMIT):
            async with AsyncClient(server.url) as client:
                assert await client.publish("s", b"") == 1

    run(work())


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_a_stream_without_descriptors_goes_on_when_there_are_some(server: ServerProcess, spare: int) -> None:
    """With one, it can open a segment, and not the folder that the segment's name is synced with."""

    async def work() -> None:
        async with AsyncClient(server.url) as client:
            await client.publish("s", bytes(50_000))
            stored, refused, publish = 1, 0, asyncio.ensure_future(client.publish("s", b""))
            stored = await publish
            limited(server, in_use(server) + spare)
            for _ in range(4):
                publish = asyncio.ensure_future(client.publish("s", bytes(50_000)))
                done, _waiting = await asyncio.wait([publish], timeout=1)
                if not done:  # it is stored, and waits for its sync
                    break
                try:
                    stored = await publish
                except PublishRefused as error:
                    assert (error.code, error.definite) == ("out_of_descriptors", True)
                    refused += 1
            limited(server, 1024)
            if not publish.done():
                stored = await publish
            assert refused or spare
            assert await client.publish("s", b"again") == stored + 1
            assert server.health() == "ok"

    run(work())

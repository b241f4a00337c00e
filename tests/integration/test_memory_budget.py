"""The largest attacks on a server's memory, under a small budget: it stays below it, and others are served
all the while."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.hostile import Peer
from tests.servers.stream_server import ServerProcess
from tests.waiting import until

from qanat.client import AsyncClient
from qanat.events.batch import Batch, stream_id
from qanat.events.errors import RemoteError
from qanat.wire.frame import encode
from qanat.wire.streams import (
    OPEN,
    PUBLISH,
    SUBSCRIBE,
    Open,
    Opened,
    Publish,
    Refused,
    Subscribe,
    encode_control,
)

MIB = 1 << 20
Attack = Callable[[ServerProcess, list[Peer]], Awaitable[None]]


async def connect(server: ServerProcess, peers: list[Peer]) -> Peer:
    peer = await Peer.connect(server.url, f"hostile-{len(peers)}")
    peers.append(peer)
    return peer


async def frames_without_end(server: ServerProcess, peers: list[Peer]) -> None:
    """Each sends most of the largest frame, and then nothing."""
    head = b"".join(encode(PUBLISH, 1, encode_control(Publish(1)), [bytes(15 * MIB)]))
    for _ in range(60):
        peer = await connect(server, peers)
        peer.connection.send_parts([head[: 14 * MIB]])
        await asyncio.sleep(0.01)


async def filters_without_number(server: ServerProcess, peers: list[Peer]) -> None:
    for number in range(2):
        peer = await connect(server, peers)
        for each in range(100):
            where = " or ".join(f"a{i} = '{number}.{each}.{i}'" for i in range(1_000))
            if isinstance(await peer.ask(SUBSCRIBE, Subscribe(each, "shared", where=where)), Refused):
                break


async def streams_in_memory(server: ServerProcess, peers: list[Peer]) -> None:
    peer = await connect(server, peers)
    payload = os.urandom(4 * MIB)
    for number in range(80):
        name = f"big-{number}"
        if isinstance(await peer.ask(OPEN, Open(number, name, durability="memory")), Opened):
            for _ in range(2):
                data = Batch.build(stream_id(name), [payload], time_us=time.time_ns() // 1000).encode()
                await peer.ask(PUBLISH, Publish(number), [data])


ATTACKS: dict[Attack, int] = {
    frames_without_end: 256 * MIB,
    filters_without_number: 160 * MIB,
    streams_in_memory: 256 * MIB,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_server_stays_within_its_budget_and_serves_others_meanwhile(tmp_path: Path, attack: Attack) -> None:
    budget = ATTACKS[attack]

    async def main() -> None:
        peers: list[Peer] = []
        taken: list[bytes] = []
        over = asyncio.Event()

        async def read() -> None:
            async for event in client.subscribe("calm", start="earliest"):
                taken.append(event.payload)

        async def publish() -> int:
            number = 0
            while not over.is_set():
                await client.publish("calm", b"%d" % number)
                number += 1
                await asyncio.sleep(0.01)
            return number

        async with AsyncClient(server.url, name="neighbour") as client:
            await client.publish("calm", b"first")
            reading, publishing = asyncio.create_task(read()), asyncio.create_task(publish())
            with suppress(RemoteError):  # it was refused, or cut off
                await attack(server, peers)
            before = len(taken)
            await until(lambda: len(taken) > before + 20)
            memory = server.status()["memory"]
            assert memory["given_up_bytes"] or memory["refused"]  # it was an attack
            over.set()
            published = await publishing
            await until(lambda: len(taken) == 1 + published)
            reading.cancel()
        for peer in peers:
            peer.connection.abort("closed")
        await until(lambda: server.health() == "ok", every_s=0.05, say=lambda: server.status()["memory"])

    server = ServerProcess(tmp_path).start("--set", f"memory.budget_bytes={budget}")
    try:
        asyncio.run(main())
        assert server.memory() < budget
    finally:
        server.end()


def test_who_comes_when_memory_is_short_is_told_so(tmp_path: Path) -> None:
    """A budget below what the process needs for itself."""
    server = ServerProcess(tmp_path).start("--set", f"memory.budget_bytes={16 * MIB}")
    try:
        assert server.health().startswith("memory is short (")
        with pytest.raises(RemoteError, match=r"this server is short of memory .* so no connection is taken"):
            asyncio.run(Peer.connect(server.url))
    finally:
        server.end()

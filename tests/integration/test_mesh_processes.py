"""Twenty clients in four processes: one is stopped for a while, one killed, the proxy moves; whoever lives
gets everything in order."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings
from qanat.events.batch import stream_id
from qanat.operate.region_processes import region_processes

pytestmark = pytest.mark.paper("S7")

SCRIPT = Path(__file__).with_name("mesh_reader.py")
DEADLINE_S = 300
QUICK_VIEWS = {"gossip_ms": 50.0, "proxy_rounds": 5, "forget_rounds": 20}
FLAGS = tuple(f"views.{key}={value}" for key, value in QUICK_VIEWS.items())
QUICK: dict[str, Any] = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0},
}


class Group:
    """One process of clients, and what it last said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: dict[str, Any] = {"last": [], "ways": [], "names": []}
        self._hearing = asyncio.create_task(self._hear())

    @staticmethod
    async def start(url: str, stream: str, clients: int) -> Group:
        return Group(
            await asyncio.create_subprocess_exec(
                sys.executable, str(SCRIPT), url, stream, str(clients), stdout=asyncio.subprocess.PIPE
            )
        )

    async def _hear(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said = json.loads(line)

    def check(self) -> None:
        assert "gap" not in self.said, self.said
        assert self.process.returncode is None, "the clients' process ended"

    def all_by_mesh(self) -> bool:
        return bool(self.said["ways"]) and set(self.said["ways"]) == {"mesh"}

    def all_have(self, last: int) -> bool:
        return bool(self.said["last"]) and set(self.said["last"]) == {last}

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)
        await self.process.wait()
        await self._hearing


async def all_well_until(groups: list[Group], condition: Callable[[], object]) -> None:
    def holds() -> object:
        for group in groups:
            group.check()
        return condition()

    await until(holds, DEADLINE_S, every_s=0.02, say=lambda: [group.said for group in groups])


async def warm_up(groups: list[Group], publisher: AsyncClient, stream: str) -> None:
    """Little by little, until everyone gets its events from the mesh."""
    deadline = time.monotonic() + DEADLINE_S
    while not all(group.all_by_mesh() for group in groups):
        for group in groups:
            group.check()
        assert time.monotonic() < deadline, [group.said for group in groups]
        await publisher.publish(stream, b"warm")
        await asyncio.sleep(0.05)


def test_twenty_clients_of_one_server(serving: Any) -> None:
    async def work() -> None:
        async with serving(*FLAGS, "log.mode=interval") as server, AsyncClient(server.url) as publisher:
            groups = [await Group.start(server.url, "s", 5) for _ in range(4)]
            try:
                await warm_up(groups, publisher, "s")
                before, data, last = server.traffic.sent_bytes, 0, 0
                for _ in range(20):
                    _, last = await publisher.publish_many("s", [bytes(100)] * 1000)
                    data += 100_000
                    await asyncio.sleep(0.05)
                await all_well_until(groups, lambda: all(group.all_have(last) for group in groups))
                copies = (server.traffic.sent_bytes - before) / data
                assert copies < 14, "16 members and 4 visitors were fed by the server itself"
                status = server.mesh.status(stream_id("s"))
                assert status["visitors"] == 4

                paused, *others = groups
                paused.process.send_signal(signal.SIGSTOP)
                for _ in range(10):
                    _, last = await publisher.publish_many("s", [bytes(100)] * 1000)
                    await asyncio.sleep(0.02)
                await all_well_until(others, lambda: all(group.all_have(last) for group in others))
                assert not paused.all_have(last)
                paused.process.send_signal(signal.SIGCONT)
                await all_well_until(groups, lambda: paused.all_have(last))

                dead = groups.pop()
                await dead.end()
                for _ in range(10):
                    _, last = await publisher.publish_many("s", [bytes(100)] * 1000)
                    await asyncio.sleep(0.02)
                await all_well_until(groups, lambda: all(group.all_have(last) for group in groups))
                gone = set(dead.said["names"])
                await all_well_until(
                    groups, lambda: gone.isdisjoint(server.mesh.status(stream_id("s"))["members"])
                )
                assert server.mesh.status(stream_id("s"))["visitors"] == 3
            finally:
                for group in groups:
                    await group.end()

    run(work())


@pytest.mark.paper("S9")
def test_clients_follow_the_tail_of_their_region() -> None:
    """Streams of the region and of another; the tail is killed, comes back, and takes its place again."""
    streams = {"prices": {"owner": "eu", "mode": "interval"}, "news": {"owner": "us", "mode": "interval"}}

    async def work() -> None:
        with region_processes({"eu": 2, "us": 1}, streams, views=QUICK_VIEWS, **QUICK) as regions:
            url = regions.url("eu")
            settings = ClientSettings(patience_ms=60_000)
            async with (
                AsyncClient(url, settings=settings) as eu,
                AsyncClient(regions.url("us"), settings=settings) as us,
            ):
                groups = [await Group.start(url, stream, 4) for stream in streams]
                publishers = {"prices": eu, "news": us}
                last = dict.fromkeys(streams, 0)

                async def publish(batches: int) -> None:
                    for _ in range(batches):
                        for stream, client in publishers.items():
                            _, last[stream] = await client.publish_many(stream, [bytes(100)] * 200)
                        await asyncio.sleep(0.02)

                def complete() -> bool:
                    pairs = zip(groups, last.values(), strict=True)
                    return all(group.all_have(number) for group, number in pairs)

                try:
                    for group, (stream, client) in zip(groups, publishers.items(), strict=True):
                        await warm_up([group], client, stream)
                    await publish(5)
                    await all_well_until(groups, complete)

                    tail = regions[regions.chain("eu")["tail"]]
                    publishing = asyncio.create_task(publish(40))
                    tail.kill()
                    await publishing
                    await all_well_until(groups, complete)

                    publishing = asyncio.create_task(publish(40))
                    await asyncio.to_thread(tail.start)
                    await asyncio.to_thread(regions.wait_chain, "eu", 2)
                    await publishing
                    await all_well_until(groups, complete)
                    assert regions.chain("eu")["tail"] == tail.name
                    for group, (stream, client) in zip(groups, publishers.items(), strict=True):
                        await warm_up([group], client, stream)
                    # On a busy machine a member may be forgotten for a moment, as if it had gone.
                    await all_well_until(
                        groups,
                        lambda: all(stream["mesh"]["members"] for stream in tail.status()["streams"]),
                    )
                finally:
                    for group in groups:
                        await group.end()

    run(work())

"""One point of Fig. 4: real proxies, their drivers and one client each, as processes of this machine."""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection as Pipe

import msgspec
import numpy as np
import pyarrow as pa

from qanat.client import AsyncClient
from qanat.operate.processes import Worker
from qanat.operate.region_processes import region_processes
from qanat.runtime.loop import run

EVENT_BYTES = 10
"""Large enough to contain the hash of a key to be invalidated, say" (section 5.1)."""
KEPT = 100_000_000
"""Event i says that all before i - 100,000,000 can be collected."""
CALL_EVENTS = 1_000
"""Events of one call of a driver. The paper's drivers call publish() for one event and batch below that; in
Python the calls alone would take all of a core at a million events a second."""


class Timing(msgspec.Struct, frozen=True):
    """How long the drivers publish."""

    drive_s: float


class Point(msgspec.Struct, frozen=True):
    """What one run gave."""

    proxies: int
    drivers: int
    events_per_s: float
    """Of all streams together, from the first publish until every client has every event, each counted
    once."""
    published_per_s: float
    """While the drivers published."""


def drive(pipe: Pipe, url: str, stream: str) -> None:
    """Publishes in a closed loop until the time it is told; says how many events were stored, and how many a
    second."""

    async def main() -> None:
        data = np.random.default_rng(1).integers(0, 256, CALL_EVENTS * EVENT_BYTES, np.uint8)
        column = pa.Array.from_buffers(pa.binary(EVENT_BYTES), CALL_EVENTS, [None, pa.py_buffer(data)])
        async with AsyncClient(url) as client:
            await client.publish_many(stream, column[:1])
            pipe.send("ready")
            until: float = await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            began, calls = time.monotonic(), 0
            while time.monotonic() < until:
                await client.send_many(stream, column)
                calls += 1
            await client.flush()
            events = calls * CALL_EVENTS
            pipe.send((events + 1, events / (time.monotonic() - began)))

    run(main)


def receive(pipe: Pipe, url: str, streams: list[str]) -> None:
    """Counts what it gets of all streams; told how many events there are, says when it had them all."""

    async def main() -> None:
        seen = 0
        news = asyncio.Event()

        async def follow(client: AsyncClient, stream: str) -> None:
            nonlocal seen
            async for batch in client.subscribe(stream, start="earliest").batches():
                seen += batch.count
                news.set()

        async def reach(expected: int) -> None:
            while seen < expected:
                news.clear()
                await news.wait()

        async with AsyncClient(url) as client, asyncio.TaskGroup() as tasks:
            followers = [tasks.create_task(follow(client, stream)) for stream in streams]
            pipe.send("ready")
            await reach(await asyncio.get_running_loop().run_in_executor(None, pipe.recv))
            pipe.send(time.monotonic())
            for follower in followers:
                follower.cancel()

    run(main)


def measure(proxies: int, drivers: int, timing: Timing) -> Point:
    """`drivers` at each of `proxies` that are regions of their own; logs on disk, synced every 50 ms."""
    regions = [f"r{number}" for number in range(1, proxies + 1)]
    streams = {
        f"{region}-events": {"owner": region, "mode": "interval", "policy": {"keep_last": KEPT}}
        for region in regions
    }
    with region_processes(dict.fromkeys(regions, 1), streams) as processes:
        urls = {region: processes.url(region) for region in regions}
        sinks = [Worker(receive, urls[region], list(streams)) for region in regions]
        sources = [
            Worker(drive, urls[region], f"{region}-events") for region in regions for _ in range(drivers)
        ]
        try:
            for worker in (*sinks, *sources):
                worker.wait()
            begin = time.monotonic()
            for source in sources:
                source.tell(begin + timing.drive_s)
            stored = [source.wait() for source in sources]
            total = sum(events for events, _ in stored)
            for sink in sinks:
                sink.tell(total)
            ends = [float(sink.wait()) for sink in sinks]
        finally:
            for worker in (*sinks, *sources):
                worker.end()
    return Point(proxies, drivers, total / (max(ends) - begin), sum(rate for _, rate in stored))

"""The producers and consumers of the broadcast benchmark, each a process that uses the client library."""

import asyncio
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.client import AsyncClient
from qanat.runtime.loop import run

CALL_EVENTS = 2_000_000


def consume(pipe: Pipe, url: str, stream: str, start: str, paused: bool = False) -> None:
    """Counts events; told how many more to expect, says when it had them all, again and again; 0 ends it.

    `paused`: connects, and subscribes only when it is told how many to expect, saying when it did.
    """

    async def main() -> None:
        async with AsyncClient(url) as client:
            pipe.send("ready")
            loop = asyncio.get_running_loop()
            seen = expected = 0
            if paused:
                expected = await loop.run_in_executor(None, pipe.recv)
                pipe.send(time.monotonic())
            subscription = await client.subscribe(stream, start=start).confirmed()
            if not paused:
                pipe.send("subscribed")
                expected = await loop.run_in_executor(None, pipe.recv)
            async for batch in subscription.batches():
                seen += batch.count
                if seen < expected:
                    continue
                pipe.send(time.monotonic())
                more = await loop.run_in_executor(None, pipe.recv)
                if not more:
                    break
                expected += more

    run(main)


def payloads(count: int, width: int, kind: str) -> pa.Array | list[bytes]:
    """`count` events of `width` bytes: an Arrow column, or a list of bytes objects."""
    data = np.random.default_rng(1).integers(0, 256, count * width, np.uint8)
    if kind == "list":
        raw = data.tobytes()
        return [raw[i : i + width] for i in range(0, len(raw), width)]
    return pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(data)])


async def _publish_each(client: AsyncClient, stream: str, parts: Iterable[Any]) -> None:
    for part in parts:
        await client.publish_many(stream, part)


def produce(pipe: Pipe, url: str, stream: str, width: int, most: int, kind: str) -> None:
    """Told how many, publishes so many events of `width` bytes, and says when it began and when all were
    stored; 0 ends it. It makes no more than `most` different ones."""

    async def main() -> None:
        column = payloads(min(most, CALL_EVENTS), width, kind)
        loop = asyncio.get_running_loop()
        async with AsyncClient(url) as client:
            await client.publish_many(stream, column[:1])
            pipe.send("ready")
            while count := await loop.run_in_executor(None, pipe.recv):
                pipe.send(time.monotonic())
                parts = [column] * (count // len(column))
                if count % len(column):
                    parts.append(column[: count % len(column)])
                async with (
                    asyncio.TaskGroup() as calls
                ):  # two calls under way: while one waits for its receipt the other sends
                    calls.create_task(_publish_each(client, stream, parts[::2]))
                    calls.create_task(_publish_each(client, stream, parts[1::2]))
                pipe.send(time.monotonic())

    run(main)


def produce_one_by_one(pipe: Pipe, url: str, stream: str, count: int) -> None:
    """One `publish` call per event, without waiting for each; says how long until all were acknowledged."""

    async def main() -> None:
        async with AsyncClient(url) as client:
            await client.publish(stream, bytes(100))
            pipe.send("ready")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            began = time.monotonic()
            payload = bytes(100)
            publish = client.publish
            receipt = publish(stream, payload)
            for i in range(count - 1):
                receipt = publish(stream, payload)
                if not i % 256:
                    await client.room(stream)
                    await asyncio.sleep(0)
            await receipt
            pipe.send(time.monotonic() - began)

    run(main)

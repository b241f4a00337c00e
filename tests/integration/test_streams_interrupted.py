"""Streams through what interrupts them: subscribers that stall, connections that break, servers that stop or
are not there."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.streaming import take
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings, Subscription, Unavailable


def test_a_stalled_subscriber_slows_nobody_and_loses_nothing(serving: Any) -> None:
    """One subscriber takes nothing while 64 MB pass to the others; then it catches up from the log."""
    settings = ClientSettings(subscription_bytes=256 * 1024)

    async def work() -> None:
        async with serving("log.mode=interval") as server:
            clients = [AsyncClient(server.url, settings=settings) for _ in range(4)]
            stalled, *fast = [await (await c.ready()).subscribe("s").confirmed() for c in clients]
            # Another subscription on the stalled one's own connection must not be held up either.
            fast.append(await clients[0].subscribe("s").confirmed())
            column = pa.Array.from_buffers(
                pa.binary(1000), 64_000, [None, pa.py_buffer(np.zeros(64_000_000, np.uint8))]
            )

            async def count(subscription: Subscription) -> int:
                seen = 0
                while seen < 64_000:
                    seen += sum(batch.count for batch in await subscription.take())
                return seen

            async with AsyncClient(server.url) as producer:
                counting = [asyncio.create_task(count(subscription)) for subscription in fast]
                await producer.publish_many("s", column)
                assert await asyncio.gather(*counting) == [64_000] * 4
            hosted = server.registry.get("s")
            assert hosted.largest_lag() > 0
            assert max(connection.queued_bytes for connection in server.listener.connections) < 4 << 20
            assert await count(stalled) == 64_000
            for client in clients:
                await client.close()

    run(work())


@pytest.mark.paper("S1")
def test_broken_connections_lose_and_duplicate_nothing(serving: Any) -> None:
    """Both ends' connections are cut again and again while events flow."""

    async def work() -> None:
        async with (
            serving("log.mode=always") as server,
            AsyncClient(server.url) as producer,
            AsyncClient(server.url) as reader,
        ):
            subscription = await reader.subscribe("s").confirmed()
            total = 20_000

            async def publish() -> None:
                for i in range(0, total, 100):
                    await producer.publish_many("s", [b"%d" % j for j in range(i, i + 100)])

            async def cut() -> None:
                while True:
                    await asyncio.sleep(0.02)  # so that something gets through in between
                    for connection in list(server.listener.connections):
                        connection.abort("reset", "cut by the test")

            cutting = asyncio.create_task(cut())
            publishing = asyncio.create_task(publish())
            events = await take(subscription, total)
            cutting.cancel()
            await publishing
            assert [int(event.payload) for event in events] == list(range(total))
            assert [event.seq for event in events] == list(range(1, total + 1))

    run(work())


def test_without_patience_no_server_is_said_at_once() -> None:
    async def work() -> None:
        with pytest.raises(Unavailable, match="is the server running") as caught:
            await AsyncClient("qanat://127.0.0.1:1", patience=0).ready()
        assert caught.value.definite

    run(work())


def test_patience_ends(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server:
            client = AsyncClient(server.url, settings=ClientSettings(patience_ms=200))
            await client.ready()
        receipt = client.publish("s", b"nobody hears this")
        with pytest.raises(Unavailable) as caught:
            await receipt
        assert not caught.value.definite
        await client.close()

    run(work())


def test_a_server_that_is_stopping_sends_clients_on(serving: Any) -> None:
    """They come back until somebody takes what they have; here it is the same server."""

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client, asyncio.timeout(30):
            check, asked = server.service._check_running, []

            def count() -> None:
                asked.append(1)
                check()

            server.service._check_running = count
            server.service.stopping = True
            receipt = client.publish("s", b"x")
            subscription = client.subscribe("s", start="earliest")
            await until(lambda: len(asked) >= 6)
            server.service.stopping = False
            assert await receipt == 1
            assert [event.payload for event in await take(subscription, 1)] == [b"x"]

    run(work())

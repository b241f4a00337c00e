"""Subscriptions with a filter, which the server applies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.streaming import take
from tests.waiting import run, until

from qanat.client import AsyncClient, RequestRefused


@pytest.mark.paper("W8")
@pytest.mark.parametrize("mode", ["always", "interval"])
def test_the_server_applies_the_filter_to_old_and_new_events(serving: Any, mode: str) -> None:
    async def work() -> None:
        async with serving(f"log.mode={mode}") as server, AsyncClient(server.url) as client:
            first = [{"n": i, "even": i % 2 == 0} for i in range(200)]
            await client.publish_many("s", [b"%d" % i for i in range(200)], attributes=first)
            filters = {
                "n in 10..19": range(10, 20),
                "even = true and n in 100..": range(100, 300, 2),
                "not exists n": [],
            }
            subscriptions = {where: client.subscribe("s", start="earliest", where=where) for where in filters}
            for subscription in subscriptions.values():
                await subscription.confirmed()
            more = [{"n": i, "even": i % 2 == 0} for i in range(200, 300)]
            await client.publish_many("s", [b"%d" % i for i in range(200, 300)], attributes=more)
            await client.publish_many("s", [b"plain"])
            for where, expected in filters.items():
                events = await take(subscriptions[where], len(expected))
                assert [event.payload for event in events] == [b"%d" % i for i in expected]
            (plain,) = await take(subscriptions["not exists n"], 1)
            assert (plain.payload, plain.seq) == (b"plain", 301)
            assert subscriptions["not exists n"].next == 302

    run(work())


def test_many_filtered_subscribers_share_one_match(serving: Any) -> None:
    async def work() -> None:
        async with serving("log.mode=interval") as server, AsyncClient(server.url) as client:
            wheres = [f"symbol = 's{i % 100}' and price in {i}..{i + 500}" for i in range(300)]
            subscriptions = [await client.subscribe("s", where=where).confirmed() for where in wheres]
            quotes: Any = [{"symbol": f"s{i % 100}", "price": i} for i in range(1000)]
            await client.publish_many("s", [b"%d" % i for i in range(1000)], attributes=quotes)
            for i, subscription in enumerate(subscriptions):
                expected = [j for j in range(1000) if j % 100 == i % 100 and i <= j <= i + 500]
                assert [int(event.payload) for event in await take(subscription, len(expected))] == expected

    run(work())


def test_a_filtered_subscriber_hears_of_silence(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            subscription = await client.subscribe("s", where="exists nothing").confirmed()
            await client.publish_many("s", [b"x"] * 50)
            waiting = asyncio.create_task(subscription.take())
            await until(lambda: subscription.next == 51)
            waiting.cancel()

    run(work())


def test_a_bad_filter_says_where(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            with pytest.raises(RequestRefused, match="column 7") as caught:
                await client.subscribe("s", where="a = 1 %").confirmed()
            assert caught.value.code == "filter_error"
            with pytest.raises(RequestRefused, match="GC event"):
                await client.subscribe("s", where="same key").confirmed()
            assert await client.publish("s", b"fine") == 1

    run(work())

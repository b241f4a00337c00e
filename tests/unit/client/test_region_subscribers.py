"""Subscribers in a region whose tail moves or dies: they go on where they were."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.unit.client.region_events import disturbed, numbered, take
from tests.waiting import run

from qanat.client import AsyncClient, DeliveryGap


@pytest.mark.paper("S9")
@pytest.mark.parametrize("killed", [False, True])
def test_a_subscription_goes_on_at_the_new_tail(regions: Any, killed: bool) -> None:
    async def work() -> None:
        async with regions(3) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s").confirmed()
            await client.publish_many("s", [b"1", b"2"])
            assert await take(subscription, 1) == numbered(1, 2)
            region.move(tail="eu/2")
            if killed:
                await region[3].kill()
            await client.publish_many("s", [b"3", b"4"])
            assert await take(subscription, 2) == numbered(3, 4)
            assert region[2].clients == 1

    run(work())


@pytest.mark.parametrize("killed", [False, True])
def test_the_tail_is_asked_where_a_stream_is(regions: Any, killed: bool) -> None:
    async def work() -> None:
        async with regions(3) as region, AsyncClient(region.url) as client:
            await client.publish_many("s", [b"1", b"2"])
            assert (await client.look("s")).readable == 2
            region.move(tail="eu/2")
            if killed:
                await region[3].kill()
            await client.publish("s", b"3")
            assert (await client.look("s")).readable == 3

    run(work())


def test_nothing_of_a_former_tail_is_taken(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s").confirmed()
            await client.publish("s", b"1")
            ((connection, number),) = region[2].subscriptions
            region.move(tail="eu/1")
            region[2].push(connection, number, region.streams["s"].batches[0])
            await client.publish("s", b"2")
            assert await take(subscription, 2) == numbered(1, 2)

    run(work())


@pytest.mark.parametrize("seed", range(4))
def test_roles_move_and_replicas_die_at_random(regions: Any, seed: int) -> None:
    rng = random.Random(seed)
    count = 400

    async def publish(client: AsyncClient) -> None:
        for i in range(1, count + 1, 4):
            await client.send_many("s", [b"%d" % j for j in range(i, i + 4)])
            if not rng.randrange(4):
                await asyncio.sleep(rng.random() / 200)
        await client.flush()

    async def work() -> None:
        async with regions(3) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s", start="earliest").confirmed()
            async with disturbed(region, rng, "head", "tail"):
                publishing = asyncio.create_task(publish(client))
                assert await take(subscription, count) == numbered(1, count)
                await publishing

    run(work())


def test_a_gap_is_mended_by_asking_again(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s").confirmed()
            await client.publish("s", b"1")
            await take(subscription, 1)
            subscriptions, region[2].subscriptions = region[2].subscriptions, {}
            await client.publish("s", b"2")  # which the tail forgets to send
            region[2].subscriptions = subscriptions
            await client.publish("s", b"3")
            assert await take(subscription, 2) == numbered(2, 3)

    run(work())


def test_a_gap_that_stays_is_told(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s", start=1).confirmed()
            for i in (1, 2, 3):
                await client.publish("s", b"%d" % i)
            assert await take(subscription, 3) == numbered(1, 3)
            del region.streams["s"].batches[1]
            again = client.subscribe("s", start=1)
            assert await take(again, 1) == numbered(1, 1)
            with pytest.raises(DeliveryGap, match="jumped from 1 to 3"):
                await take(again, 1)
            assert await take(again, 1) == numbered(3, 3)

    run(work())

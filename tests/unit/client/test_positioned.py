"""Publishing under positions of a log, in a region whose head moves and dies."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest
from tests.unit.client.region_events import disturbed
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings, NoStream, RequestRefused
from qanat.events.position import Position


def at(first: int, count: int) -> tuple[Any, Any]:
    return np.arange(first, first + count, dtype=np.uint64), np.zeros(count, np.uint32)


@pytest.mark.parametrize("seed", range(4))
def test_heads_move_and_die_at_random(regions: Any, seed: int) -> None:
    rng = random.Random(seed)
    count = 300

    async def work() -> None:
        few = ClientSettings(batch_bytes=8)
        async with regions(3) as region, AsyncClient(region.url, name="shop", settings=few) as client:
            async with disturbed(region, rng, "head"):
                for first in range(1, count, 10):
                    await client.publish_at("s", [b"%d" % i for i in range(first, first + 10)], at(first, 10))
                    if not rng.randrange(4):
                        await asyncio.sleep(rng.random() / 100)
            assert region.streams["s"].payloads() == [b"%d" % i for i in range(1, count + 1)]
            assert await client.position("s") == Position(count, 0)

    run(work(), 100)


def test_one_batch_is_under_way_at_a_time(regions: Any) -> None:
    async def work() -> None:
        few = ClientSettings(batch_bytes=1)
        async with regions(1) as region, AsyncClient(region.url, name="shop", settings=few) as client:
            await client.publish_at("s", [b"0"], at(1, 1))
            head = region[1]
            head.published.clear()
            head.stores = False
            publishing = asyncio.create_task(client.publish_at("s", [b"1", b"2", b"3"], at(2, 3)))
            await until(lambda: head.published)
            with pytest.raises(RequestRefused):  # an answer to what was sent after them
                await client.ask("nothing")
            assert head.published == [("shop", 2)]
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            head.stores = True
            await head.kill()
            await head.start()
            assert await client.position("s") >= Position(1, 0)

    run(work())


def test_a_stream_that_is_not_there_is_told_each_time(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region, AsyncClient(region.url, name="shop") as client:
            region.refusals["s"] = ("no_stream", "there is no stream 's'")
            for _ in range(2):
                with pytest.raises(NoStream):
                    await client.position("s")
            region.refusals.clear()
            await client.publish_at("s", [b"0"], at(1, 1))
            assert await client.position("s") == Position(1, 0)

    run(work())

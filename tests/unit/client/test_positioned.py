"""Publishing under positions of a log, in a region whose head moves and dies."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest
from tests.unit.client.region_events import disturbed
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings, NoStream, PublishRefused, RequestRefused
from qanat.client.encoded import dense_flight, jumping_flight, publish_flights
from qanat.events.batch import Batch, decode_all, stream_id
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

    run(work())


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


def test_several_batches_are_under_way_only_to_a_server_that_looks_behind_what_they_come(
    regions: Any,
) -> None:
    """What was under way to such a server goes one by one to the next one, which is of another kind."""

    async def work() -> None:
        few = ClientSettings(batch_bytes=1)
        async with regions(1) as region, AsyncClient(region.url, name="shop", settings=few) as client:
            head = region[1]
            head.ordered, head.stores = True, False
            publishing = asyncio.create_task(client.publish_at("s", [b"1", b"2", b"3"], at(1, 3)))
            await until(lambda: len(head.published) == 3)
            head.published.clear()
            head.ordered = False
            await head.kill()
            await head.start()
            await until(lambda: head.published)
            with pytest.raises(RequestRefused):  # an answer to what was sent after them
                await client.ask("nothing")
            assert head.published == [("shop", 1)]
            head.stores = True
            await head.kill()
            await head.start()
            await publishing
            assert region.streams["s"].payloads() == [b"1", b"2", b"3"]

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


@pytest.mark.parametrize("seed", range(4))
def test_encoded_batches_follow_each_other_while_heads_move_and_die(regions: Any, seed: int) -> None:
    """Transactions of many batches: the first and the last of each fly alone, those between them together."""
    rng = random.Random(seed)
    size, batches = 5, 8

    def flights(first: int) -> Any:
        for i in range(batches):
            start = first + i * size
            payloads = [b"%d" % j for j in range(start, start + size)]
            batch = Batch.build(stream_id("s"), payloads, source="shop", position=0)
            if i in (0, batches - 1):
                yield jumping_flight(batch, "shop", np.arange(start, start + size))
            else:
                yield dense_flight(batch, "shop", start)

    async def work() -> None:
        async with regions(3) as region, AsyncClient(region.url, name="shop") as client:
            count = 0
            async with disturbed(region, rng, "head"):
                for _ in range(15):
                    await publish_flights(client, "s", flights(count + 1))
                    count += size * batches
            assert region.streams["s"].payloads() == [b"%d" % i for i in range(1, count + 1)]
            assert await client.position("s") == Position(count, 0)
            assert await publish_flights(client, "s", flights(count - size * batches + 1)) == 0

    run(work())


def test_after_a_refusal_none_of_those_under_way_is_stored(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region, AsyncClient(region.url, name="shop") as client:
            await client.publish_at("s", [b"0"], at(1, 1))

            def refuse(connection: Any, publish: Any, frame: Any) -> bool:
                (batch,) = decode_all(frame.attachment)
                if batch.position != 2:
                    return False
                region[1].refuse(connection, publish.request, "disk_full", "no room")
                return True

            region[1].on_publish = refuse
            made = [Batch.build(stream_id("s"), [b"x"], source="shop", position=0) for _ in range(5)]
            with pytest.raises(PublishRefused, match="no room"):
                await publish_flights(
                    client, "s", [dense_flight(b, "shop", i + 2) for i, b in enumerate(made)]
                )
            region[1].on_publish = lambda *_: False
            assert await client.position("s") == Position(1, 0)
            assert region.streams["s"].payloads() == [b"0"]

    run(work())

"""The server is killed again and again while events flow: what was acknowledged is there, once, in order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.waiting import until

from qanat.client import AsyncClient, ClientSettings
from qanat.runtime.loop import run
from qanat.studies.tally import Tally, make

_KILLS = 8
_PRODUCERS = 3
_PATIENT = ClientSettings(patience_ms=85_000)
"""On a busy machine a server needs seconds to start, and is killed before it could serve anybody."""


@pytest.mark.paper("S1")
@pytest.mark.parametrize("mode", ["always", "interval"])
def test_kill_9_loses_and_duplicates_nothing(server_process: Any, mode: str) -> None:
    """`interval` too: a killed process leaves its writes in the page cache; only a power cut would take
    them."""
    rng = random.Random(7)
    server_process.start("--durability", mode)
    published = [0] * _PRODUCERS

    async def produce(number: int, stop: asyncio.Event) -> None:
        async with AsyncClient(server_process.url, settings=_PATIENT) as client:
            while not stop.is_set():
                await client.publish_many("s", make(number, published[number], 500, 64))
                published[number] += 500

    async def main() -> Tally:
        stop = asyncio.Event()
        tally = Tally(_PRODUCERS)
        async with asyncio.timeout(90), AsyncClient(server_process.url, settings=_PATIENT) as reader:
            subscription = await reader.subscribe("s", start="earliest").confirmed()
            producing = [asyncio.create_task(produce(number, stop)) for number in range(_PRODUCERS)]
            receiving = asyncio.create_task(receive(subscription, tally))
            for _ in range(_KILLS):
                await asyncio.sleep(rng.uniform(0.05, 0.3))  # how far they get, not a condition
                await asyncio.to_thread(server_process.kill)
                await asyncio.to_thread(server_process.start, "--durability", mode)
            stop.set()
            await asyncio.gather(*producing)
            await until(lambda: not tally.lost(published), every_s=0.01)
            receiving.cancel()
        return tally

    async def receive(subscription: Any, tally: Tally) -> None:
        async for batch in subscription.batches():
            tally.take(batch.payloads())

    tally = run(main)
    assert sum(published) > 0
    assert (tally.delivered, tally.duplicated, tally.out_of_order) == (sum(published), 0, 0)
    assert server_process.stop() == 0

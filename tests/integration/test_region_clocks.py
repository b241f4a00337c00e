"""A region whose machines have clocks an hour apart, and clocks that jump: nothing is lost, nobody is
expelled for it, and what is young is not collected as old."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.integration.clocks import HOUR_S, NOTICED_S, wrong_clocks
from tests.waiting import DEADLINE_S

from qanat.client import AsyncClient, Event, Kind
from qanat.events.event import events as rows
from qanat.operate.region_processes import region_processes

QUICK = {
    "session": {"timeout_ms": 1_000.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 2_000.0, "hello_ms": 50.0},
}
STREAMS = {
    "hourly": {"owner": "eu", "policy": {"age_ms": HOUR_S * 1000}},
    "brief": {"owner": "eu", "policy": {"age_ms": 1_000}},
}


async def history(client: AsyncClient, stream: str, upto: int) -> list[Event]:
    found: list[Event] = []
    async with asyncio.timeout(DEADLINE_S):
        async for batch in client.subscribe(stream, start="earliest").batches():
            found += rows(batch)
            if found[-1].seq >= upto:
                return found
    return found


@pytest.mark.server("faketime")
@pytest.mark.paper("S1", "S9", "S10")
def test_clocks_an_hour_apart_lose_nothing_and_make_nothing_old(tmp_path: Path) -> None:
    with (
        wrong_clocks(tmp_path / "clocks") as clocks,
        region_processes({"eu": 2}, STREAMS, folder=tmp_path / "region", **QUICK) as region,
    ):
        chain = region.wait_chain("eu", 2)
        first, second = chain["head"], chain["tail"]
        clocks.set(first, HOUR_S)
        clocks.set("eu/coordinator", -HOUR_S)

        async def drill() -> None:
            published = 0
            async with AsyncClient(region.url("eu"), patience=DEADLINE_S) as client:

                async def publish_for(seconds: float) -> None:
                    nonlocal published
                    until = time.monotonic() + seconds
                    while time.monotonic() < until:
                        published += 1
                        await client.publish("hourly", b"%d" % published)

                await publish_for(
                    NOTICED_S
                )  # the head's clock jumps meanwhile, and so does the coordinator's
                clocks.set(second, -HOUR_S)
                await publish_for(NOTICED_S)
                assert region.chain("eu")["epoch"] == chain["epoch"], "a jump expelled somebody"

                # Silence is measured by no such clock: a stream that is silent for its age is collected,
                # another is not.
                _, last = await client.publish_many("brief", [b"a", b"b"])
                seen = await history(client, "brief", last + 1)
                assert seen[-1].kind == Kind.GC

                region[first].kill()
                await publish_for(0.5)
                assert region.chain("eu")["head"] == second
                clocks.set(second, HOUR_S)
                await publish_for(NOTICED_S)
                await asyncio.to_thread(region[first].start)
                await asyncio.to_thread(region.wait_chain, "eu", 2)
                await publish_for(0.1)

                seen = await history(client, "hourly", published)
                assert [event.kind for event in seen] == [Kind.DATA] * published
                assert [event.payload for event in seen] == [b"%d" % n for n in range(1, published + 1)]

        asyncio.run(drill())

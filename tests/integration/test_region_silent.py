"""A replica that says nothing for a while, and then goes on as if nothing had been."""

import asyncio
import signal
from pathlib import Path

import pytest

from qanat.client import AsyncClient, ClientSettings
from qanat.operate.region_processes import region_processes
from qanat.runtime.settings import TransportSettings

QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0},
}
PATIENT = ClientSettings(patience_ms=60_000)
ALERT = TransportSettings(heartbeat_ms=300, heartbeat_misses=2)


@pytest.mark.parametrize("place", ["head", "tail"])
def test_who_was_stopped_is_left_and_serves_nobody_when_it_is_back(tmp_path: Path, place: str) -> None:
    seen: list[bytes] = []
    published = 0

    async def listen(url: str) -> None:
        async with AsyncClient(url, settings=PATIENT, transport=ALERT) as client:
            async for batch in client.subscribe("prices", start="earliest").batches():
                seen.extend(batch.payloads().to_pylist())

    async def publish(client: AsyncClient, count: int) -> None:
        nonlocal published
        for _ in range(count):
            await client.publish("prices", b"%d" % published)
            published += 1

    with region_processes({"eu": 2}, {"prices": {"owner": "eu"}}, folder=tmp_path, **QUICK) as region:
        chain = region.wait_chain("eu", 2)
        silent = region[chain[place]]

        async def drive() -> None:
            listening = asyncio.create_task(listen(region.url("eu")))
            async with AsyncClient(region.url("eu"), settings=PATIENT, transport=ALERT) as client:
                await publish(client, 20)
                silent.signal(signal.SIGSTOP)
                await asyncio.wait_for(publish(client, 20), 60)
                silent.signal(signal.SIGCONT)
                await publish(client, 20)
                whole = await asyncio.to_thread(region.wait_chain, "eu", 2)
                assert whole["epoch"] > chain["epoch"]
                await publish(client, 20)
            async with asyncio.timeout(60):
                while len(seen) < published:
                    await asyncio.sleep(0.01)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

        asyncio.run(drive())
    assert seen == [b"%d" % number for number in range(80)]

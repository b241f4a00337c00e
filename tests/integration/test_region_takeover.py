"""A replica whose process is dead is not waited for: with sessions of many minutes, publishers and readers go
on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import DEADLINE_S

from qanat.client import AsyncClient
from qanat.operate.region_processes import RegionProcesses, region_processes

HOUR_MS = 3_600_000.0
PATIENT = {
    "session": {"timeout_ms": HOUR_MS},
    "server": {"session_max_ms": HOUR_MS},
    "chain": {"failure_ms": HOUR_MS},
}


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    folder: Path = tmp_path_factory.mktemp("region")
    with region_processes({"eu": 2}, {"prices": {"owner": "eu"}}, folder=folder, **PATIENT) as processes:
        yield processes


@pytest.mark.paper("S1", "S9")
@pytest.mark.parametrize("victims", ["head", "tail", "head and coordinator", "tail and coordinator"])
def test_who_is_killed_is_not_waited_for(region: RegionProcesses, victims: str) -> None:
    async def drill() -> None:
        chain = await asyncio.to_thread(region.wait_chain, "eu", 2)
        dead = region[chain[victims.partition(" ")[0]]]
        coordinator = region["eu/coordinator"]
        async with AsyncClient(region.url("eu"), patience=DEADLINE_S) as client:
            before = await client.publish("prices", b"before")
            dead.kill()
            if "coordinator" in victims:
                coordinator.kill()
                await asyncio.to_thread(coordinator.start)
            async with asyncio.timeout(DEADLINE_S):
                after = await client.publish("prices", b"after")
                assert after == before + 1
                async for event in client.subscribe("prices", start=after):
                    assert event.payload == b"after"
                    break
        await asyncio.to_thread(dead.start)

    asyncio.run(drill())

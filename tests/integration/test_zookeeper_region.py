"""A region whose replicas agree through a real ensemble: servers die, replicas leave and come, and what was
acknowledged is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.servers.zookeeper import TICK_MS, Ensemble, zookeeper_ensemble
from tests.waiting import run

from qanat.client import AsyncClient, ClientSettings
from qanat.operate.file import Region
from qanat.operate.region_processes import RegionProcesses, make_deployment

pytestmark = pytest.mark.paper("S9")

PATIENT = ClientSettings(patience_ms=120_000)
SESSION = {"timeout_ms": 15_000.0, "retry_ms": 50.0, "zookeeper_tick_ms": float(TICK_MS)}


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    with zookeeper_ensemble(tmp_path) as found:
        yield found


@pytest.fixture
def region(ensemble: Ensemble, tmp_path: Path) -> Iterator[RegionProcesses]:
    deployment = make_deployment({}, {"prices": {"owner": "eu"}}, session=SESSION)
    regions = {"eu": Region(2, coordinator=ensemble.url("shop"))}
    processes = RegionProcesses(msgspec.structs.replace(deployment, regions=regions), tmp_path / "region")
    try:
        processes.start()
        processes.wait_chain("eu", 2)
        yield processes
    finally:
        processes.end()


def test_a_chain_goes_on_through_the_death_of_servers_and_the_leaving_of_its_head(
    region: RegionProcesses, ensemble: Ensemble
) -> None:
    assert sorted(region.nodes) == ["eu/proxy-1", "eu/proxy-2"], "there is no coordinator to start"

    async def drill() -> None:
        sent: list[bytes] = []
        async with AsyncClient(region.url("eu"), settings=PATIENT) as client:

            async def publish() -> None:
                for _ in range(20):
                    await client.publish("prices", b"%d" % len(sent))
                    sent.append(b"%d" % len(sent))

            await publish()
            (await asyncio.to_thread(ensemble.leader)).kill()
            await publish()
            await asyncio.to_thread(ensemble.kill)
            await publish()  # on what the replicas know
            ensemble.start()
            await asyncio.to_thread(ensemble.wait)
            await publish()
            before = await asyncio.to_thread(region.wait_chain, "eu", 2)
            head = region[before["head"]]
            await asyncio.to_thread(head.stop)
            await publish()  # its session was closed, so nobody waits for it to end
            alone = await asyncio.to_thread(region.wait_chain, "eu", 1)
            assert alone["head"] == before["tail"]
            await asyncio.to_thread(head.start)
            after = await asyncio.to_thread(region.wait_chain, "eu", 2)
            assert after["tail"] == before["head"] and after["epoch"] > before["epoch"]
            await publish()
            seen: list[bytes] = []
            async for batch in client.subscribe("prices", start="earliest").batches():
                seen += batch.payloads().to_pylist()
                if len(seen) >= len(sent):
                    break
            assert seen == sent

    run(drill())

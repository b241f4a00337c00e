"""Full disks, events that are too large, regions that are away: a replica bears them, and its memory does not
grow."""

import asyncio
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qanat.client import AsyncClient, ClientSettings
from qanat.client.errors import PublishRefused
from qanat.events.errors import MalformedBatch
from qanat.operate.region_processes import NodeProcess, RegionProcesses, region_processes
from qanat.runtime.settings import TransportSettings

QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 600.0, "hello_ms": 50.0},
    "proxy_level": {"advertise_ms": 50.0, "stall_ms": 500.0},
    "transport": {"backoff_limit_ms": 500},
}
PATIENT = ClientSettings(patience_ms=60_000)
FREE = resource.RLIM_INFINITY


def disk_of(node: NodeProcess, file_bytes: int) -> None:
    """Lets no file of the process grow beyond this; the kernel answers as for a full disk."""
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    streams: dict[str, dict[str, Any]] = {
        "first": {"owner": "eu"},
        "second": {"owner": "eu"},
        "bulk": {"owner": "eu", "mode": "interval"},
        "large": {"owner": "eu"},
        "rolling": {"owner": "eu", "segment_bytes": 65536},
    }
    folder: Path = tmp_path_factory.mktemp("regions")
    with region_processes({"eu": 2, "us": 1}, streams, folder=folder, drills=True, **QUICK) as processes:
        yield processes


def test_a_full_disk_at_the_tail_holds_publishes_up_and_passes(regions: RegionProcesses) -> None:
    async def drive() -> None:
        chain = regions.chain("eu")
        tail = regions[chain["tail"]]
        async with AsyncClient(regions.url("eu"), settings=PATIENT) as client:
            await client.publish("first", b"before")
            disk_of(tail, 100_000)
            numbers: list[int] = []

            async def feed() -> None:
                for _ in range(300):
                    numbers.append(await client.publish("first", bytes(1000)))

            feeding = asyncio.create_task(feed())
            while len(numbers) < 50:
                await asyncio.sleep(0.01)
            await asyncio.sleep(1.5)  # longer than the silence of a dead replica may last
            assert len(numbers) < 200
            assert regions.chain("eu")["replicas"] == chain["replicas"] and tail.running
            disk_of(tail, FREE)
            await asyncio.wait_for(feeding, 60)
            assert numbers == list(range(2, 302))

    asyncio.run(drive())


def test_a_full_disk_at_the_head_refuses_definitely_and_passes(regions: RegionProcesses) -> None:
    async def drive() -> None:
        head = regions[regions.chain("eu")["head"]]
        async with AsyncClient(regions.url("eu"), settings=PATIENT) as client:
            await client.publish("second", b"before")
            disk_of(head, 100_000)
            with pytest.raises(PublishRefused) as caught:
                for _ in range(300):
                    await client.publish("second", bytes(1000))
            assert (caught.value.code, caught.value.definite) == ("disk_full", True)
            disk_of(head, FREE)
            await client.publish("second", b"after")

    asyncio.run(drive())


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("place", ["head", "tail"])
def test_a_replica_without_descriptors_stays_and_goes_on(
    regions: RegionProcesses, place: str, spare: int
) -> None:
    """It can open no segment; or one, and not the folder with which to sync that."""

    async def drive() -> None:
        chain = regions.chain("eu")
        node = regions[chain[place]]
        async with AsyncClient(regions.url("eu"), settings=PATIENT) as client:
            first = await client.publish("rolling", bytes(50_000))
            before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
            open_files = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (open_files + spare, before[1]))
            stored, refused = [first], 0
            feeding = asyncio.ensure_future(client.publish("rolling", bytes(50_000)))
            for _ in range(20):
                done, _waiting = await asyncio.wait([feeding], timeout=1.5)
                if not done:  # longer than the silence of a dead replica may last
                    break
                try:
                    stored.append(feeding.result())
                except PublishRefused as error:
                    assert (error.code, error.definite) == ("out_of_descriptors", True)
                    refused += 1
                    break
                feeding = asyncio.ensure_future(client.publish("rolling", bytes(50_000)))
            resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)
            if not refused:
                stored.append(await asyncio.wait_for(feeding, 60))
            stored.append(await client.publish("rolling", b"after"))
            assert stored == list(range(first, first + len(stored)))
            assert regions.chain("eu")["replicas"] == chain["replicas"] and node.running

    asyncio.run(drive())


def test_an_event_over_the_frame_limit_is_refused_and_one_below_it_reaches_every_region(
    regions: RegionProcesses,
) -> None:
    limit = TransportSettings().frame_limit_bytes
    large = bytes(limit - 4096)

    async def drive() -> None:
        # what a client may send is for the server to say, so a higher limit of its own does not help it
        transport = TransportSettings(frame_limit_bytes=4 * limit)
        async with AsyncClient(regions.url("eu"), settings=PATIENT, transport=transport) as client:
            with pytest.raises(
                MalformedBatch, match="over the limit of 16777216: publish it in parts"
            ) as caught:
                await client.publish("large", bytes(limit))
            assert caught.value.definite
            assert [await client.publish("large", each) for each in (large, b"after")] == [1, 2]
        async with AsyncClient(regions.url("us"), settings=PATIENT) as client, asyncio.timeout(60):
            got: list[bytes] = []
            async for event in client.subscribe("large", start="earliest"):
                got.append(event.payload)
                if len(got) == 2:
                    break
            assert got == [large, b"after"]

    asyncio.run(drive())


def memory_bytes(node: NodeProcess) -> int:
    """Of its own; pages of its log's files are the kernel's to take back."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{node.pid}/status").read_text())
    assert found is not None
    return int(found.group(1)) * 1024


@pytest.mark.paper("S5")
def test_memory_does_not_grow_while_a_region_is_away(regions: RegionProcesses) -> None:
    """What it missed comes from the log when it is back."""
    each, count = 100_000, 200

    async def drive() -> None:
        payloads = np.zeros((each, 10), np.uint8)
        async with AsyncClient(regions.url("eu"), settings=PATIENT) as client:
            await client.publish_many("bulk", payloads)
            regions.cut(("eu", "us"), ("us", "eu"))
            before = {node.name: memory_bytes(node) for node in regions.replicas("eu")}
            for _ in range(count):
                await client.room("bulk")
                await client.send_many("bulk", payloads)
            await client.flush()
            grown = {node.name: memory_bytes(node) - before[node.name] for node in regions.replicas("eu")}
            assert max(grown.values()) < 100_000_000, grown  # 200 MB were published
            regions.cut()
        async with AsyncClient(regions.url("us"), settings=PATIENT) as client, asyncio.timeout(60):
            async for batch in client.subscribe("bulk", start="earliest").batches():
                if batch.last == each * (count + 1):
                    break

    asyncio.run(drive())

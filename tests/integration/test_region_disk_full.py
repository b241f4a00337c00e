"""A disk of a region that is really full, at each place: readers read on, people and publishers are told
where and what to do, and once there is room all goes on by itself."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.servers.small_disk import fill, small_disk
from tests.waiting import DEADLINE_S, until, wait_until

from qanat.client import AsyncClient, PublishRefused
from qanat.operate.layout import file_name
from qanat.operate.region_processes import NodeProcess, RegionProcesses, make_deployment

QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 600.0, "hello_ms": 50.0},
}
LONGER_THAN_A_SESSION_S = 2.0
BALLAST = "ballast"


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    """Every node's data lies on a disk of its own."""
    folder: Path = tmp_path_factory.mktemp("region")
    processes = RegionProcesses(make_deployment({"eu": 3}, {"prices": {"owner": "eu"}}, **QUICK), folder)
    with ExitStack() as disks:
        for name in processes.nodes:
            disks.enter_context(small_disk(folder / "data" / file_name(name), "16m,nr_inodes=200"))
        try:
            processes.start()
            processes.wait_chain("eu", 3)
            yield processes
        finally:
            processes.end()


class Publishing:
    """One event after the other; what was refused is published again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.acknowledged = 0
        self.refusals: list[PublishRefused] = []
        self.stopping = False

    async def run(self) -> None:
        async with AsyncClient(self._url, name="loader", patience=DEADLINE_S) as client:
            number = await client.stored("prices")
            self.acknowledged = number
            while not self.stopping:
                try:
                    await client.publish("prices", b"%d:" % number + bytes(1_000))
                except PublishRefused as error:
                    self.refusals.append(error)
                    await asyncio.sleep(0.05)  # as who tries again now and then
                else:
                    number += 1
                    self.acknowledged = number


async def read(url: str, count: int) -> list[bytes]:
    """The first so many events, by a reader who comes now."""
    found: list[bytes] = []
    async with AsyncClient(url, patience=DEADLINE_S) as client, asyncio.timeout(DEADLINE_S):
        async for event in client.subscribe("prices", start="earliest"):
            found.append(event.payload.partition(b":")[0])
            if len(found) == count:
                break
    return found


def told(node: NodeProcess) -> str:
    return str(node.status()["disk_full"])


@pytest.mark.paper("S11")
@pytest.mark.parametrize("place", ["head", "middle", "tail"])
def test_a_replica_without_room_says_so_and_readers_read_on(
    region: RegionProcesses, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def drill() -> None:
        chain = await asyncio.to_thread(region.wait_chain, "eu", 3)
        victim = region[chain["replicas"][["head", "middle", "tail"].index(place)]]
        publishing = Publishing(region.url("eu"))
        task = asyncio.create_task(publishing.run())
        await until(lambda: publishing.acknowledged)
        fill(victim.data / BALLAST)
        await until(lambda: told(victim))
        await asyncio.sleep(LONGER_THAN_A_SESSION_S)
        assert region.chain("eu")["replicas"] == chain["replicas"]
        before = publishing.acknowledged
        assert await read(region.url("eu"), before) == [b"%d" % each for each in range(before)]
        for said in (told(victim), victim.get("/healthz").decode()):
            assert f"the disk of {victim.name} is full ({victim.data}: " in said
            assert "make room there, and all goes on by itself" in said
        assert all(not told(node) for node in region.replicas("eu") if node is not victim)
        if place == "head":
            refusal = publishing.refusals[-1]
            assert (refusal.code, refusal.definite) == ("disk_full", True)
            assert f"the disk of {victim.name} is full ({victim.data}: " in str(refusal)
        else:
            await until(
                lambda: f"publishes wait: the disk of {victim.name} is full ({victim.data}: " in caplog.text
            )
        shutil.rmtree(victim.data / BALLAST)
        await until(lambda: publishing.acknowledged > before + 20)
        await until(lambda: not told(victim))
        publishing.stopping = True
        await asyncio.wait_for(task, DEADLINE_S)
        count = publishing.acknowledged
        assert await read(region.url("eu"), count) == [b"%d" % each for each in range(count)]
        assert [each["stable"] for each in region[chain["tail"]].status()["streams"]] == [count]

    asyncio.run(drill())


@pytest.mark.paper("S11")
def test_a_coordinator_without_room_still_lets_a_chain_change(region: RegionProcesses) -> None:
    """It has set some aside."""

    async def drill() -> None:
        chain = await asyncio.to_thread(region.wait_chain, "eu", 3)
        coordinator, head = region["eu/coordinator"], region[chain["head"]]
        publishing = Publishing(region.url("eu"))
        task = asyncio.create_task(publishing.run())
        await until(lambda: publishing.acknowledged)
        fill(coordinator.data / BALLAST)
        pid = coordinator.pid
        head.kill()
        await asyncio.to_thread(region.wait_chain, "eu", 2)
        before = publishing.acknowledged
        await until(lambda: publishing.acknowledged > before + 20)
        await asyncio.to_thread(head.start)
        await asyncio.to_thread(region.wait_chain, "eu", 3)
        said = told(coordinator)
        assert f"the disk of eu/coordinator is full ({coordinator.data}: 0." in said
        assert said in coordinator.get("/healthz").decode()
        assert coordinator.pid == pid
        assert coordinator.running
        shutil.rmtree(coordinator.data / BALLAST)
        await until(lambda: not told(coordinator))
        publishing.stopping = True
        await asyncio.wait_for(task, DEADLINE_S)

    asyncio.run(drill())


@pytest.mark.paper("S11")
def test_who_is_killed_while_its_disk_is_full_comes_back_on_it(region: RegionProcesses) -> None:
    chain = region.wait_chain("eu", 3)
    nodes = region["eu/coordinator"], region[chain["tail"]]
    for node in nodes:
        fill(node.data / BALLAST)
        node.kill()
    for node in nodes:
        node.start()
    wait_until(lambda: region.chain("eu")["serves"] or region.chain("eu")["replicas"])
    for node in nodes:
        shutil.rmtree(node.data / BALLAST)
    region.wait_chain("eu", 3)

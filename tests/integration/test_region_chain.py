"""One region as real processes: a chain under load whose replicas and coordinator are killed, emptied and
started again."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.waiting import wait_until

from qanat.client import AsyncClient, ClientSettings
from qanat.client.errors import NoStream, OwnedElsewhere
from qanat.operate.file import Region
from qanat.operate.region_processes import NodeProcess, RegionProcesses, region_processes
from qanat.replica.settings import StreamSettings

QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0},
}
PATIENT = ClientSettings(patience_ms=60_000)


class Load:
    """Publishes numbered events one batch after another and listens to them: what was acknowledged must come,
    in order."""

    def __init__(self, url: str, stream: str) -> None:
        self._url, self._stream = url, stream
        self.acknowledged: list[int] = []
        self.seen: list[bytes] = []
        self._stopping = asyncio.Event()
        self._progress = asyncio.Event()

    async def publish(self) -> None:
        async with AsyncClient(self._url, name=f"loader of {self._stream}", settings=PATIENT) as client:
            number = 0
            while not self._stopping.is_set():
                receipts = [client.publish(self._stream, b"%d" % (number + i)) for i in range(20)]
                for receipt in receipts:
                    await receipt
                self.acknowledged += range(number, number + 20)
                number += 20
                self._progress.set()

    async def listen(self) -> None:
        async with AsyncClient(self._url, settings=PATIENT) as client:
            async for batch in client.subscribe(self._stream, start="earliest").batches():
                self.seen += batch.payloads().to_pylist()

    async def progress(self, batches: int = 3) -> None:
        """Until so many more batches were acknowledged."""
        for _ in range(batches):
            self._progress.clear()
            await asyncio.wait_for(self._progress.wait(), 60)

    async def finish(self) -> None:
        self._stopping.set()

    def check(self) -> None:
        assert self.seen == [b"%d" % number for number in range(len(self.seen))]
        assert len(self.seen) >= len(self.acknowledged)


@asynccontextmanager
async def loaded(url: str, stream: str = "prices") -> AsyncIterator[Load]:
    load = Load(url, stream)
    publishing, listening = asyncio.create_task(load.publish()), asyncio.create_task(load.listen())
    try:
        await load.progress(1)
        yield load
        await load.finish()
        await asyncio.wait_for(publishing, 60)
        async with asyncio.timeout(60):
            while len(load.seen) < len(load.acknowledged):
                await asyncio.sleep(0.01)
        load.check()
    finally:
        publishing.cancel()
        listening.cancel()
        await asyncio.gather(publishing, listening, return_exceptions=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    streams = {
        **{name: {"owner": "eu"} for name in ("prices", "orders", "trades")},
        "ticks": {"owner": "eu", "mode": "memory"},
        "far": {"owner": "us"},
    }
    folder = tmp_path_factory.mktemp("region")
    with region_processes({"eu": 3}, streams, folder=folder, **QUICK) as processes:
        yield processes


@pytest.fixture
def region(shared: RegionProcesses) -> RegionProcesses:
    """Whole again, whatever the test before did to it."""
    shared.start()
    shared.wait_chain("eu", 3)
    return shared


async def _whole(region: RegionProcesses, members: int = 3) -> dict[str, str]:
    return await asyncio.to_thread(region.wait_chain, "eu", members)


@pytest.mark.paper("S1", "S9", "S11")
def test_every_role_is_killed_under_load_and_nothing_acknowledged_is_lost(region: RegionProcesses) -> None:
    async def drill() -> None:
        async with loaded(region.url("eu")) as load:
            for place in (0, 1, 2):  # head, middle, tail
                chain = await _whole(region)
                victim = region[chain["replicas"][place]]
                victim.kill()
                await load.progress()
                if place == 1:
                    victim.forget()  # it comes back with an empty disk
                await asyncio.to_thread(victim.start)
                await load.progress()
            region["eu/coordinator"].kill()
            await asyncio.to_thread(region["eu/coordinator"].start)
            await load.progress()
            chain = await _whole(region)
            tail = region[chain["tail"]]
            # A tail that is new waits until the lease of the one before it has run out.
            await asyncio.to_thread(wait_until, lambda: tail.status()["chain"]["serves"])
            status = tail.status()
            prices = next(each for each in status["streams"] if each["stream"] == "prices")
            assert (prices["durability"], prices["owner"]) == ("always", "eu")
            assert status["chain"]["role"] == "tail"

    asyncio.run(drill())


@pytest.mark.paper("S9")
def test_all_replicas_at_once_and_a_region_that_is_stopped_in_peace(region: RegionProcesses) -> None:
    async def drill() -> None:
        async with loaded(region.url("eu"), "orders") as load:
            for node in region.replicas("eu"):
                node.kill()
            await asyncio.to_thread(region.start)
            await load.progress()
            await _whole(region)
        assert {node.stop() for node in region.replicas("eu")} == {0}
        await asyncio.to_thread(region.start)
        await _whole(region)
        async with AsyncClient(region.url("eu"), settings=PATIENT) as client:
            count = 0
            async for batch in client.subscribe("orders", start="earliest").batches():
                count += batch.count
                if count >= len(load.seen):
                    break

    asyncio.run(drill())


@pytest.mark.paper("S11")
def test_a_stream_in_memory_survives_while_one_replica_runs(region: RegionProcesses) -> None:
    async def drill() -> None:
        async with loaded(region.url("eu"), "ticks") as load:
            chain = await _whole(region)
            for name in (chain["head"], chain["tail"]):
                region[name].kill()
                await load.progress()
            assert not (region[chain["head"]].data / "streams").joinpath("ticks").exists()

    asyncio.run(drill())


def test_what_is_not_for_this_region_is_refused_with_the_owner_s_name(region: RegionProcesses) -> None:
    async def ask() -> None:
        async with AsyncClient(region.url("eu"), settings=PATIENT) as client:
            with pytest.raises(OwnedElsewhere, match="'us'"):
                await client.publish("far", b"x")
            with pytest.raises(NoStream, match="qanat apply"):
                await client.publish("none", b"x")
            place = await client.ask("place")
            assert (place["region"], place["streams"]["far"], len(place["replicas"])) == ("eu", "us", 3)

    asyncio.run(ask())


def test_streams_and_the_length_of_the_chain_change_while_it_runs(region: RegionProcesses) -> None:
    async def drill() -> None:
        async with loaded(region.url("eu"), "trades"):
            deployment = region.deployment
            region.deployment = msgspec.structs.replace(
                deployment,
                streams={**deployment.streams, "news": StreamSettings(owner="eu")},
                regions={"eu": Region(replicas=4)},
            )
            region.write()
            region.reload()
            await asyncio.to_thread(region["eu/proxy-4"].start)
            await _whole(region, 4)
            async with loaded(region.url("eu"), "news") as load:
                await load.progress()
            assert region.nodes.pop("eu/proxy-4").stop(signal.SIGTERM) == 0
            region.deployment = msgspec.structs.replace(region.deployment, regions={"eu": Region(replicas=3)})
            region.write()
            region.reload()
            await _whole(region, 3)

    asyncio.run(drill())


@pytest.mark.paper("S9")
def test_a_head_that_comes_back_with_events_nobody_else_had_gives_them_up(tmp_path: Path) -> None:
    """It numbered them, told nobody, and died; meanwhile others got their numbers."""
    slow = {**QUICK, "session": {"timeout_ms": 5_000.0, "retry_ms": 50.0}}
    with region_processes({"eu": 2}, {"prices": {"owner": "eu"}}, folder=tmp_path, **slow) as region:
        chain = region.wait_chain("eu", 2)
        head, tail = region[chain["head"]], region[chain["tail"]]

        async def doom() -> None:
            async with AsyncClient(region.url("eu"), settings=ClientSettings(patience_ms=1_000)) as client:
                await client.publish("prices", b"before")
                tail.kill()
                lost = client.publish("prices", b"doomed")
                async with asyncio.timeout(60):
                    while _counter(head) < 2:
                        await asyncio.sleep(0.01)
                head.kill()
                del lost

        async def go_on() -> list[int]:
            async with AsyncClient(region.url("eu"), settings=PATIENT) as client:
                return [await client.publish("prices", b"after"), await client.publish("prices", b"all that")]

        async def read() -> list[bytes]:
            async with AsyncClient(region.url("eu"), settings=PATIENT) as client:
                seen: list[bytes] = []
                async for batch in client.subscribe("prices", start="earliest").batches():
                    seen += batch.payloads().to_pylist()
                    if len(seen) >= 3:
                        return seen
            raise AssertionError("the subscription ended")

        asyncio.run(doom())
        tail.start()
        assert asyncio.run(go_on()) == [2, 3]
        head.start()
        region.wait_chain("eu", 2)
        tail.kill()
        assert asyncio.run(read()) == [b"before", b"after", b"all that"]
        assert "begins anew" in head.config.with_suffix(".log").read_text()


def _counter(node: NodeProcess) -> int:
    return int(node.status()["streams"][0]["counter"])

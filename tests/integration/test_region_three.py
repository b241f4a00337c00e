"""Three regions as real processes: every event reaches every region in order, also round a cut link, and
garbage goes everywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from qanat.client import AsyncClient, ClientSettings
from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.event import Event
from qanat.events.event import events as rows
from qanat.operate.region_processes import NodeProcess, RegionProcesses, region_processes

REGIONS = {"eu": 2, "us": 2, "asia": 1}
QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0},
    "proxy_level": {"advertise_ms": 50.0, "stall_ms": 500.0},
    "transport": {"backoff_limit_ms": 500},
}
PATIENT = ClientSettings(patience_ms=60_000)
KEPT = 100


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    streams: dict[str, dict[str, Any]] = {f"{region}-events": {"owner": region} for region in REGIONS}
    streams["state"] = {"owner": "eu", "policy": {"by_key": True}, "segment_bytes": 64 * 1024}
    streams["log"] = {"owner": "asia", "segment_bytes": 64 * 1024}
    streams["short-lived"] = {"owner": "us", "policy": {"age_ms": 300}, "segment_bytes": 64 * 1024}
    streams["latest"] = {"owner": "us", "policy": {"keep_last": KEPT}, "segment_bytes": 64 * 1024}
    folder = tmp_path_factory.mktemp("regions")
    links = [
        {"between": ["eu", "us"], "compression": "zstd"},
        {"between": ["us", "asia"], "compression": "lz4"},
    ]
    with region_processes(REGIONS, streams, folder=folder, drills=True, links=links, **QUICK) as processes:
        yield processes


@pytest.fixture
def regions(shared: RegionProcesses) -> RegionProcesses:
    return shared


async def until(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)
    assert condition(), what


async def batches(url: str, stream: str, start: Any, upto: int) -> list[Batch]:
    """All batches from `start` to event `upto`, which must come without a gap."""
    found: list[Batch] = []
    following = start if isinstance(start, int) else 1
    async with AsyncClient(url, settings=PATIENT) as client, asyncio.timeout(60):
        listening: AsyncIterator[Batch] = client.subscribe(stream, start=start).batches()
        async with aclosing(listening):  # type: ignore[type-var]
            async for batch in listening:
                assert batch.first <= following
                found.append(batch)
                following = batch.last + 1
                if following > upto:
                    return found
    raise AssertionError("the subscription ended")


def payloads(found: list[Batch]) -> list[bytes]:
    return [payload for batch in found for payload in batch.payloads().to_pylist()]


async def publish(url: str, stream: str, what: list[bytes]) -> int:
    """The sequence number of the last."""
    async with AsyncClient(url, settings=PATIENT) as client:
        receipts = [client.publish(stream, each) for each in what]
        return [await receipt for receipt in receipts][-1]


def stream_of(node: NodeProcess, stream: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in node.status()["streams"] if each["stream"] == stream)
    return found


def source_of(regions: RegionProcesses, region: str, stream: str) -> str:
    chain = regions.chain(region)
    return str(stream_of(regions[chain["head"]], stream)["source"])


@pytest.mark.paper("S1", "S4")
def test_events_of_every_region_reach_every_region_in_order(regions: RegionProcesses) -> None:
    async def drive() -> None:
        sent = {region: [b"%s-%d" % (region.encode(), i) for i in range(300)] for region in REGIONS}
        listening = {
            (here, owner): asyncio.create_task(batches(regions.url(here), f"{owner}-events", 1, 300))
            for here in REGIONS
            for owner in REGIONS
        }
        await asyncio.gather(
            *(publish(regions.url(region), f"{region}-events", what) for region, what in sent.items())
        )
        for (_, owner), task in listening.items():
            assert payloads(await task) == sent[owner]

    asyncio.run(drive())
    head = regions.chain("us")["head"]
    status = stream_of(regions[head], "eu-events")
    assert status["owner"] == "eu" and status["counter"] == 300
    assert status["source"].split("/")[0] in ("eu", "asia")


@pytest.mark.paper("S5")
def test_a_stream_goes_round_a_cut_link_and_comes_back(regions: RegionProcesses) -> None:
    async def drive() -> None:
        regions.cut(("eu", "us"), ("us", "eu"))
        async with AsyncClient(regions.url("eu"), settings=PATIENT) as client, asyncio.timeout(60):
            while source_of(regions, "us", "eu-events").startswith("eu/"):
                await client.publish("eu-events", b"is anybody there")
        last = await publish(regions.url("eu"), "eu-events", [b"round-%d" % i for i in range(100)])
        found = await batches(regions.url("us"), "eu-events", last - 99, last)
        assert payloads(found)[-100:] == [b"round-%d" % i for i in range(100)]
        assert source_of(regions, "us", "eu-events") == "asia/proxy-1"
        regions.cut()
        async with AsyncClient(regions.url("eu"), settings=PATIENT) as client, asyncio.timeout(60):
            while not source_of(regions, "us", "eu-events").startswith("eu/"):
                await client.publish("eu-events", b"on and on")

    asyncio.run(drive())


def data_bytes(node: NodeProcess, stream: str) -> int:
    folder = node.data / "streams" / f"{stream_id(stream):016x}"
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.paper("S2", "S3", "S10")
def test_a_policy_of_the_owner_shrinks_storage_at_every_proxy(regions: RegionProcesses) -> None:
    """Late subscribers get the last event of each key, and tombstones for all others."""

    async def drive() -> None:
        rounds, keys = 600, 20
        async with AsyncClient(regions.url("eu"), settings=PATIENT) as client:
            receipts = [
                client.publish("state", b"%100d" % i, key=b"k%d" % k)
                for i in range(rounds)
                for k in range(keys)
            ]
            last = [await receipt for receipt in receipts][-1]
        assert last == rounds * keys
        proxies = [node for region in REGIONS for node in regions.replicas(region)]
        whole = last * 100
        await until(
            lambda: all(
                stream_of(node, "state")["counter"] == last and data_bytes(node, "state") < whole / 3
                for node in proxies
            ),
            "storage did not shrink everywhere",
        )
        for region in REGIONS:
            found = await batches(regions.url(region), "state", "earliest", last)
            newest = {}
            graves = 0
            for event in (event for batch in found for event in rows(batch)):
                if event.kind == Kind.TOMBSTONE:
                    graves += 1
                else:
                    newest[event.key] = event.payload
            assert graves and newest == {b"k%d" % k: b"%100d" % (rounds - 1) for k in range(keys)}

    asyncio.run(drive())


async def collected(url: str, stream: str, last: int, gone: int) -> list[Event]:
    """All that stands in a stream up to `last`, once more than `gone` events at its beginning are one
    tombstone."""
    async with asyncio.timeout(60):
        while True:
            events = [
                event for batch in await batches(url, stream, "earliest", last) for event in rows(batch)
            ]
            if events[0].kind == Kind.TOMBSTONE and events[0].range > gone:
                return events


@pytest.mark.paper("S2", "S10")
def test_a_collection_event_has_the_same_effect_in_every_region(regions: RegionProcesses) -> None:
    async def drive() -> None:
        before = await publish(regions.url("asia"), "log", [b"x" * 100] * 2000)
        async with AsyncClient(regions.url("asia"), settings=PATIENT) as client:
            last = await client.publish("log", b"gone", collects=f"UPTO {before}")
        for region in REGIONS:
            events = await collected(regions.url(region), "log", last, before // 2)
            assert events[-1].kind == Kind.GC and events[-1].payload == b"gone"
            assert sum(event.range for event in events) == last

    asyncio.run(drive())


def test_a_link_with_a_codec_carries_less(regions: RegionProcesses) -> None:
    """Both ways into us have one: straight from eu, and by asia."""

    def into_us() -> int:
        links = regions["links"].status()["links"].values()
        return sum(link["forwarded_bytes"] for link in links if "us" in (link["from"], link["to"]))

    async def drive() -> None:
        before = into_us()
        last = await publish(regions.url("eu"), "eu-events", [bytes(4000)] * 1000)
        await batches(regions.url("us"), "eu-events", last - 999, last)
        assert into_us() - before < 1_000_000

    asyncio.run(drive())


@pytest.mark.paper("S3", "S10")
def test_age_collects_a_silent_stream_in_every_region(regions: RegionProcesses) -> None:
    """The owner's head says so in the stream itself, once, and every proxy does so."""

    async def drive() -> None:
        before = await publish(regions.url("us"), "short-lived", [b"x" * 100] * 2000)
        for region in REGIONS:
            events = await collected(regions.url(region), "short-lived", before + 1, before // 2)
            assert events[-1].kind == Kind.GC and events[-1].attributes == {"@gc": "older than 300ms"}
            assert sum(event.range for event in events) == before + 1

    asyncio.run(drive())


@pytest.mark.paper("S3", "S10")
def test_the_last_events_are_kept_in_every_region_and_those_before_collected(
    regions: RegionProcesses,
) -> None:
    async def drive() -> None:
        sent = [b"%100d" % number for number in range(1, 2001)]
        await publish(regions.url("us"), "latest", sent[:-KEPT])
        last = await publish(
            regions.url("us"), "latest", sent[-KEPT:]
        )  # in another segment: the newest is left as it is
        for region in REGIONS:
            events = await collected(regions.url(region), "latest", last, last // 2)
            assert [event.payload for event in events[-KEPT:]] == sent[-KEPT:]
            assert events[0].range <= last - KEPT
            assert sum(event.range for event in events) == last

    asyncio.run(drive())

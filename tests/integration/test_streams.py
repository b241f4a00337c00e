"""Publishing and subscribing through a real server over real sockets: what comes back, in which order, from
where."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.streaming import take
from tests.waiting import run

from qanat.client import AsyncClient, Kind, RequestRefused
from qanat.events.errors import LocalError


@pytest.mark.paper("S1")
@pytest.mark.paper("S11")
@pytest.mark.parametrize("mode", ["always", "interval", "memory"])
def test_events_arrive_in_the_order_of_their_publishing(serving: Any, mode: str) -> None:
    async def work() -> None:
        async with serving(f"log.mode={mode}") as server, AsyncClient(server.url) as client:
            live = await client.subscribe("s").confirmed()
            receipts = [client.publish("s", b"%d" % i) for i in range(100)]
            numbers = [await receipt for receipt in receipts]
            assert numbers == list(range(1, 101))
            if mode == "always":
                assert server.registry.get("s").log.durable == 100
            assert await client.publish_many("s", [b"x"] * 1000) == (101, 1100)
            for subscription in (live, client.subscribe("s", start="earliest")):
                events = await take(subscription, 1100)
                assert [event.seq for event in events] == list(range(1, 1101))
                assert [event.payload for event in events[:100]] == [b"%d" % i for i in range(100)]

    run(work())


def test_keys_times_and_attributes_come_back(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            before = datetime.now(UTC)
            await client.publish(
                "s", b"p", key=b"k", attributes={"n": 5, "t": "x", "f": 1.5, "b": True, "raw": b"\0"}
            )
            (event,) = await take(client.subscribe("s", start=1), 1)
            assert (event.key, event.kind, event.range) == (b"k", Kind.DATA, 1)
            assert event.attributes == {"n": 5, "t": "x", "f": 1.5, "b": True, "raw": b"\0"}
            assert event.time_us >= before.timestamp() * 1e6 - 1

    run(work())


@pytest.mark.parametrize(
    "columns",
    [
        [b"a", b"bb", b"ccc"],
        pa.array([b"a", b"bb", b"ccc"]),
        pa.chunked_array([["a"], ["bb", "ccc"]]),
        pa.table({"payload": [b"a", b"bb", b"ccc"], "key": ["1", "2", "3"], "n": [1, None, 3]}),
        pa.record_batch({"payload": [b"a", b"bb", b"ccc"]}),
    ],
    ids=["list", "array", "chunked", "table", "record batch"],
)
def test_many_events_in_every_form(serving: Any, columns: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            assert await client.publish_many("s", columns) == (1, 3)
            events = await take(client.subscribe("s", start=1), 3)
            assert [event.payload for event in events] == [b"a", b"bb", b"ccc"]
            if isinstance(columns, pa.Table):
                assert [event.key for event in events] == [b"1", b"2", b"3"]
                assert [event.attributes for event in events] == [{"n": 1}, {}, {"n": 3}]

    run(work())


def test_where_to_start(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"old"] * 10)
            await asyncio.sleep(0.002)  # so that the time between the two is neither's
            between = datetime.now(UTC)
            await asyncio.sleep(0.002)
            await client.publish_many("s", [b"new"] * 10)
            firsts = {}
            for start in ("earliest", 7, between, 21):
                subscription = await client.subscribe("s", start=start).confirmed()
                firsts[start] = subscription.next
            latest = await client.subscribe("s").confirmed()
            assert firsts == {"earliest": 1, 7: 7, between: 11, 21: 21}
            assert latest.next == 21
            assert (await take(client.subscribe("s", start=between), 1))[0].payload == b"new"
            await client.publish("s", b"newest")
            assert (await take(latest, 1))[0].payload == b"newest"
            with pytest.raises(RequestRefused, match="goes up to 21"):
                await client.subscribe("s", start=500).confirmed()
            with pytest.raises(LocalError, match="zone"):
                client.subscribe("s", start=datetime(2026, 1, 1))  # noqa: DTZ001
            with pytest.raises(LocalError, match="begin at 1"):
                client.subscribe("s", start=0)

    run(work())


def test_a_named_source_goes_on_where_it_was(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server:
            async with AsyncClient(server.url, name="importer") as client:
                await client.publish_many("s", [b"a", b"b"])
            async with AsyncClient(server.url, name="importer") as client:
                assert await client.stored("s") == 2
                assert await client.publish("s", b"c") == 3

    run(work())


def test_streams_and_their_configuration_survive_a_restart(serving: Any, tmp_path: Path) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url, durability="interval") as client:
            await client.publish_many("one/two three", [b"x"] * 10)
        async with serving() as server, AsyncClient(server.url) as client:
            (stream,) = await client.ask("streams")
            assert (stream["stream"], stream["next"], stream["durability"]) == (
                "one/two three",
                11,
                "interval",
            )
        damaged = [next((tmp_path / "data" / "streams").glob("*/stream.json"))]
        damaged[0].write_text(damaged[0].read_text().replace('"mode":"interval"', '"mode":"always"'))
        async with serving() as server, AsyncClient(server.url) as client:  # its twin has what it was
            (stream,) = await client.ask("streams")
            assert stream["durability"] == "interval"
        damaged += (tmp_path / "data" / "streams.synced").glob("*.json")
        for card in damaged:
            card.write_text(card.read_text().replace('"mode":"interval"', '"mode":"always"'))
        with pytest.raises(
            LocalError,
            match=r"stream.json is damaged .*: so is its twin .*; restore one of them from a backup",
        ):
            async with serving():
                pass

    run(work())


def test_one_folder_serves_one_server(serving: Any) -> None:
    async def work() -> None:
        async with serving():
            with pytest.raises(LocalError, match="in use by another server"):
                async with serving():
                    pass

    run(work())


@pytest.mark.paper("S2")
def test_a_gc_event_travels_with_its_predicate(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"a", b"b"])
            await client.publish("s", b"g", collects="UPTO 2")
            events = await take(client.subscribe("s", start="earliest"), 3)
            assert events[-1].kind == Kind.GC
            assert events[-1].attributes == {"@gc": "upto 2"}
            with pytest.raises(LocalError, match="filter error"):
                client.publish("s", b"g", collects="upto nowhere")

    run(work())


def test_unknown_questions_are_refused(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            with pytest.raises(RequestRefused, match="ask streams"):
                await client.ask("meaning")

    run(work())


def test_clients_are_told_where_to_come(serving: Any) -> None:
    async def work() -> None:
        async with serving("node.advertise=10.0.0.7:7000") as server, AsyncClient(server.url) as client:
            place = await client.ask("place")
            assert place["replicas"] == {place["head"]: "qanat://10.0.0.7:7000"}

    run(work())

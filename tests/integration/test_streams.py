"""Publishing and subscribing through a real server over real sockets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.client import (
    AsyncClient,
    ClientSettings,
    Congested,
    Event,
    EventsLost,
    Kind,
    PublishRefused,
    RequestRefused,
    Subscription,
    Unavailable,
)
from qanat.events.errors import LocalError
from qanat.events.event import events as rows
from qanat.log.errors import DiskFull
from qanat.runtime.loop import run as run_loop
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.streams import PUBLISH, Publish, encode_control


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    run_loop(bounded)


async def take(subscription: Subscription, count: int) -> list[Event]:
    events: list[Event] = []
    iterator = aiter(subscription)
    while len(events) < count:
        events.append(await anext(iterator))
    return events


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


def test_what_cannot_be_published_is_refused_before_it_leaves(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            with pytest.raises(LocalError, match="column 'payload'"):
                await client.publish_many("s", pa.table({"x": [1]}))
            with pytest.raises(LocalError, match="list of bytes"):
                await client.publish_many("s", b"abc")
            with pytest.raises(LocalError, match="1 to 255"):
                client.publish("x" * 300, b"")
            with pytest.raises(LocalError, match="must be bytes"):
                await client.publish("s", 5)  # type: ignore[arg-type]
            values: list[Any] = [0, 1, 2, object(), 4, 5]
            bad = [client.publish("s", b"%d" % i, attributes={"n": value}) for i, value in enumerate(values)]
            with pytest.raises(LocalError, match="not str, int"):
                await bad[3]
            assert [await bad[i] for i in (0, 1, 2, 4, 5)] == [1, 2, 3, 4, 5]
            assert await client.publish("s", b"still works") == 6
            assert await client.publish_many("s", []) == (0, 0)

    run(work())


def test_where_to_start(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"old"] * 10)
            await asyncio.sleep(0.002)
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


@pytest.mark.paper("W8")
@pytest.mark.parametrize("mode", ["always", "interval"])
def test_the_server_applies_the_filter_to_old_and_new_events(serving: Any, mode: str) -> None:
    async def work() -> None:
        async with serving(f"log.mode={mode}") as server, AsyncClient(server.url) as client:
            first = [{"n": i, "even": i % 2 == 0} for i in range(200)]
            await client.publish_many("s", [b"%d" % i for i in range(200)], attributes=first)
            filters = {
                "n in 10..19": range(10, 20),
                "even = true and n in 100..": range(100, 300, 2),
                "not exists n": [],
            }
            subscriptions = {where: client.subscribe("s", start="earliest", where=where) for where in filters}
            for subscription in subscriptions.values():
                await subscription.confirmed()
            more = [{"n": i, "even": i % 2 == 0} for i in range(200, 300)]
            await client.publish_many("s", [b"%d" % i for i in range(200, 300)], attributes=more)
            await client.publish_many("s", [b"plain"])
            for where, expected in filters.items():
                events = await take(subscriptions[where], len(expected))
                assert [event.payload for event in events] == [b"%d" % i for i in expected]
            (plain,) = await take(subscriptions["not exists n"], 1)
            assert (plain.payload, plain.seq) == (b"plain", 301)
            assert subscriptions["not exists n"].next == 302

    run(work())


def test_many_filtered_subscribers_share_one_match(serving: Any) -> None:
    async def work() -> None:
        async with serving("log.mode=interval") as server, AsyncClient(server.url) as client:
            wheres = [f"symbol = 's{i % 100}' and price in {i}..{i + 500}" for i in range(300)]
            subscriptions = [await client.subscribe("s", where=where).confirmed() for where in wheres]
            quotes: Any = [{"symbol": f"s{i % 100}", "price": i} for i in range(1000)]
            await client.publish_many("s", [b"%d" % i for i in range(1000)], attributes=quotes)
            for i, subscription in enumerate(subscriptions):
                expected = [j for j in range(1000) if j % 100 == i % 100 and i <= j <= i + 500]
                assert [int(event.payload) for event in await take(subscription, len(expected))] == expected

    run(work())


def test_a_filtered_subscriber_hears_of_silence(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            subscription = await client.subscribe("s", where="exists nothing").confirmed()
            await client.publish_many("s", [b"x"] * 50)
            waiting = asyncio.create_task(subscription.take())
            async with asyncio.timeout(20):
                while subscription.next != 51:
                    await asyncio.sleep(0.01)
            waiting.cancel()

    run(work())


def test_a_bad_filter_says_where(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            with pytest.raises(RequestRefused, match="column 7") as caught:
                await client.subscribe("s", where="a = 1 %").confirmed()
            assert caught.value.code == "filter_error"
            with pytest.raises(RequestRefused, match="GC event"):
                await client.subscribe("s", where="same key").confirmed()
            assert await client.publish("s", b"fine") == 1

    run(work())


@pytest.mark.paper("S1")
def test_a_subscriber_behind_the_retained_range_is_told_the_exact_range(serving: Any, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[stream.short]\nmode = "always"\nretain_bytes = 131072\nsegment_bytes = 65536\n')

    async def work() -> None:
        async with serving("streams.collect_ms=20", file=file) as server, AsyncClient(server.url) as client:
            slow = await client.subscribe("short", start="earliest").confirmed()
            for i in range(40):
                await client.publish_many("short", [b"%04d" % i + bytes(996)] * 10)
            log = server.registry.get("short").log
            async with asyncio.timeout(20):
                while log.first == 1:
                    await asyncio.sleep(0.01)
            del slow
            late = client.subscribe("short", start=1)
            with pytest.raises(EventsLost) as caught:
                await late.take()
            assert caught.value.first == 1
            rest = await take(late, 400 - caught.value.last)
            assert [event.seq for event in rest] == list(range(caught.value.last + 1, 401))

    run(work())


def test_a_stalled_subscriber_slows_nobody_and_loses_nothing(serving: Any) -> None:
    """One subscriber takes nothing while 64 MB pass to the others; then it catches up from the log."""
    settings = ClientSettings(subscription_bytes=256 * 1024)

    async def work() -> None:
        async with serving("log.mode=interval") as server:
            clients = [AsyncClient(server.url, settings=settings) for _ in range(4)]
            stalled, *fast = [await (await c.ready()).subscribe("s").confirmed() for c in clients]
            # Another subscription on the stalled one's own connection must not be held up either.
            fast.append(await clients[0].subscribe("s").confirmed())
            column = pa.Array.from_buffers(
                pa.binary(1000), 64_000, [None, pa.py_buffer(np.zeros(64_000_000, np.uint8))]
            )

            async def count(subscription: Subscription) -> int:
                seen = 0
                while seen < 64_000:
                    seen += sum(batch.count for batch in await subscription.take())
                return seen

            async with AsyncClient(server.url) as producer:
                counting = [asyncio.create_task(count(subscription)) for subscription in fast]
                await producer.publish_many("s", column)
                assert await asyncio.gather(*counting) == [64_000] * 4
            hosted = server.registry.get("s")
            assert hosted.largest_lag() > 0
            assert max(connection.queued_bytes for connection in server.listener.connections) < 4 << 20
            assert await count(stalled) == 64_000
            for client in clients:
                await client.close()

    run(work())


@pytest.mark.paper("S1")
def test_broken_connections_lose_and_duplicate_nothing(serving: Any) -> None:
    """Both ends' connections are cut again and again while events flow."""

    async def work() -> None:
        async with (
            serving("log.mode=always") as server,
            AsyncClient(server.url) as producer,
            AsyncClient(server.url) as reader,
        ):
            subscription = await reader.subscribe("s").confirmed()
            total = 20_000

            async def publish() -> None:
                for i in range(0, total, 100):
                    await producer.publish_many("s", [b"%d" % j for j in range(i, i + 100)])

            async def cut() -> None:
                while True:
                    await asyncio.sleep(0.02)
                    for connection in list(server.listener.connections):
                        connection.abort("reset", "cut by the test")

            cutting = asyncio.create_task(cut())
            publishing = asyncio.create_task(publish())
            events = await take(subscription, total)
            cutting.cancel()
            await publishing
            assert [int(event.payload) for event in events] == list(range(total))
            assert [event.seq for event in events] == list(range(1, total + 1))

    run(work())


def test_a_full_disk_refuses_definitely_and_passes(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish("s", b"before")
            log = server.registry.get("s").log
            append, full = log.append, True

            def refuse(batch: Any) -> Any:
                if full:
                    raise DiskFull("no space left")
                return append(batch)

            monkeypatch.setattr(log, "append", refuse)
            receipts = []
            for i in range(3):
                receipts.append(client.publish("s", b"lost %d" % i))
                await asyncio.sleep(0)
            for receipt in receipts:
                with pytest.raises(PublishRefused) as caught:
                    await receipt
                assert (caught.value.code, caught.value.definite) == ("disk_full", True)
            full = False
            assert await client.publish("s", b"after") == 2
            events = await take(client.subscribe("s", start=1), 2)
            assert [event.payload for event in events] == [b"before", b"after"]

    run(work())


@pytest.mark.parametrize("first_refused", [1, 2, 3])
def test_a_refusal_keeps_its_place_among_the_answers(
    serving: Any, monkeypatch: pytest.MonkeyPatch, first_refused: int
) -> None:
    """Those before it wait for the disk; the refusal must not overtake them, nor the ones behind it get lost."""

    async def work() -> None:
        async with serving("log.mode=always") as server, AsyncClient(server.url) as client:
            await client.publish("s", b"0")
            log = server.registry.get("s").log
            append, calls = log.append, itertools.count()

            def refuse_some(batch: Any) -> Any:
                if next(calls) in (first_refused, first_refused + 1):
                    raise DiskFull("no space left")
                return append(batch)

            monkeypatch.setattr(log, "append", refuse_some)
            sent = [await client.send_many("s", [b"%d" % i]) for i in range(1, 9)]
            outcomes = await asyncio.gather(*(_outcome(receipts) for receipts in sent))
            stored = [b"%d" % (i + 1) for i, outcome in enumerate(outcomes) if outcome]
            assert 1 <= outcomes.count(False) <= 2
            events = await take(client.subscribe("s", start=1), len(stored) + 1)
            assert [event.payload for event in events] == [b"0", *stored]

    run(work())


async def _outcome(receipts: Any) -> bool:
    try:
        await receipts
    except PublishRefused:
        return False
    return True


def test_one_refused_batch_does_not_take_the_ones_behind_it_along(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish("s", b"0")
            log = server.registry.get("s").log
            append, refusals = log.append, [True]

            def refuse_once(batch: Any) -> Any:
                if refusals:
                    refusals.pop()
                    raise DiskFull("no space left")
                return append(batch)

            monkeypatch.setattr(log, "append", refuse_once)
            sent = [await client.send_many("s", [b"%d" % i]) for i in range(1, 6)]
            with pytest.raises(PublishRefused):
                await sent[0]
            assert [await receipts for receipts in sent[1:]] == [(i, i) for i in range(2, 6)]
            events = await take(client.subscribe("s", start=1), 5)
            assert [event.payload for event in events] == [b"0", b"2", b"3", b"4", b"5"]

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


def test_malformed_batches_are_refused_and_cost_nothing_else(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish("s", b"good")
            assert client._head.link is not None
            connection = client._head.link.connection
            connection.send(PUBLISH, STREAMS_CHANNEL, encode_control(Publish(999_999)), (b"garbage" * 20,))
            connection.send(PUBLISH, STREAMS_CHANNEL, encode_control(Publish(999_998)), ())
            assert await client.publish("s", b"still good") == 2
            assert server.service.refused_batches == 2
            assert (await client.ask("streams"))[0]["next"] == 3

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
        card = next((tmp_path / "data" / "streams").glob("*/stream.json"))
        card.write_text(card.read_text().replace('"mode":"interval"', '"mode":"always"'))
        with pytest.raises(LocalError, match="checksum"):
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


@pytest.mark.paper("S10")
def test_a_key_policy_leaves_the_last_event_of_each_key(serving: Any, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[stream.cache]\nsegment_bytes = 65536\n[stream.cache.policy]\nby_key = true\n")

    async def work() -> None:
        async with serving("streams.collect_ms=20", file=file) as server, AsyncClient(server.url) as client:
            for i in range(60):
                await client.publish_many(
                    "cache", [b"%d" % i + bytes(100)] * 50, keys=[b"k%d" % k for k in range(50)]
                )
            log = server.registry.get("cache").log

            async def graves() -> list[Event]:
                subscription = await client.subscribe("cache", start="earliest").confirmed()
                events = []
                while subscription.next < 3001:
                    for batch in await subscription.take():
                        events += list(rows(batch))
                await subscription.close()
                return events

            async with asyncio.timeout(30):
                while not any(event.kind == Kind.TOMBSTONE for event in await graves()):
                    await asyncio.sleep(0.05)
            events = await graves()
            assert log.next == 3001
            covered = [seq for event in events for seq in range(event.seq - event.range + 1, event.seq + 1)]
            assert covered == list(range(1, 3001))
            assert [event.key for event in events[-50:]] == [b"k%d" % k for k in range(50)]

    run(work())


@pytest.mark.paper("S10")
def test_age_collects_a_stream_that_fell_silent(serving: Any, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[stream.short-lived.policy]\nage_ms = 100\n")

    async def work() -> None:
        async with serving("streams.collect_ms=20", file=file) as server, AsyncClient(server.url) as client:
            live = await client.subscribe("short-lived").confirmed()
            await client.publish_many("short-lived", [b"x"] * 10)
            events = await take(live, 11)
            assert [event.kind for event in events] == [Kind.DATA] * 10 + [Kind.GC]
            assert events[-1].attributes == {"@gc": "older than 100ms"}
            log = server.registry.get("short-lived").log
            async with asyncio.timeout(20):
                while log.stats().rows - log.stats().dead_rows > 1:
                    await asyncio.sleep(0.01)
            # One such event is enough: the stream does not fill up with them.
            await asyncio.sleep(0.3)
            assert log.next == 12

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


def test_no_server_is_said_at_once() -> None:
    async def work() -> None:
        with pytest.raises(Unavailable, match="is the server running"):
            await AsyncClient("qanat://127.0.0.1:1").ready()

    run(work())


def test_patience_ends(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server:
            client = AsyncClient(server.url, settings=ClientSettings(patience_ms=200))
            await client.ready()
        receipt = client.publish("s", b"nobody hears this")
        with pytest.raises(Unavailable) as caught:
            await receipt
        assert not caught.value.definite
        await client.close()

    run(work())


def test_a_publisher_that_never_waits_is_stopped(serving: Any) -> None:
    async def work() -> None:
        async with (
            serving() as server,
            AsyncClient(server.url, settings=ClientSettings(window_bytes=10_000)) as client,
        ):
            receipts = []
            with pytest.raises(Congested, match="room"):
                for _ in range(10_000):
                    receipts.append(client.publish("s", bytes(1000)))
            assert 80 <= len(receipts) <= 90
            await client.room("s")
            assert await client.publish("s", b"") == len(receipts) + 1

    run(work())


def test_a_server_has_a_limit_of_streams(serving: Any) -> None:
    async def work() -> None:
        async with serving("streams.max_streams=2") as server, AsyncClient(server.url) as client:
            await client.publish("a", b"")
            await client.publish("b", b"")
            with pytest.raises(PublishRefused, match="max_streams"):
                await client.publish("c", b"")
            assert await client.publish("a", b"") == 2

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


def test_a_server_that_is_stopping_sends_clients_on(serving: Any) -> None:
    """They come back until somebody takes what they have; here it is the same server."""

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client, asyncio.timeout(30):
            check, asked = server.service._check_running, []

            def count() -> None:
                asked.append(1)
                check()

            server.service._check_running = count
            server.service.stopping = True
            receipt = client.publish("s", b"x")
            subscription = client.subscribe("s", start="earliest")
            while len(asked) < 6:
                await asyncio.sleep(0.01)
            server.service.stopping = False
            assert await receipt == 1
            assert [event.payload for event in await take(subscription, 1)] == [b"x"]

    run(work())

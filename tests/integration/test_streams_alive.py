"""Readers who want only what is alive: what the policy and GC events collect is left out as soon as they are
stored, removed or not."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from typing import Any, Literal

import pytest
from tests.integration.streaming import take
from tests.waiting import run

from qanat.client import AsyncClient, Client, Event, Kind, RequestRefused
from qanat.client.subscription import Subscription
from qanat.events.errors import LocalError
from qanat.events.event import events as rows
from qanat.log.outlook import outlook
from qanat.serving import alive_reading as living_reading
from qanat.serving import stream_service
from qanat.wire.streams import Subscribed

NEVER = "streams.collect_ms=3600000"
"""Nothing is collected in the background."""


async def upto_end(subscription: Subscription) -> list[Event]:
    found: list[Event] = []
    await subscription.confirmed()
    while subscription.next < subscription.end:
        for batch in await subscription.take():
            found += rows(batch)
    return found


async def alive(client: AsyncClient, stream: str, **options: Any) -> list[Event]:
    async with client.subscribe(stream, **{"start": "earliest", "alive": True, **options}) as subscription:
        await client.publish(stream, b"end", attributes={"colour": "red"})
        return await take_upto(subscription, b"end")


async def take_upto(subscription: Subscription, payload: bytes) -> list[Event]:
    found: list[Event] = []
    while not found or found[-1].payload != payload:
        for batch in await subscription.take():
            found += rows(batch)
    return found[:-1]


@pytest.mark.parametrize("mode", ["always", "interval", "memory"])
def test_what_the_policy_collects_is_left_out(
    serving: Any, mode: Literal["always", "interval", "memory"]
) -> None:
    async def work() -> None:
        async with serving(NEVER) as server, AsyncClient(server.url) as client:
            await client.create_stream("cache", mode=mode, policy={"by_key": True})
            await client.publish_many("cache", [b"x"] * 1000, keys=[b"%d" % (i % 10) for i in range(1000)])
            assert len(await upto_end(client.subscribe("cache", start=1))) == 1000
            found = await alive(client, "cache")
            assert [event.seq for event in found] == list(range(991, 1001))

    run(work())


def test_what_gc_events_collect_is_left_out_at_once_whatever_they_match_by(serving: Any) -> None:
    async def work() -> None:
        async with serving(NEVER) as server, AsyncClient(server.url) as client:
            for i in range(200):
                await client.publish(
                    "s", b"%d" % i, key=b"%d" % (i % 50), attributes={"colour": "red" if i % 3 else "blue"}
                )
            for predicate, key in (("upto 20", b""), ("same key", b"30"), ("colour = blue", b"")):
                await client.publish("s", b"gc", key=key, collects=predicate)
            expected = [i + 1 for i in range(20, 200) if i % 50 != 30 and i % 3]
            found = await alive(client, "s")
            assert [event.seq for event in found if event.kind is Kind.DATA] == expected
            assert [event.payload for event in found if event.kind is Kind.GC] == [b"gc"] * 3
            filtered = await alive(client, "s", where="colour = red", start=100)
            reds = [event.seq for event in filtered if event.kind is Kind.DATA and event.seq <= 200]
            assert reds == [seq for seq in expected if seq >= 100]

    run(work())


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_a_simple_program_finds_alive(serving: Any, seed: int) -> None:
    """Beside collection in the background, which rewrites as it likes."""

    async def work() -> None:
        random_ = random.Random(seed)
        flags = "log.segment_bytes=65536", f"streams.collect_ms={random_.choice((10, 60, 3_600_000))}"
        async with serving(*flags) as server, AsyncClient(server.url) as client:
            await client.create_stream("s", policy={"keep_last": 3_000}, mode="interval")
            for _ in range(30):
                keys = [b"%d" % random_.randint(0, 300) for _ in range(random_.randint(1, 400))]
                await client.publish_many("s", [b"x" * random_.randint(1, 100) for _ in keys], keys=keys)
                for _ in range(random_.randint(0, 5)):
                    key = b"%d" % random_.randint(0, 300)
                    await client.publish(
                        "s",
                        b"gc",
                        key=key,
                        collects=random_.choice(
                            ("same key", f"@key = '{random_.randint(0, 300)}'", "keep last 2000")
                        ),
                    )
            found = await alive(client, "s")
            log = server.registry.get("s").log
            while log.collect(everything=True).more:
                pass
            stays = [
                event.seq
                for event in await upto_end(client.subscribe("s", start=1))
                if event.kind is not Kind.TOMBSTONE
            ]
            last = found[-1].seq
            assert [event.seq for event in found if event.seq > log.next - 3_000] == [
                seq for seq in stays if seq <= last
            ]

    run(work())


def test_what_is_left_out_for_an_event_that_may_not_be_read_yet_waits_for_it(serving: Any) -> None:
    """In mode `always` an event that is not on disk may be gone after a power cut: then it is no reason."""

    async def work() -> None:
        async with serving(NEVER) as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"x"] * 10, keys=[b"k"] * 10)
            log, released = server.registry.get("s").log, asyncio.Event()
            loop = asyncio.get_running_loop()
            sync = log.sync

            def late() -> int:
                asyncio.run_coroutine_threadsafe(released.wait(), loop).result()
                return sync()

            log.sync = late
            gc = client.publish("s", b"gc", key=b"k", collects="same key")
            while log.next < 12:
                await asyncio.sleep(0)
            subscription = await client.subscribe("s", start=1, alive=True).confirmed()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await subscription.take()
            assert subscription.next == 1, "nothing was left out so far"
            released.set()
            await gc
            assert [event.payload for event in await take(subscription, 1)] == [b"gc"]

    run(work())


def test_what_comes_after_the_beginning_comes_as_it_is_and_a_broken_connection_changes_nothing(
    serving: Any,
) -> None:
    async def work() -> None:
        async with (
            serving(NEVER) as server,
            AsyncClient(server.url) as client,
            AsyncClient(server.url) as writer,
        ):
            await client.create_stream("s", policy={"keep_last": 1})
            await writer.publish_many("s", [b"old"] * 100)
            async with client.subscribe("s", start="earliest", alive=True) as subscription:
                assert [event.seq for event in await take(subscription, 1)] == [100]
                await writer.publish_many("s", [b"new"] * 50)
                assert [event.seq for event in await take(subscription, 50)] == list(range(101, 151))
                for connection in list(server.driver.listener.connections):
                    connection.close()
                await writer.publish("s", b"last")
                found = await take_upto(subscription, b"last")
                assert [event.seq for event in found] == []
                assert subscription.next == 152

    run(work())


def test_many_who_want_it_are_served_and_those_who_leave_are_forgotten(serving: Any) -> None:
    async def work() -> None:
        async with serving(NEVER) as server, AsyncClient(server.url) as client:
            await client.publish_many(
                "s", [b"x" * 1000] * 5_000, keys=[b"%d" % (i % 2) for i in range(5_000)]
            )
            await client.publish("s", b"gc", collects="@key = '1'")
            subscriptions = [client.subscribe("s", start=1, alive=True) for _ in range(30)]
            for leaving in subscriptions[20:]:
                await leaving.close()
            for subscription in subscriptions[:20]:
                found = await take(subscription, 2_501)
                assert [event.seq for event in found] == [*range(1, 5_001, 2), 5_001]
            living = server.registry.get("s").living
            assert living.waiting == []
            assert living._held == {}
            assert outlook(server.registry.get("s").log).kept_events == 5_001, "nothing was rewritten for it"

    run(work())


def test_a_removed_stream_ends_who_waits_too(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(NEVER) as server, AsyncClient(server.url) as client:
            await client.publish("s", b"1")
            monkeypatch.setattr(living_reading, "find_dead", lambda *_: 0)  # never done
            subscription = await client.subscribe("s", start=1, alive=True).confirmed()
            await client.remove_stream("s")
            with pytest.raises(Exception, match="'s' was removed"):
                await subscription.take()

    run(work())


def test_where_it_cannot_be_had_it_is_refused(
    serving: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url, record=tmp_path) as client:
            for wrong in ({"via": "mesh"}, {}, {"alive": 5}):
                with pytest.raises(LocalError):
                    client.subscribe("s", **{"alive": True, **wrong})  # type: ignore[arg-type]
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish("s", b"1")
            monkeypatch.setattr(stream_service, "Subscribed", lambda *words: Subscribed(*words[:4]))
            with pytest.raises(RequestRefused, match="too old to leave out what is dead"):
                await client.subscribe("s", start=1, alive=True).confirmed()

    run(work())


def qanat(url: str, *words: str, typed: str = "") -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "qanat", *words, "--url", url],
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
def test_pub_and_sub_say_why_collected_events_still_come(server_process: Any) -> None:
    url = server_process.start().url
    with Client(url) as client:
        client.publish_many("prices", [b"%d" % i for i in range(10)])
    _, said = qanat(url, "pub", "prices", "--collects", "keep last 3", typed="bye\n")
    assert "the collected events become tombstones in the background" in said
    shown, said = qanat(url, "sub", "prices", "--from", "earliest", "--until-end")
    assert len(shown.splitlines()) == 11
    assert "8 events of prices are collected by GC events or the policy: readers get these until" in said
    shown, said = qanat(url, "sub", "prices", "--from", "earliest", "--until-end", "--alive")
    assert [line.split("\t")[0] for line in shown.splitlines()] == ["9", "10", "11"]
    assert said == ""

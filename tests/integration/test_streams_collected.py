"""Streams of which the server keeps a part: retention, and policies of garbage collection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integration.streaming import take
from tests.waiting import run, until

from qanat.client import AsyncClient, Event, EventsLost, Kind
from qanat.events.event import events as rows
from qanat.log.errors import DiskFull
from qanat.serving.hosted_stream import HostedStream


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
            await until(lambda: log.first > 1)
            del slow
            late = client.subscribe("short", start=1)
            with pytest.raises(EventsLost) as caught:
                await late.take()
            assert caught.value.first == 1
            rest = await take(late, 400 - caught.value.last)
            assert [event.seq for event in rest] == list(range(caught.value.last + 1, 401))

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
            await until(lambda: log.stats().rows - log.stats().dead_rows == 1)
            # One such event is enough: the stream does not fill up with them, however much time passes.
            await asyncio.sleep(0.3)
            assert log.next == 12

    run(work())


def test_a_stream_is_collected_though_nothing_can_be_published_to_it(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the event that says what is old is refused; what is dead already must go all the same,
    or room never comes."""
    file = tmp_path / "server.toml"
    file.write_text(
        "[stream.cache]\nsegment_bytes = 65536\n[stream.cache.policy]\nby_key = true\nage_ms = 100\n"
    )
    refused: list[int] = []

    def no_room(_stream: HostedStream, now_us: int) -> bool:
        refused.append(now_us)
        raise DiskFull("no space left")

    monkeypatch.setattr(HostedStream, "expire", no_room)

    async def work() -> None:
        async with serving("streams.collect_ms=20", file=file) as server, AsyncClient(server.url) as client:
            for _ in range(40):
                await client.publish_many("cache", [bytes(100)] * 50, keys=[b"k%d" % k for k in range(50)])
            log = server.registry.get("cache").log
            await until(lambda: refused and log.stats().bytes < 100_000)

    run(work())

"""Subscriptions that record what they hand over, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integration.streaming import take
from tests.waiting import run, until

from qanat.client import AsyncClient, RecordingFailed
from qanat.client import record as recording
from qanat.client.record_format import Entry
from qanat.client.record_reader import Recorded, read_record


def the_record(folder: Path) -> Recorded:
    (path,) = folder.iterdir()
    found = read_record(path)
    assert found is not None
    return found


def entries(found: Recorded) -> list[tuple[str, int, int]]:
    runs = found.runs
    names = [Entry(kind).name for kind in runs.kind.tolist()]
    return list(zip(names, runs.first.tolist(), runs.last.tolist(), strict=True))


@pytest.mark.parametrize("via", ["server", "mesh"])
def test_what_is_taken_is_recorded_with_the_collected_and_the_end(
    serving: Any, tmp_path: Path, via: Any
) -> None:
    folder = tmp_path / "records"

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"x"] * 9)
            await client.publish("s", b"", collects="upto 4")
            async with AsyncClient(server.url, name="reader", record=folder) as reader:
                subscription = reader.subscribe("s", start=3, via=via)
                assert len(await take(subscription, 8)) == 8
                await client.publish("s", b"more")
                assert len(await take(subscription, 1)) == 1
                await subscription.close()

    run(work())
    found = the_record(folder)
    heading = found.heading
    assert (heading.subscriber, heading.stream, heading.start, heading.first) == ("reader", "s", "3", 3)
    told = entries(found)
    assert told[-1] == ("END", 12, 11)
    numbers = [(name, seq) for name, first, last in told[:-1] for seq in range(first, last + 1)]
    assert numbers == [("GC" if seq == 10 else "DATA", seq) for seq in range(3, 12)]


def test_that_nothing_passed_is_recorded_too(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "COVERED_EVERY_US", 0)
    folder = tmp_path / "records"

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url, record=folder) as client:
            subscription = client.subscribe("s", start="earliest", where="exists nothing")
            waiting = asyncio.create_task(subscription.take())
            await subscription.confirmed()
            await client.publish_many("s", [b"x"] * 50)
            await until(lambda: folder.exists() and entries(the_record(folder)) == [("COVERED", 1, 50)])
            waiting.cancel()

    run(work())


def test_a_subscription_that_cannot_record_hands_nothing_over_and_ends(serving: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    async def work() -> None:
        async with (
            serving() as server,
            AsyncClient(server.url) as client,
            AsyncClient(server.url, record=blocked / "below") as reader,
        ):
            await client.publish_many("s", [b"x"] * 5)
            subscription = await reader.subscribe("s", start="earliest").confirmed()
            for _ in range(2):
                with pytest.raises(RecordingFailed, match="cannot be recorded"):
                    await subscription.take()
            await client.publish("s", b"more")

    run(work())

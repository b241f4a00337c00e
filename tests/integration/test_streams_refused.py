"""Publishes that are refused: by the client before they leave, by a full disk, at a limit; and what stands
behind them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.streaming import take
from tests.waiting import run

from qanat.client import AsyncClient, ClientSettings, Congested, PublishRefused
from qanat.events.errors import LocalError
from qanat.log.errors import DiskFull
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.streams import PUBLISH, Publish, encode_control


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
            values: list[Any] = [0, 1, 2, 1 << 70, 4, 5]
            bad = [client.publish("s", b"%d" % i, attributes={"n": value}) for i, value in enumerate(values)]
            with pytest.raises(LocalError, match="does not fit 64 bits"):
                await bad[3]
            assert [await bad[i] for i in (0, 1, 2, 4, 5)] == [1, 2, 3, 4, 5]
            assert await client.publish("s", b"still works") == 6
            assert await client.publish_many("s", []) == (0, 0)

    run(work())


def test_a_full_disk_refuses_definitely_and_passes(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish("s", b"before")
            log = server.registry.get("s").log
            append, full = log.append, True

            def refuse(batch: Any, **how: Any) -> Any:
                if full:
                    raise DiskFull("no space left")
                return append(batch, **how)

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
    """Those before it wait for the disk; the refusal must not overtake them, nor the ones behind it get
    lost."""

    async def work() -> None:
        async with serving("log.mode=always") as server, AsyncClient(server.url) as client:
            await client.publish("s", b"0")
            log = server.registry.get("s").log
            append, calls = log.append, itertools.count()

            def refuse_some(batch: Any, **how: Any) -> Any:
                if next(calls) in (first_refused, first_refused + 1):
                    raise DiskFull("no space left")
                return append(batch, **how)

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

            def refuse_once(batch: Any, **how: Any) -> Any:
                if refusals:
                    refusals.pop()
                    raise DiskFull("no space left")
                return append(batch, **how)

            monkeypatch.setattr(log, "append", refuse_once)
            sent = [await client.send_many("s", [b"%d" % i]) for i in range(1, 6)]
            with pytest.raises(PublishRefused):
                await sent[0]
            assert [await receipts for receipts in sent[1:]] == [(i, i) for i in range(2, 6)]
            events = await take(client.subscribe("s", start=1), 5)
            assert [event.payload for event in events] == [b"0", b"2", b"3", b"4", b"5"]

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

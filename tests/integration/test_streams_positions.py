"""Publishing under positions of a log that can be read again: resumed, repeated, set back, refused."""

from __future__ import annotations

import asyncio
import shutil
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings, PositionsLost, PublishRefused
from qanat.client.ahead import Ahead
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.log.errors import DiskFull


def at(*places: tuple[int, int]) -> tuple[Any, Any]:
    return np.array([s for s, _ in places], np.uint64), np.array([i for _, i in places], np.uint32)


@pytest.mark.paper("W10")
def test_a_stream_says_how_far_it_has_a_log_and_drops_what_it_has(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server:
            async with AsyncClient(server.url, name="shop") as client:
                assert await client.position("s") == Position(0, 0)
                assert await client.publish_at("s", [b"a", b"b"], at((7, 0), (7, 1))) == (1, 2)
                assert await client.publish_at("s", [b"c"], at((900, 3)), keys=[b"k"]) == (3, 3)
            async with AsyncClient(server.url, name="shop") as client:
                assert await client.position("s") == Position(900, 3)
                await client.publish_at("s", [b"b", b"c", b"d"], at((7, 1), (900, 3), (900, 4)))
                assert await client.position("s") == Position(900, 4)
            async with AsyncClient(server.url) as client:
                found = await client.subscribe("s", start="earliest").confirmed()
                events = [event async for event, _ in _first(found, 4)]
                assert [event.payload for event in events] == [b"a", b"b", b"c", b"d"]

    run(work())


async def _first(subscription: Any, count: int) -> Any:
    async for event in subscription:
        yield event, count
        count -= 1
        if not count:
            return


def test_many_events_keep_their_positions_across_batches(serving: Any) -> None:
    async def work() -> None:
        few = ClientSettings(batch_bytes=1000, window_bytes=4000)
        async with serving() as server, AsyncClient(server.url, name="shop", settings=few) as client:
            places = at(*((1 + i // 3, i % 3) for i in range(500)))
            assert await client.publish_at("s", [b"%099d" % i for i in range(500)], places) == (1, 500)
            assert await client.position("s") == Position(167, 1)

    run(work())


@pytest.mark.parametrize("idle", [False, True], ids=["publishing", "idle"])
def test_a_stream_that_was_set_back_says_from_where(serving: Any, tmp_path: Path, idle: bool) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            async with serving() as server:
                port = int(server.url.rsplit(":", 1)[1])
                client = await stack.enter_async_context(AsyncClient(server.url, name="shop"))
                await client.publish_at("s", [b"a"], at((7, 0)))
            shutil.rmtree(tmp_path / "data")
            await stack.enter_async_context(serving(f"node.listen=127.0.0.1:{port}"))
            if idle:  # it is noticed when the connection is there again, and told to whoever publishes next
                await until(lambda: client._outboxes["s"].error is not None)
            with pytest.raises(PositionsLost, match="up to 7:0 and now has it only up to 0:0") as lost:
                await client.publish_at("s", [b"b"], at((8, 0)))
            assert lost.value.position == Position(0, 0)
            assert await client.position("s") == Position(0, 0)
            await client.publish_at("s", [b"a", b"b"], at((7, 0), (8, 0)))
            assert await client.position("s") == Position(8, 0)
            await client.close()

    run(work())


def test_nothing_is_stored_behind_what_was_refused(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        few = ClientSettings(batch_bytes=100)
        async with serving() as server, AsyncClient(server.url, name="shop", settings=few) as client:
            await client.publish_at("s", [b"a"], at((1, 0)))
            log = server.registry.streams["s"].log
            append, left = log.append, [1]

            def full_once(batch: Any, **how: Any) -> Any:
                if left[0]:
                    left[0] -= 1
                    raise DiskFull("the disk is full")
                return append(batch, **how)

            monkeypatch.setattr(log, "append", full_once)
            with pytest.raises(PublishRefused, match="full"):
                await client.publish_at("s", [bytes(90)] * 5, at(*((2, i) for i in range(5))))
            assert await client.position("s") == Position(1, 0)
            await client.publish_at("s", [bytes(90)] * 5, at(*((2, i) for i in range(5))))
            assert await client.position("s") == Position(2, 4)

    run(work())


def test_who_publishes_ahead_of_the_answers_stores_nothing_behind_what_was_refused(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches are at the server together, and the refusal of the first reaches the client when the others
    are stored, or not."""

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url, name="shop") as client:
            ahead = Ahead(client, "s")
            await ahead.stored(await ahead.put([b"a"], at((1, 0))))
            log = server.registry.streams["s"].log
            append, left, came = log.append, [1], []

            def full_once(batch: Any, **how: Any) -> Any:
                came.append(batch.count)
                if left[0]:
                    left[0] -= 1
                    raise DiskFull("the disk is full")
                return append(batch, **how)

            monkeypatch.setattr(log, "append", full_once)
            receipts = [await ahead.put([b"b"], at((position, 0))) for position in (2, 5, 9)]
            for receipt in receipts:
                with pytest.raises(PublishRefused):
                    await ahead.stored(receipt)
            with pytest.raises(PublishRefused, match="full"):
                await ahead.put([b"c"], at((12, 0)))
            assert came == [1]
            assert await client.position("s") == Position(1, 0)
            again = Ahead(client, "s")
            receipts = [await again.put([b"b"], at((position, 0))) for position in (2, 5, 9)]
            assert [await again.stored(receipt) for receipt in receipts] == [(2, 2), (3, 3), (4, 4)]
            assert await client.position("s") == Position(9, 0)

    run(work())


def test_two_ways_of_numbering_do_not_mix(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url, name="shop") as client:
            await client.publish_at("s", [b"a"], at((7, 0)))
            with pytest.raises(LocalError, match="another client"):
                await client.publish_many("s", [b"b"])
            await client.publish("t", b"b")
            with pytest.raises(LocalError, match="another client"):
                await client.publish_at("t", [b"a"], at((7, 0)))
            with pytest.raises(LocalError, match="1 sequences"):
                await client.publish_at("s", [b"a", b"b"], at((7, 0)))

    run(work())


def test_a_position_is_told_once_it_would_survive(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with (
            serving() as server,
            AsyncClient(server.url, name="shop") as writer,
            AsyncClient(server.url, name="shop") as reader,
        ):
            await writer.publish_at("s", [b"a"], at((1, 0)))
            log = server.registry.get("s").log
            sync, may_sync = log.sync, threading.Event()

            def slow() -> int:
                may_sync.wait(30)
                return int(sync())

            monkeypatch.setattr(log, "sync", slow)
            writing = asyncio.create_task(writer.publish_at("s", [b"b"], at((2, 0))))
            await until(lambda: log.next == 3)
            asking = asyncio.create_task(reader.position("s"))
            await until(
                lambda: len(server.registry.get("s")._unanswered) == 2
            )  # the event's and the question's
            assert not asking.done()
            may_sync.set()
            assert await asking == Position(2, 0)
            assert await writing == (2, 2)

    run(work())

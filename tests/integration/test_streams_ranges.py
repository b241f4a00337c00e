"""A part of a stream, read through a real server: where the stream is, and events from one number to
another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.waiting import run, until

from qanat.client import AsyncClient, Batch, EventsLost, NoStream

BIG = b"x" * 100_000


async def read(client: AsyncClient, first: int, last: int, where: str = "") -> list[Batch]:
    """Batches of a range, to its end."""
    found: list[Batch] = []
    subscription = client.read("s", first, last, where=where)
    while batches := await subscription.take():
        found += batches
    await subscription.close()
    return found


def seqs(batches: list[Batch]) -> list[int]:
    return [int(seq) for batch in batches for seq in batch.seqs()]


def test_a_stream_is_looked_at_without_being_made(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            with pytest.raises(NoStream):
                await client.look("s")
            assert await client.ask("streams") == []
            await client.publish_many("s", [b"%d" % i for i in range(10)])
            seen = await client.look("s")
            assert (seen.start, seen.first, seen.readable, seen.within) == (11, 1, 10, 10)
            assert (await client.look("s", "earliest")).start == 1
            assert (await client.look("s", 99)).start == 99
            assert (await client.look("s", datetime(1990, 1, 1, tzinfo=UTC))).start == 1
            assert (await client.look("s", datetime(2990, 1, 1, tzinfo=UTC))).start == 11

    run(work())


def test_a_range_ends_where_it_was_asked_to(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"%d" % i for i in range(50)])
            await client.publish_many("s", [b"%d" % i for i in range(50, 100)])
            for first, last in [(1, 100), (1, 1), (100, 100), (10, 60), (50, 51)]:
                batches = await read(client, first, last)
                assert seqs(batches) == list(range(first, last + 1))
                payloads = [p for batch in batches for p in batch.payloads().to_pylist()]
                assert payloads == [b"%d" % (i - 1) for i in range(first, last + 1)]

    run(work())


def test_a_range_is_whole_however_it_lies_in_the_log(serving: Any) -> None:
    """Larger than a window, larger than a read, over several segments, by files and by the socket."""

    async def work() -> None:
        flags = ("log.segment_bytes=1048576", "log.index_stride_bytes=4096")
        async with serving(*flags) as server, AsyncClient(server.url) as client:
            for _ in range(12):
                await client.publish_many("s", [BIG] * 10)
            assert seqs(await read(client, 5, 117)) == list(range(5, 118))
            where = "@seq in 101..109"
            assert seqs(await read(client, 5, 117, where)) == list(range(101, 110))
            within = [(await client.look("s", 11, size)).within for size in (1, 500_000, 1_100_000, 1 << 40)]
            assert within[0] >= 11 and within == sorted(within) and within[-1] == 120
            assert 11 <= within[1] < 40

    run(work())


@pytest.mark.parametrize("where", ["nothing = 1", "@seq = 3", "@seq in 98.."])
def test_a_filtered_range_ends_although_nothing_more_comes(serving: Any, where: str) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"x"] * 100)
            expected = {"nothing = 1": [], "@seq = 3": [3], "@seq in 98..": [98, 99, 100]}[where]
            assert seqs(await read(client, 1, 100, where)) == expected
            assert seqs(await read(client, 1, 97, where)) == [seq for seq in expected if seq <= 97]

    run(work())


def test_a_range_that_is_not_there_yet_is_waited_for(serving: Any) -> None:
    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish_many("s", [b"x"] * 5)
            for where in ("", "@seq in 1.."):
                end = (await client.look("s")).readable
                subscription = client.read("s", end, end + 3, where=where)
                assert seqs(await subscription.take()) == [end]
                await client.publish_many("s", [b"y"] * 9)
                rest: list[Batch] = []
                while batches := await subscription.take():
                    rest += batches
                assert seqs(rest) == [end + 1, end + 2, end + 3]

    run(work())


def test_what_tells_a_stream_from_another_of_its_name(serving: Any, tmp_path: Any) -> None:
    """Across restarts, and after the events themselves were collected."""

    async def work() -> None:
        async with serving() as server, AsyncClient(server.url) as client:
            await client.publish("s", b"a", key=b"1")
            await client.publish("s", b"b", key=b"1")
            await client.publish("other", b"a", key=b"1")
            first = await client.look("s", 3)
            assert first.born_us > 0 and first.mark
            assert (await client.look("s", 2)).mark not in ("", first.mark)
            assert (await client.look("s", 1)).mark == (await client.look("s", 9)).mark == ""
            other = await client.look("other", 2)
            assert other.born_us != first.born_us
        async with serving() as server, AsyncClient(server.url) as client:
            again = await client.look("s", 3)
            assert (again.born_us, again.mark) == (first.born_us, first.mark)
            await client.publish("s", b"", collects="upto 3")
            log = server.registry.get("s").log
            log.collect(everything=True)
            later = await client.look("s", 3)
            assert (later.born_us, later.mark) == (first.born_us, "")
        async with serving() as server, AsyncClient(server.url) as client:
            assert (await client.look("s", 3)).born_us == first.born_us

    run(work())


def test_what_is_gone_from_a_range_is_told(serving: Any) -> None:
    async def work() -> None:
        flags = ("log.segment_bytes=65536", "log.retain_bytes=65536")
        async with serving(*flags) as server, AsyncClient(server.url) as client:
            for _ in range(5):
                await client.publish("s", BIG)
            log = server.registry.get("s").log
            await until(lambda: log.collect(everything=True) is not None and log.first > 1)
            kept = log.first
            subscription = client.read("s", 1, 5)
            with pytest.raises(EventsLost) as lost:
                await subscription.take()
            assert (lost.value.first, lost.value.last) == (1, kept - 1)
            found: list[Batch] = []
            while batches := await subscription.take():
                found += batches
            assert seqs(found) == list(range(kept, 6))

    run(work())

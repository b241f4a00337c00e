"""Publishers in a region whose head moves, dies or does not answer: everything is stored, once, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.client.region_events import numbered, take
from tests.waiting import run, until

from qanat.client import (
    AsyncClient,
    ClientSettings,
    NoStream,
    OwnedElsewhere,
    PublishRefused,
    RequestRefused,
    Unavailable,
)
from qanat.events.batch import Batch, decode_all


@pytest.mark.paper("S9")
def test_a_lost_head_is_found_again_and_what_was_unanswered_is_sent_there(regions: Any) -> None:
    async def work() -> None:
        async with regions(3) as region, AsyncClient(region.url) as client:
            subscription = client.subscribe("s", start="earliest")
            assert await client.publish("s", b"1") == 1
            region[1].stores = False
            receipts = []
            for i in (2, 3, 4):
                receipts.append(client.publish("s", b"%d" % i))
                await until(lambda: len(region[1].published) == len(receipts) + 1)
            region.move(head="eu/2")
            await region[1].kill()
            assert [await receipt for receipt in receipts] == [2, 3, 4]
            assert await client.publish("s", b"5") == 5
            assert await take(subscription, 5) == numbered(1, 5)
            assert [position for _, position in region[2].published] == [2, 3, 4, 5]

    run(work())


@pytest.mark.paper("S9")
@pytest.mark.parametrize("definite", [True, False])
def test_a_head_that_is_none_any_more_costs_the_publisher_nothing(regions: Any, definite: bool) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            await client.publish("s", b"1")

            def refuse(connection: Any, publish: Any, frame: Any) -> bool:
                region[1].refuse(connection, publish.request, "not_head", "no longer the head", definite)
                region.move(head="eu/2")
                return True

            region[1].on_publish = refuse
            receipts = [client.publish("s", b"%d" % i) for i in (2, 3)]
            assert [await receipt for receipt in receipts] == [2, 3]
            assert region.streams["s"].payloads() == [b"1", b"2", b"3"]

    run(work())


def test_what_the_old_head_stored_without_an_answer_is_not_stored_twice(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            await client.publish("s", b"1")

            def keep_quiet(connection: Any, publish: Any, frame: Any) -> bool:
                (batch,) = _batches(frame)
                region.streams["s"].append(batch)
                return True

            region[1].on_publish = keep_quiet
            receipt = client.publish("s", b"2")
            await until(lambda: region.streams["s"].next == 3)
            region.move(head="eu/2")
            await region[1].kill()
            assert await receipt == 0  # stored, under a number that its answer would have told
            assert await client.publish("s", b"3") == 3
            assert region.streams["s"].payloads() == [b"1", b"2", b"3"]

    run(work())


def _batches(frame: Any) -> list[Batch]:
    return list(decode_all(bytes(frame.attachment)))


@pytest.mark.paper("S9")
def test_the_first_batch_of_a_source_is_answered_before_its_second_is_sent(regions: Any) -> None:
    """The head loses the first and would take the second: a stream lets an unknown source begin anywhere."""

    async def work() -> None:
        async with regions(2) as region:
            lost = asyncio.Event()

            def lose_the_first(connection: Any, publish: Any, frame: Any) -> bool:
                if not lost.is_set():
                    lost.set()
                    return True
                return False

            region[1].on_publish = lose_the_first
            async with AsyncClient(region.url) as client:
                first = await client.send_many("s", [b"1", b"2"])
                second = await client.send_many("s", [b"3", b"4"])
                await lost.wait()
                with pytest.raises(RequestRefused):  # an answer to what was sent after them
                    await client.ask("nothing")
                assert [position for _, position in region[1].published] == [1]
                region.move(head="eu/2")
                await region[1].kill()
                assert await first == (1, 2)
                assert await second == (3, 4)
                assert region.streams["s"].payloads() == [b"1", b"2", b"3", b"4"]
                region[2].stores = False
                for i in (5, 6, 7):
                    await client.send_many("s", [b"%d" % i])
                await until(lambda: [p for _, p in region[2].published] == [1, 3, 5, 6, 7])
                region[2].stores = True
                await region[2].kill()
                await region[2].start()

    run(work())


def test_a_source_that_the_stream_knows_is_pipelined_at_once(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region:
            async with AsyncClient(region.url, name="importer") as client:
                await client.publish("s", b"1")
            async with AsyncClient(region.url, name="importer") as client:
                region[1].stores = False
                for i in (2, 3):
                    await client.send_many("s", [b"%d" % i])
                await until(lambda: [p for _, p in region[1].published] == [1, 2, 3])
                region[1].stores = True
                await region[1].kill()
                await region[1].start()

    run(work())


def test_a_stream_of_another_region_is_refused_with_its_name(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            region.owners["prices"] = "us"
            region.refusals["prices"] = ("owned_elsewhere", "prices belongs to region us; publish there")
            with pytest.raises(OwnedElsewhere, match="region us") as caught:
                await client.publish_many("prices", [b"1"])
            assert (caught.value.owner, caught.value.stream, caught.value.definite) == ("us", "prices", True)
            assert await client.publish("other", b"1") == 1

    run(work())


def test_an_unknown_stream_is_refused_until_it_is_there(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            region.refusals["s"] = ("no_stream", "add it to the deployment file")
            receipt = client.publish("s", b"1")
            with pytest.raises(NoStream, match="deployment file"):
                await receipt
            with pytest.raises(NoStream, match="deployment file"):
                client.publish("s", b"1")  # said once more, to who does not look at receipts
            with pytest.raises(NoStream, match="deployment file"):
                await client.publish_many("s", [b"1"])
            with pytest.raises(NoStream, match="deployment file"):
                await client.publish_many("s", [b"1"])
            with pytest.raises(NoStream):
                await client.subscribe("s").confirmed()
            region.refusals.clear()
            assert await client.publish("s", b"1") == 1

    run(work())


def test_what_was_sent_before_a_refusal_may_be_stored(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            await client.publish("s", b"1")
            region[1].stores = False
            flying = await client.send_many("s", [b"2"])
            await until(lambda: len(region[1].published) == 2)
            region.refusals["s"] = ("streams_full", "too many streams")
            region.move(head="eu/2")
            await region[1].kill()
            with pytest.raises(PublishRefused) as caught:
                await flying
            assert not caught.value.definite

    run(work())


def test_a_server_that_stops_is_no_reason_to_fail(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region, AsyncClient(region.url) as client:
            await client.publish("s", b"1")
            refused: list[int] = []

            def refuse_twice(connection: Any, publish: Any, frame: Any) -> bool:
                if len(refused) < 2:
                    refused.append(publish.request)
                    region[1].refuse(connection, publish.request, "stopping", "the server is stopping")
                    return True
                return False

            region[1].on_publish = refuse_twice
            assert await client.publish("s", b"2") == 2
            assert len(refused) == 2

    run(work())


def test_what_may_have_been_stored_is_asked_for_before_the_next_positions(regions: Any) -> None:
    """A refusal that is not definite: the event is there all the same, and the one behind it is another."""

    async def work() -> None:
        async with regions(1) as region, AsyncClient(region.url) as client:
            await client.publish("s", b"1")

            def store_and_refuse(connection: Any, publish: Any, frame: Any) -> bool:
                region.streams["s"].append(_batches(frame)[0])
                region[1].refuse(connection, publish.request, "sync_failed", "the disk failed", False)
                region[1].on_publish = lambda *_: False
                return True

            region[1].on_publish = store_and_refuse
            with pytest.raises(PublishRefused) as caught:
                await client.publish("s", b"2")
            assert not caught.value.definite
            assert await client.publish("s", b"3") == 3
            assert region.streams["s"].payloads() == [b"1", b"2", b"3"]

    run(work())


def test_single_events_wait_for_company_while_many_are_unanswered(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region, AsyncClient(region.url) as client:
            await client.publish("s", b"1")
            unanswered: list[Any] = []

            def keep(connection: Any, publish: Any, frame: Any) -> bool:
                unanswered.append((connection, publish, _batches(frame)[0]))
                return True

            region[1].on_publish = keep
            receipts = []
            for i in range(2, 102):
                receipts.append(client.publish("s", b"%d" % i))
                await asyncio.sleep(0)
            await until(lambda: len(unanswered) == 32)
            region[1].on_publish = lambda *_: False
            for one in unanswered:
                region[1].store(*one)
            assert [await receipt for receipt in receipts] == list(range(2, 102))
            assert [batch.count for batch in region.streams["s"].batches] == [1] * 33 + [68]

    run(work())


def test_what_was_not_yet_sent_fails_with_the_client(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region:
            client = await AsyncClient(region.url, settings=ClientSettings(patience_ms=100)).ready()
            receipts = [client.publish(stream, b"1") for stream in ("s", "t")]
            client._fail(Unavailable("gone"))
            for receipt in receipts:
                with pytest.raises(Unavailable):
                    await receipt
            with pytest.raises(Unavailable):
                client.publish("s", b"2")
            await client.close()

    run(work())


def test_a_refusal_after_a_server_came_back_with_less_stops_nobody(regions: Any) -> None:
    """What it lost is numbered anew; what stands behind a refused batch goes on from there, not from what was
    once acknowledged."""

    async def work() -> None:
        async with regions(1) as region, AsyncClient(region.url, name="shop") as client:
            for i in range(5):
                await client.publish("s", b"%d" % i)
            head = region[1]
            await head.kill()
            region.streams["s"].positions["shop"] = 3  # a power cut, without synced writes

            def refuse_once(connection: Any, publish: Any, frame: Any) -> bool:
                head.on_publish = lambda *_: False
                head.refuse(connection, publish.request, "disk_full", "no space left")
                return True

            head.on_publish = refuse_once
            head.published.clear()
            await head.start()
            with pytest.raises(PublishRefused, match="no space"):
                await client.publish("s", b"refused")
            for i in range(5, 8):
                await client.publish("s", b"%d" % i)
            assert head.published == [("shop", position) for position in (4, 4, 5, 6)]
            assert await client.stored("s") == 6
            assert region.streams["s"].payloads() == [b"%d" % i for i in range(8)]

    run(work())

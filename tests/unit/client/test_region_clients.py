"""A client in a region of replicas: it finds head and tail, and follows them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qanat.client import (
    AsyncClient,
    ClientSettings,
    DeliveryGap,
    NoStream,
    OwnedElsewhere,
    PublishRefused,
    RequestRefused,
    Subscription,
    Unavailable,
)
from qanat.client.guide import Guide
from qanat.events.errors import InvariantError
from qanat.events.event import events
from qanat.runtime.loop import run as run_loop
from qanat.wire.streams import Place


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work

    run_loop(bounded)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


async def take(subscription: Subscription, count: int) -> list[tuple[int, bytes]]:
    got: list[tuple[int, bytes]] = []
    while len(got) < count:
        for batch in await subscription.take():
            got += [(event.seq, event.payload) for event in events(batch)]
    return got


def numbered(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(first, last + 1)]


def test_a_server_that_is_both_gets_one_connection_and_no_question_first(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region:
            region[1].tells_place = False  # it answers that it does not know the question, as old servers do
            async with AsyncClient(region.url) as client:
                subscription = await client.subscribe("s").confirmed()
                assert await client.publish("s", b"1") == 1
                assert await take(subscription, 1) == numbered(1, 1)
                assert region[1].clients == 1
                assert region[1].asked == ["place"]

    run(work())


def test_requests_do_not_wait_for_the_place(regions: Any) -> None:
    async def work() -> None:
        async with regions(1) as region:
            client = AsyncClient(region.url)
            subscription = client.subscribe("s")
            region[1].tells_place = None  # it never answers
            await asyncio.gather(client.ready(), client.publish_many("s", [b"1"]))
            assert await take(subscription, 1) == numbered(1, 1)
            assert region[1].asked == ["place"]
            await client.close()

    run(work())


@pytest.mark.paper("S9")
@pytest.mark.parametrize("given", [1, 2, 3])
def test_publishes_go_to_the_head_and_subscriptions_to_the_tail(regions: Any, given: int) -> None:
    async def work() -> None:
        async with regions(3) as region, AsyncClient(region[given].url) as client:
            subscription = await client.subscribe("s", start="earliest").confirmed()
            assert await client.publish_many("s", [b"1", b"2"]) == (1, 2)
            assert await take(subscription, 2) == numbered(1, 2)
            await until(lambda: [region[i].clients for i in (1, 2, 3)] == [1, 0, 1])
            assert (region[2].published, region[3].published) == ([], [])

    run(work())


def test_who_only_subscribes_has_no_connection_to_the_head(regions: Any) -> None:
    async def work() -> None:
        async with regions(3) as region, AsyncClient(region[1].url) as client:
            await client.subscribe("s").confirmed()
            await until(lambda: [region[i].clients for i in (1, 2, 3)] == [0, 0, 1])
            await client.publish("s", b"1")
            assert [region[i].clients for i in (1, 2, 3)] == [1, 0, 1]

    run(work())


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


def _batches(frame: Any) -> list[Any]:
    from qanat.events.batch import decode_all

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


@pytest.mark.paper("S9")
@pytest.mark.parametrize("killed", [False, True])
def test_a_subscription_goes_on_at_the_new_tail(regions: Any, killed: bool) -> None:
    async def work() -> None:
        async with regions(3) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s").confirmed()
            await client.publish_many("s", [b"1", b"2"])
            assert await take(subscription, 1) == numbered(1, 2)
            region.move(tail="eu/2")
            if killed:
                await region[3].kill()
            await client.publish_many("s", [b"3", b"4"])
            assert await take(subscription, 2) == numbered(3, 4)
            assert region[2].clients == 1

    run(work())


def test_nothing_of_a_former_tail_is_taken(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s").confirmed()
            await client.publish("s", b"1")
            ((connection, number),) = region[2].subscriptions
            region.move(tail="eu/1")
            region[2].push(connection, number, region.streams["s"].batches[0])
            await client.publish("s", b"2")
            assert await take(subscription, 2) == numbered(1, 2)

    run(work())


@pytest.mark.parametrize("seed", range(4))
def test_roles_move_and_replicas_die_at_random(regions: Any, seed: int) -> None:
    rng = random.Random(seed)
    count = 400

    async def publish(client: AsyncClient) -> None:
        for i in range(1, count + 1, 4):
            await client.send_many("s", [b"%d" % j for j in range(i, i + 4)])
            if not rng.randrange(4):
                await asyncio.sleep(rng.random() / 200)
        await client.flush()

    async def disturb(region: Any) -> None:
        names = list(region.replicas)
        while True:
            await asyncio.sleep(rng.random() / 20)
            victim = region.replicas[rng.choice(names)]
            others = [name for name in names if name != victim.name]
            region.move(head=rng.choice(others), tail=rng.choice(others))
            if rng.random() < 0.6:
                await victim.kill()
                await asyncio.sleep(rng.random() / 20)
                await victim.start()

    async def work() -> None:
        async with regions(3) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s", start="earliest").confirmed()
            disturbing = asyncio.create_task(disturb(region))
            publishing = asyncio.create_task(publish(client))
            assert await take(subscription, count) == numbered(1, count)
            await publishing
            disturbing.cancel()
            await asyncio.gather(disturbing, return_exceptions=True)

    run(work())


def test_who_has_not_heard_of_the_change_is_asked_again_or_another(regions: Any) -> None:
    async def work() -> None:
        async with regions(3) as region:
            region[2].sees = Place(
                region="eu",
                epoch=1,
                me="eu/2",
                head="eu/3",
                tail="eu/2",
                replicas={name: replica.url for name, replica in region.replicas.items()},
            )
            async with AsyncClient(f"{region[2].url},{region[1].url}") as client:
                subscription = client.subscribe("s", start="earliest")
                assert await client.publish("s", b"1") == 1
                assert await take(subscription, 1) == numbered(1, 1)

    run(work())


@pytest.mark.parametrize("role", ["head", "tail"])
def test_patience_ends_when_nobody_holds_the_role(regions: Any, role: str) -> None:
    async def work() -> None:
        async with regions(2) as region:
            setattr(region, role, "")
            async with AsyncClient(region.url, settings=ClientSettings(patience_ms=200)) as client:
                with pytest.raises(Unavailable, match=f"no {role} found by .* for 0.2 s: .*no {role} now"):
                    if role == "head":
                        await client.publish("s", b"1")
                    else:
                        await client.subscribe("s").confirmed()

    run(work())


def test_patience_ends_when_every_answer_is_refused(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region:
            region[1].on_publish = lambda connection, publish, _: (
                region[1].refuse(connection, publish.request, "not_head", "no lease", False) or True
            )
            async with AsyncClient(region.url, settings=ClientSettings(patience_ms=300)) as client:
                with pytest.raises(Unavailable) as caught:
                    await client.publish("s", b"1")
                assert not caught.value.definite

    run(work())


def test_any_endpoint_that_answers_will_do(regions: Any) -> None:
    async def work() -> None:
        async with regions(3) as region:
            url = region.url
            region.move(head="eu/3")
            await region[1].kill()
            await region[2].kill()
            async with AsyncClient(url) as client:
                assert await client.publish("s", b"1") == 1
            await region[3].kill()
            with pytest.raises(Unavailable, match=r"none of qanat://.*,.*,.* answers") as caught:
                await AsyncClient(url).ready()
            assert caught.value.definite

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


def test_a_gap_is_mended_by_asking_again(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s").confirmed()
            await client.publish("s", b"1")
            await take(subscription, 1)
            subscriptions, region[2].subscriptions = region[2].subscriptions, {}
            await client.publish("s", b"2")  # which the tail forgets to send
            region[2].subscriptions = subscriptions
            await client.publish("s", b"3")
            assert await take(subscription, 2) == numbered(2, 3)

    run(work())


def test_a_gap_that_stays_is_told(regions: Any) -> None:
    async def work() -> None:
        async with regions(2) as region, AsyncClient(region.url) as client:
            subscription = await client.subscribe("s", start=1).confirmed()
            for i in (1, 2, 3):
                await client.publish("s", b"%d" % i)
            assert await take(subscription, 3) == numbered(1, 3)
            del region.streams["s"].batches[1]
            again = client.subscribe("s", start=1)
            assert await take(again, 1) == numbered(1, 1)
            with pytest.raises(DeliveryGap, match="jumped from 1 to 3"):
                await take(again, 1)
            assert await take(again, 1) == numbered(3, 3)

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


def test_a_fault_of_the_guide_is_told(regions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with regions(1) as region:

            async def fault(*_: object) -> None:
                raise ValueError("planted")

            monkeypatch.setattr(Guide, "_search", fault)
            with pytest.raises(InvariantError, match="planted"):
                await AsyncClient(region.url).ready()

    run(work())


@pytest.mark.parametrize(("replicas", "misses"), [(1, 5), (2, 2)])
def test_a_replica_that_is_silent_is_left_sooner_than_a_server_alone(
    regions: Any, replicas: int, misses: int
) -> None:
    async def work() -> None:
        async with regions(replicas) as region, AsyncClient(region[1].url) as client:
            await client.publish("s", b"1")
            await client.subscribe("s").confirmed()
            for role in (client._head, client._tail):
                assert role.link is not None
                assert role.link.connection.settings.heartbeat_misses == misses

    run(work())

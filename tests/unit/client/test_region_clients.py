"""A client in a region of replicas finds head and tail, and gives up when nobody is there to be found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.client.region_events import numbered, take
from tests.waiting import run, until

from qanat.client import AsyncClient, ClientSettings, Unavailable
from qanat.client.guide import Guide
from qanat.events.errors import InvariantError
from qanat.wire.streams import Place


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
            with pytest.raises(Unavailable, match=r"no server at qanat://.*,.*,.*: cannot reach") as caught:
                await AsyncClient(url, patience=0).ready()
            assert caught.value.definite

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

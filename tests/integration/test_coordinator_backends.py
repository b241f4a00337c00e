"""One suite over all coordinators: what a session is promised, whoever is behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.coordinating import Backend, Embedded, OnZooKeeper, Trio, parties
from tests.servers.zookeeper import Ensemble, zookeeper_ensemble
from tests.waiting import run, until

from qanat.coordinate import Answer, Problem

Work = Callable[[Backend], Coroutine[Any, Any, None]]
On = Callable[[Work], None]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with zookeeper_ensemble(tmp_path_factory.mktemp("ensemble")) as found:
        yield found


@pytest.fixture(params=["embedded", "three", "zookeeper"])
def on(request: pytest.FixtureRequest, tmp_path: Path) -> On:
    """Runs a test's coroutine with a coordinator that is there."""
    found: Backend
    if request.param == "embedded":
        found = Embedded(tmp_path / "coordinator")
    elif request.param == "three":
        found = Trio(tmp_path / "coordinator")
    else:
        found = OnZooKeeper(request.getfixturevalue("ensemble"))

    def go(work: Work) -> None:
        async def main() -> None:
            await found.back()
            try:
                await work(found)
            finally:
                if isinstance(found, Embedded | Trio):
                    await found.away()

        run(main())

    return go


def problems(*answers: Answer) -> list[Problem]:
    return [answer.problem for answer in answers]


def test_of_two_who_compare_and_set_one_wins(on: On) -> None:
    async def work(backend: Backend) -> None:
        async with parties(backend, "a", "b") as (a, b):
            assert (await a.create("/x", b"0")).ok
            read = await b.get("/x")
            assert (read.data, read.version, read.owner) == (b"0", 0, 0)
            both = await asyncio.gather(a.set("/x", b"a", 0), b.set("/x", b"b", 0))
            assert sorted(problems(*both)) == [Problem.NONE, Problem.BAD_VERSION]
            assert [answer.version for answer in both if answer.ok] == [1]
            winner = b"a" if both[0].ok else b"b"
            read = await a.get("/x")
            assert (read.data, read.version) == (winner, 1)
            assert problems(await a.delete("/x", 0), await a.delete("/x", 1)) == [
                Problem.BAD_VERSION,
                Problem.NONE,
            ]

    on(work)


def test_what_is_refused_is_refused_by_both_alike(on: On) -> None:
    async def work(backend: Backend) -> None:
        async with parties(backend, "a") as (a,):
            await a.create("/x")
            await a.create("/e", ephemeral=True)
            await a.create("/x/y")
            said = [
                await a.create("/x"),
                await a.create("/none/y"),
                await a.create("/e/y"),
                await a.delete("/x"),
                await a.set("/none", b""),
                await a.delete("/none"),
                await a.get("/none"),
                await a.children("/none"),
                await a.create("x"),
                await a.create("/"),
                await a.create("/a//b"),
                await a.get("nowhere"),
                await a.create("/large", bytes(1_000_001)),
                await a.delete("/"),
            ]
            assert problems(*said) == [
                Problem.NODE_EXISTS,
                Problem.NO_NODE,
                Problem.NO_CHILDREN_FOR_EPHEMERALS,
                Problem.NOT_EMPTY,
                Problem.NO_NODE,
                Problem.NO_NODE,
                Problem.NO_NODE,
                Problem.NO_NODE,
                Problem.BAD_ARGUMENTS,
                Problem.BAD_ARGUMENTS,
                Problem.BAD_ARGUMENTS,
                Problem.NO_NODE,
                Problem.BAD_ARGUMENTS,
                Problem.BAD_ARGUMENTS,
            ]
            assert a.owner.expired == 0 and a.leased()

    on(work)


def test_a_watch_fires_once_for_a_change_for_a_coming_and_for_a_going(on: On) -> None:
    async def work(backend: Backend) -> None:
        async with parties(backend, "a", "b") as (a, b):
            await a.create("/x")
            await a.create("/f")
            for path in ("/x", "/later"):
                await b.get(path, watch=True)
            for path in ("/f", "/g"):
                await b.children(path, watch=True)
            await b.get("/f", watch=False)
            for data in (b"1", b"2"):
                await a.set("/x", data)
            for path in ("/later", "/f/one", "/f/two", "/g"):
                await a.create(path)
            await a.set("/f", b"no matter")
            wanted = [("children", "/f"), ("children", "/g"), ("data", "/later"), ("data", "/x")]
            await until(lambda: sorted(b.events) == wanted, say=lambda: b.events)
            await b.get("/x", watch=True)
            assert (await b.children("/f", watch=True)).children == ("one", "two")
            await a.delete("/x")
            await a.delete("/f/two")
            await until(
                lambda: sorted(b.events[4:]) == [("children", "/f"), ("data", "/x")], say=lambda: b.events
            )

    on(work)


def test_an_event_comes_before_any_answer_that_shows_the_change(on: On) -> None:
    async def work(backend: Backend) -> None:
        async with parties(backend, "a", "b") as (a, b):
            await a.create("/x", b"0")
            for number in range(1, 21):
                seen = await b.get("/x", watch=True)
                del b.owner.told[:]
                changing = asyncio.create_task(a.set("/x", str(number).encode()))
                while (await b.get("/x")).data == seen.data:
                    pass
                answers = [each[1].data if each[0] == "answer" else each[0] for each in b.owner.told]
                assert answers.index("data") < answers.index(str(number).encode()), answers
                await changing

    on(work)


def test_numbers_of_sequential_nodes_rise_and_do_not_come_back(on: On) -> None:
    async def work(backend: Backend) -> None:
        async with parties(backend, "a", "b") as (a, b):
            await a.create("/queue")
            made = []
            for number in range(6):
                answer = await (a, b)[number % 2].create(
                    "/queue/item-", sequential=True, ephemeral=number % 2 == 0
                )
                made.append(answer.path)
                await b.delete(answer.path)
            assert made == sorted(set(made))
            assert all(len(path) == len("/queue/item-") + 10 for path in made)
            assert (await a.children("/queue")).children == ()

    on(work)


def test_ephemeral_nodes_go_with_their_session_and_the_next_one_has_a_higher_number(on: On) -> None:
    async def work(backend: Backend) -> None:
        async with parties(backend, "a", "b") as (a, b):
            made = await a.create("/a", b"1", ephemeral=True)
            assert made.ok
            assert (await a.get("/a")).owner == a.session.id
            assert (await b.get("/a", watch=True)).owner != 0
            await a.get("/b", watch=True)
            await backend.expire(a)
            await until(lambda: a.owner.expired == 1 and a.leased())
            assert len(a.owner.opened) == 2 and a.owner.opened[1] > a.owner.opened[0]
            await until(lambda: b.events == [("data", "/a")])
            assert (await b.get("/a")).problem is Problem.NO_NODE
            assert (await a.create("/a", b"2", ephemeral=True)).ok
            await b.create("/b")
            assert a.events == [], "watches went with the session"
            await b.get("/a", watch=True)
            a.do(lambda session: session.close())
            await until(lambda: len(b.events) == 2)
            assert not a.leased()
            assert b.owner.opened[0] != a.owner.opened[1]

    on(work)


def test_sessions_nodes_and_watches_outlast_a_coordinator_that_is_away(on: On) -> None:
    async def work(backend: Backend) -> None:
        async with parties(backend, "a", "b") as (a, b):
            await a.create("/a", b"1", ephemeral=True)
            await b.get("/a", watch=True)
            numbers = a.session.id, b.session.id
            await backend.away()
            await until(lambda: not a.session.attached and not b.session.attached)
            waits = asyncio.create_task(a.set("/a", b"2", 0))
            await until(
                lambda: not a.leased() and not b.leased(), say=lambda: "a lease without a coordinator"
            )
            assert a.owner.expired == b.owner.expired == 0, "nobody has said so"
            await backend.back()
            await until(lambda: a.leased() and b.leased())
            assert numbers == (a.session.id, b.session.id)
            assert (await waits).ok
            await until(lambda: b.events == [("data", "/a")])
            assert (await b.get("/a")).data == b"2"

    on(work)

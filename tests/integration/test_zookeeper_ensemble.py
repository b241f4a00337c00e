"""An ensemble of three under contenders for one node: servers are killed and stopped, sessions expire, and
there are never two owners."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
from tests.integration.coordinating import CONFIG, Gate, OnZooKeeper, Party, Reachable, parties
from tests.servers.zookeeper import Ensemble, zookeeper_ensemble
from tests.waiting import run, until

from qanat.coordinate import Problem, SessionConfig

pytestmark = pytest.mark.paper("W10")

BRISK = SessionConfig(timeout_ms=1500.0, retry_ms=50.0, zookeeper_tick_ms=500.0)


class Contender:
    """Takes `/owner` when it is free. While it has it and its lease holds, it serves, and asks nobody."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.served = 0
        self._claimed = 0
        """The session in which it has it."""

    def owns(self) -> bool:
        session = self.party.session
        return session.id != 0 and session.id == self._claimed and self.party.leased()

    async def contend(self) -> None:
        while True:
            session = self.party.session.id
            mine = f"{self.party.driver.identity.name}@{session}".encode()
            if session and session != self._claimed:
                made = await self.party.create("/owner", mine, ephemeral=True)
                # Whatever came of it, what lies there now counts: the answer may be lost, and the node made.
                if made.problem in (Problem.NONE, Problem.NODE_EXISTS, Problem.CONNECTION_LOSS):
                    found = await self.party.get("/owner")
                    if found.ok and found.data == mine and self.party.session.id == session:
                        self._claimed = session
            await asyncio.sleep(0.01)


class Ring:
    def __init__(self, members: list[Party]) -> None:
        self.contenders = [Contender(party) for party in members]
        self.together = 0
        """Most owners at one time. All are in this process, so that they are looked at at once."""

    async def watch(self) -> None:
        while True:
            owners = [each for each in self.contenders if each.owns()]
            self.together = max(self.together, len(owners))
            for each in owners:
                each.served += 1
            await asyncio.sleep(0.001)

    def owner(self) -> Contender | None:
        return next((each for each in self.contenders if each.owns()), None)

    async def owned(self) -> Contender:
        await until(self.owner)
        found = self.owner()
        assert found is not None
        return found

    async def serves(self, contender: Contender) -> None:
        before = contender.served
        await until(lambda: contender.served > before + 20)


@asynccontextmanager
async def ring(ways: Sequence[Reachable], config: SessionConfig = CONFIG) -> AsyncIterator[Ring]:
    """One contender for each way to the ensemble."""
    async with AsyncExitStack() as stack:
        members = [
            (await stack.enter_async_context(parties(way, f"{number}", config=config)))[0]
            for number, way in enumerate(ways)
        ]
        found = Ring(members)
        tasks = [asyncio.create_task(each.contend()) for each in found.contenders]
        tasks.append(asyncio.create_task(found.watch()))
        try:
            yield found
            for task in tasks:
                if task.done():
                    task.result()
            assert found.together == 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with zookeeper_ensemble(tmp_path_factory.mktemp("ensemble")) as found:
        yield found


@pytest.fixture
def ensemble(shared: Ensemble) -> Ensemble:
    """Whole again, whatever the test before did to it."""
    shared.start()
    shared.wait()
    return shared


def all_heard(parties: list[Party], changes: int) -> bool:
    return all(party.events.count(("data", "/x")) >= changes for party in parties)


def test_the_death_of_the_leader_and_of_a_follower_ends_no_session_and_hides_no_change(
    ensemble: Ensemble,
) -> None:
    async def drill() -> None:
        async with ring([OnZooKeeper(ensemble)] * 3) as found:
            owner = await found.owned()
            parties = [each.party for each in found.contenders]
            numbers = [party.session.id for party in parties]
            await parties[0].create("/x", b"0")
            for round_, role in enumerate(("leader", "follower"), 1):
                for party in parties:
                    await party.get("/x", watch=True)
                victim = next(server for server in ensemble.servers if server.role() == role)
                victim.kill()
                changed = await parties[0].set("/x", b"%d" % round_, round_ - 1)
                while changed.problem is Problem.CONNECTION_LOSS:  # unknown: so what lies there now counts
                    there = await parties[0].get("/x")
                    if there.ok and there.version == round_:
                        break
                    changed = await parties[0].set("/x", b"%d" % round_, round_ - 1)
                await until(partial(all_heard, parties, round_))
                for party in parties:
                    there = await party.get("/x")
                    while not there.ok:
                        there = await party.get("/x")
                    assert (there.data, there.version) == (b"%d" % round_, round_)
                await until(lambda: all(party.leased() for party in parties))
                ensemble.start()
                await asyncio.to_thread(ensemble.wait)
            assert numbers == [party.session.id for party in parties]
            assert found.owner() is owner
            assert [party.owner.expired for party in parties] == [0, 0, 0]

    run(drill())


@pytest.mark.parametrize("away_s", [2.0, pytest.param(60.0, marks=pytest.mark.soak)])
def test_while_all_servers_are_away_the_owner_serves_on_what_it_knows(
    ensemble: Ensemble, away_s: float
) -> None:
    # Its lease outlasts a while without any server: up to a sixth of the timeout has passed since the last
    # heartbeat.
    patient = SessionConfig(timeout_ms=away_s * 1600 + 20_000, retry_ms=50.0, zookeeper_tick_ms=500.0)

    async def drill() -> None:
        async with ring([OnZooKeeper(ensemble)] * 3, patient) as found:
            owner = await found.owned()
            number = owner.party.session.id
            await asyncio.to_thread(ensemble.kill)
            await until(lambda: not owner.party.session.attached)
            before = owner.served
            await asyncio.sleep(away_s)  # the time that they are away is what is tested
            assert found.owner() is owner
            await found.serves(owner)
            assert owner.served > before + 100
            ensemble.start()
            await until(lambda: all(each.party.session.attached for each in found.contenders))
            await found.serves(owner)
            assert owner.party.session.id == number

    run(drill())


def test_when_the_lease_is_over_nobody_serves_until_a_server_is_back(ensemble: Ensemble) -> None:
    async def drill() -> None:
        async with ring([OnZooKeeper(ensemble)] * 3) as found:
            await found.owned()
            await asyncio.to_thread(ensemble.kill)
            await until(lambda: found.owner() is None)
            served = [each.served for each in found.contenders]
            ensemble.servers[0].start()
            await until(ensemble.servers[0].runs)
            await asyncio.sleep(0.5)  # one of three decides nothing, however long it is waited
            assert served == [each.served for each in found.contenders]
            ensemble.start()
            owner = await found.owned()
            await found.serves(owner)

    run(drill())


def test_a_leader_that_stands_still_is_left_by_all(ensemble: Ensemble) -> None:
    async def drill() -> None:
        async with ring([OnZooKeeper(ensemble)] * 3) as found:
            await found.owned()
            leader = await asyncio.to_thread(ensemble.leader)
            leader.send(signal.SIGSTOP)
            others = [server for server in ensemble.servers if server is not leader]
            try:
                await until(lambda: any(server.role() == "leader" for server in others), every_s=0.1)
                await until(lambda: all(each.party.leased() for each in found.contenders))
                await found.serves(await found.owned())
            finally:
                leader.send(signal.SIGCONT)
            await until(lambda: leader.role() == "follower", every_s=0.1)
            await found.serves(await found.owned())

    run(drill())


def test_a_compare_and_set_whose_answer_is_lost_has_happened_when_it_is_read_or_never_will(
    ensemble: Ensemble,
) -> None:
    """One writer, whose connections break while it writes: were a write to take effect later than it is read,
    the next would find another version than it read."""

    async def drill() -> None:
        rng, outcomes = random.Random(11), Counter[str]()
        gate = Gate(ensemble, OnZooKeeper(ensemble).url.partition(ensemble.hosts)[2])
        await gate.start()
        try:
            async with parties(gate, "writer") as (writer,):
                await writer.create("/counter", b"0")
                for number in range(60):
                    there = await writer.get("/counter")
                    while not there.ok:
                        there = await writer.get("/counter")
                    writing = asyncio.create_task(writer.set("/counter", b"%d" % number, there.version))
                    await asyncio.sleep(rng.choice((0, 0.0005, 0.001, 0.002, 0.01)))
                    gate.cut()
                    outcomes[(await writing).problem] += 1
                assert set(outcomes) <= {Problem.NONE, Problem.CONNECTION_LOSS}, outcomes
                assert outcomes[Problem.CONNECTION_LOSS] > 0, outcomes
                assert writer.owner.expired == 0
        finally:
            await gate.close()

    run(drill())


def test_sessions_that_expire_in_the_middle_of_a_takeover_never_make_two_owners(ensemble: Ensemble) -> None:
    """The owner is cut off until its session has expired; then those who take over are cut off too, before
    they know what came of it. What they had sent and were sent meanwhile arrives late."""

    async def drill() -> None:
        backend, rng = OnZooKeeper(ensemble), random.Random(5)
        root = backend.url.partition(ensemble.hosts)[2]
        gates = [Gate(ensemble, root) for _ in range(3)]
        for gate in gates:
            await gate.start()
        try:
            async with parties(backend, "observer") as (observer,), ring(gates, BRISK) as found:
                for _ in range(2):
                    owner = await found.owned()
                    number = owner.party.session.id
                    gates[found.contenders.index(owner)].shut()
                    while (await observer.get("/owner", watch=True)).data.endswith(b"@%d" % number):
                        seen = len(observer.events)
                        await until(lambda seen=seen: len(observer.events) > seen)  # type: ignore[misc]
                    assert not owner.owns(), "the lease ends before the session does"
                    await asyncio.sleep(rng.uniform(0, 0.02))  # wherever the others are then
                    others = [each for each in found.contenders if each is not owner]
                    for each in others:
                        gates[found.contenders.index(each)].shut()
                    gates[found.contenders.index(owner)].open()
                    await until(lambda owner=owner: owner.owns())  # type: ignore[misc]
                    assert owner.party.session.id > number
                    await found.serves(owner)
                    for each in others:
                        gates[found.contenders.index(each)].open()
                    await until(lambda: all(each.party.leased() for each in found.contenders))
                assert all(
                    each.party.owner.opened == sorted(set(each.party.owner.opened))
                    for each in found.contenders
                )
        finally:
            for gate in gates:
                await gate.close()

    run(drill())

"""A coordinator on three machines, told what to do: who answers, who says where, what is bounded, what a
session does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.protocols.contexts import InOrder

from qanat.checks.coordinator_hosts import Ask, Asked, Contender, Read, contender_of
from qanat.checks.raft_hosts import raft_of
from qanat.coordinate import Answer, ServerConfig, Session, SessionConfig
from qanat.coordinate import ensemble as ensemble_module
from qanat.coordinate.ensemble import EnsembleMember, Held, News
from qanat.coordinate.messages import Attach, Attached, Beat, Call, Elsewhere, Open, Opened, Operation
from qanat.kernel import Address, Message
from qanat.protocols.raft import RaftConfig
from qanat.sim import Links, LinkSpec, SimNode, World
from qanat.sim.paths import Condition

S = 1_000_000
MEMBERS = A, B, C = tuple(Address(name) for name in "abc")
X, Y = Address("x"), Address("y")
RAFT = RaftConfig(beat_ms=50.0, election_ms=300.0)
SESSION = SessionConfig(timeout_ms=1_000.0, retry_ms=100.0)


class AnswersWithoutARound(Held):
    """Planted: what is committed is told, whoever leads by now."""

    def send(self, to: Address, message: Message) -> None:
        self._waiting.append((self._index, 0, to, message))
        self.release()


class Room:
    def __init__(self, held: type[Held] = Held, timeout_ms: float = 1_000.0) -> None:
        session = SessionConfig(timeout_ms=timeout_ms, retry_ms=100.0)
        member = type("Member", (EnsembleMember,), {"held_type": held})
        self.world = World(1, links=Links(LinkSpec(latency_ms=1.0)), tracing=False)
        self.said: list[tuple[Address, Any]] = []
        self.world.deliver_hooks.append(lambda world, node, item: self.said.append((node.address, item)))
        for address in MEMBERS:
            self.world.add(address, lambda context: member(context, ServerConfig(), RAFT, MEMBERS))
        for address in (X, Y):
            self.world.add(address, lambda context: Contender(context, session, MEMBERS))
        self.world.start()
        self.run(2)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + round(seconds * S))
        assert self.world.violations == []

    @property
    def leader(self) -> SimNode:
        (leader,) = self.leaders
        return leader

    @property
    def leaders(self) -> list[SimNode]:
        members = [self.world.nodes[each] for each in MEMBERS]
        return [each for each in members if each.up and raft_of(each).serves]

    def leased(self, address: Address) -> bool:
        node = self.world.nodes[address]
        return contender_of(node).session.leased(node.now_us)

    def ask(self, address: Address, asked: Asked, seconds: float = 0.3) -> list[Any]:
        del self.said[:]
        self.world.nodes[address].request(asked)
        self.run(seconds)
        return [item for who, item in self.said if who == address]

    def cut(self, one: SimNode, *others: Address) -> Condition:
        sides = frozenset((one.index,)), frozenset(self.world.nodes[each].index for each in others)
        condition = Condition(*sides, both_ways=True, cut=True)
        self.world.network.worsen(condition)
        return condition


def test_sessions_outlive_their_leader_and_are_on_the_next_one_before_their_leases_are_over() -> None:
    room = Room()
    assert room.ask(X, Asked(Ask.COUNT))
    session = contender_of(room.world.nodes[X]).session.id
    for way in ("crash", "pause"):
        leader = room.leader
        if way == "crash":
            room.world.crash(leader)
            for path in list(leader.paths.values()):
                if path.channel is not None:
                    room.world.network.break_channel(path.channel, "process died")
        else:
            leader.pause()
        for _ in range(40):
            room.run(0.05)
            assert room.leased(X)
            assert room.leased(Y)
        (read,) = room.ask(X, Asked(Ask.READ, 1))
        assert read.value == 1
        if way == "crash":
            room.world.after(0, leader.restart)
        else:
            leader.resume()
        room.run(1)
    assert contender_of(room.world.nodes[X]).session.id == session


@pytest.mark.parametrize("held", [Held, AnswersWithoutARound])
def test_a_leader_that_was_deposed_and_does_not_know_it_answers_no_read(held: type[Held]) -> None:
    """X reaches only the old leader, which reaches nobody else; Y counts at the new one."""
    room = Room(held, timeout_ms=4_000.0)
    assert room.ask(Y, Asked(Ask.COUNT))
    old = room.leader
    others = [each for each in MEMBERS if each != old.address]
    old_raft = raft_of(old)
    assert old_raft.leading is not None
    old_raft.leading.has_majority = lambda: True  # type: ignore[method-assign]
    room.cut(old, *others, Y)
    room.cut(room.world.nodes[X], *others)
    room.run(3)
    counted = room.ask(Y, Asked(Ask.COUNT))
    assert counted[0].value == 2
    assert old_raft.serves
    said = room.ask(X, Asked(Ask.READ, 2))
    if held is Held:
        assert said == []
        room.run(1)
        assert not room.leased(X)
    else:
        assert said == [Read(2, 1)], "the bug is noticed"


def test_who_does_not_lead_says_who_does_and_a_session_goes_there() -> None:
    room = Room()
    follower = next(each for each in MEMBERS if each != room.leader.address)
    context = InOrder(Address("s"))
    session = Session(context, SESSION, [follower, room.leader.address], Silent())
    session.start()
    asked = context.take("send")
    assert [(to, type(message)) for to, message in asked] == [(follower, Open)]
    machine = room.world.nodes[follower].machine
    said: list[Any] = []
    kept, machine.context = machine.context, Catch(said)  # type: ignore[assignment]
    machine.on_message(0, Address("s"), asked[0][1])
    machine.context = kept
    assert said == [(Address("s"), Elsewhere(str(room.leader.address)))]
    session.on_message(0, follower, said[0][1])
    assert [to for to, _ in context.take("send")] == [room.leader.address]
    session.on_message(0, room.leader.address, Elsewhere(str(follower)))
    assert context.take("send") == [], "a hint that leads back is not followed before the next attempt"
    session.on_timer(0, "retry")
    assert [to for to, _ in context.take("send")] == [follower]


class Catch:
    def __init__(self, said: list[Any]) -> None:
        self._said = said
        self.address = Address("?")

    def send(self, to: Address, message: Message) -> None:
        self._said.append((to, message))


class Silent:
    def on_opened(self, session: int) -> None: ...
    def on_expired(self) -> None: ...
    def on_event(self, kind: Any, path: str) -> None: ...
    def on_lease(self) -> None: ...


def session_at(*servers: Address) -> tuple[Session, InOrder]:
    """One that is attached at the first of them."""
    context = InOrder(Address("s"))
    session = Session(context, SESSION, servers, Silent())
    session.start()
    ((_, opened),) = context.take("send")
    session.on_message(0, servers[0], Opened(opened.nonce, 7, 1_000_000))
    session.on_message(0, servers[0], Attached(7, 1))
    assert session.attached
    context.outputs.clear()
    return session, context


def test_a_session_leaves_a_server_that_acknowledges_nothing_for_two_heartbeats() -> None:
    session, context = session_at(A, B, C)
    session.on_timer(0, "beat")
    assert {to for to, _ in context.take("send")} == {A}
    answers: list[Answer] = []
    session.get("/x", answers.append)
    context.outputs.clear()
    session.on_timer(0, "beat")
    sent = context.take("send")
    assert [(to, type(message)) for to, message in sent] == [(B, Attach), (B, Beat)]
    assert [answer.problem for answer in answers] == ["connection-loss"]
    alone, context = session_at(A)
    for _ in range(5):
        alone.on_timer(0, "beat")
    assert {type(message) for _, message in context.take("send")} == {Beat}, "there is nobody else to ask"


def test_what_the_old_server_says_is_not_heard_any_more() -> None:
    session, context = session_at(A, B, C)
    session.on_link_down(0, A)
    assert {to for to, _ in context.take("send")} == {B}
    session.on_message(0, A, Attached(7, 2))
    assert not session.attached
    session.on_message(0, B, Attached(7, 2))
    assert session.attached


def test_a_leader_with_too_many_answers_that_nobody_confirms_resigns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble_module, "HELD_MAX", 50)
    room = Room()
    leader = room.leader
    machine = leader.machine
    raft = raft_of(leader)
    assert isinstance(machine, EnsembleMember)
    room.cut(leader, *(each for each in MEMBERS if each != leader.address))
    session = contender_of(room.world.nodes[X]).session.id
    for number in range(60):
        call = Call(session, number, Operation.GET, "/counter")
        machine.on_message(0, X, msgspec.structs.replace(call, number=number))
        if machine.server is None:
            break
    assert machine.server is None
    assert raft.leading is None
    assert 50 <= number <= 52
    room.run(2)
    assert room.leased(X)


def test_who_has_no_leader_says_whom_it_waits_for() -> None:
    room = Room()
    leader = room.leader
    others = [room.world.nodes[each] for each in MEMBERS if each != leader.address]
    del room.said[:]
    room.world.crash(others[0])
    room.world.crash(others[1])
    room.run(3)
    news = [item for who, item in room.said if who == leader.address and isinstance(item, News)]
    assert news[-1].leader == ""
    assert (
        news[-1].waits
        == f"it waits for {others[0].address}, {others[1].address}; if the disk there is lost, `qanat"
        " coordinator begin`"
    )
    assert len(news) <= 3, "it is said when it changes"
    room.world.after(0, others[0].restart)
    room.run(2)
    told = [item for _, item in room.said if isinstance(item, News)]
    assert told[-1].leader == str(room.leader.address)


def test_a_new_leader_gives_each_session_its_whole_timeout() -> None:
    room = Room()
    assert room.ask(X, Asked(Ask.COUNT))
    leader = room.leader
    room.world.crash(room.world.nodes[Y])
    room.run(0.7)
    room.world.crash(leader)
    began = room.world.now
    while not room.leaders:
        room.run(0.05)
    elected = room.world.now - began
    assert elected < 2 * S
    machine = room.leader.machine
    assert isinstance(machine, EnsembleMember)
    server = machine.server
    assert server is not None
    assert len(server.tree.sessions) == 2
    room.run(0.9)
    assert len(server.tree.sessions) == 2
    room.run(0.4)
    assert len(server.tree.sessions) == 1

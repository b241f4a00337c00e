"""Sessions with the embedded coordinator, over a simulated network: calls, watches, leases, expiry,
restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.protocols.contexts import InOrder

from qanat.coordinate import (
    Answer,
    CoordinatorServer,
    EventKind,
    Problem,
    ServerConfig,
    Session,
    SessionConfig,
)
from qanat.coordinate.messages import (
    TO_CLIENT,
    Attach,
    Attached,
    Call,
    Fired,
    Gone,
    Open,
    Opened,
    Operation,
    Watch,
)
from qanat.kernel import Address, Context, Machine
from qanat.sim import Links, LinkSpec, World
from qanat.sim.paths import Condition

S = 1_000_000
SERVER, A, B = Address("server"), Address("a"), Address("b")
CONFIG = SessionConfig(timeout_ms=1000.0, retry_ms=100.0)


class Client(Machine[Any, Callable[["Client"], None]]):
    message_types = TO_CLIENT

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.session = Session(context, CONFIG, SERVER, self)
        self.opened: list[int] = []
        self.events: list[tuple[str, str]] = []
        self.answers: list[Answer] = []
        self.expired = self.leases = 0
        self.now_us = 0

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.session.start()

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        self.session.on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        self.session.on_timer(now_us, name)

    def on_request(self, now_us: int, request: Callable[[Client], None]) -> None:
        self.now_us = now_us
        request(self)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.session.on_link_down(now_us, peer)

    def on_opened(self, session: int) -> None:
        self.opened.append(session)

    def on_expired(self) -> None:
        self.expired += 1

    def on_event(self, kind: EventKind, path: str) -> None:
        self.events.append((kind, path))

    def on_lease(self) -> None:
        self.leases += 1


class Room:
    def __init__(self, config: ServerConfig | None = None) -> None:
        server = config or ServerConfig()
        self.world = World(1, links=Links(LinkSpec(latency_ms=5.0)), tracing=False)
        self.world.add(SERVER, lambda context: CoordinatorServer(context, server))
        for address in (A, B):
            self.world.add(address, Client)
        self.world.start()
        self.run(0.5)

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + round(seconds * S))
        assert self.world.violations == []

    def client(self, address: Address) -> Client:
        machine = self.world.nodes[address].machine
        assert isinstance(machine, Client)
        return machine

    def do(self, address: Address, action: Callable[[Client], None], seconds: float = 0.1) -> list[Answer]:
        client = self.client(address)
        client.answers = []
        self.world.after(0, self.world.nodes[address].request, action)
        self.run(seconds)
        return client.answers

    def leased(self, address: Address) -> bool:
        held: list[bool] = []
        self.do(address, lambda client: held.append(client.session.leased(client.now_us)), 0.001)
        return held[0]

    def cut(self, one: Address, other: Address) -> Condition:
        index = {node.address: node.index for node in self.world.node_list}
        condition = Condition(frozenset((index[one],)), frozenset((index[other],)), both_ways=True, cut=True)
        self.world.network.worsen(condition)
        return condition


def create(path: str, data: bytes = b"", **more: bool) -> Callable[[Client], None]:
    return lambda client: client.session.create(path, data, client.answers.append, **more)


def get(path: str, watch: bool = False) -> Callable[[Client], None]:
    return lambda client: client.session.get(path, client.answers.append, watch=watch)


def put(path: str, data: bytes, version: int) -> Callable[[Client], None]:
    return lambda client: client.session.set(path, data, version, client.answers.append)


def test_two_sessions_race_and_one_wins() -> None:
    room = Room()
    assert room.do(A, create("/x", b"0"))[0].ok
    assert room.do(A, put("/x", b"a", 0))[0].ok
    assert room.do(B, put("/x", b"b", 0))[0].problem is Problem.BAD_VERSION
    answer = room.do(B, get("/x"))[0]
    assert (answer.data, answer.version) == (b"a", 1)


def test_a_watch_fires_once() -> None:
    room = Room()
    room.do(A, create("/x"))
    room.do(B, get("/x", watch=True))
    room.do(B, lambda client: client.session.children("/", client.answers.append, watch=True))
    room.do(A, put("/x", b"1", -1))
    room.do(A, put("/x", b"2", -1))
    room.do(A, create("/y"))
    assert room.client(B).events == [("data", "/x"), ("children", "/")]


def test_an_ephemeral_node_goes_with_its_session_and_the_lease_ends_first() -> None:
    room = Room()
    room.do(A, create("/a", ephemeral=True))
    room.do(B, get("/a", watch=True))
    room.cut(A, SERVER)
    for _ in range(2000):
        if not room.leased(A):
            break
    assert not room.leased(A)
    assert room.client(B).events == []
    room.run(1.0)
    assert room.client(B).events == [("data", "/a")]
    assert room.do(B, get("/a"))[0].problem is Problem.NO_NODE


def test_who_comes_back_after_its_session_gets_a_new_one() -> None:
    room = Room()
    condition = room.cut(A, SERVER)
    room.run(3)
    room.world.network.better(condition)
    room.run(1)
    client = room.client(A)
    assert client.expired == 1
    assert client.opened[1] > client.opened[0]
    assert room.leased(A)


def test_the_server_keeps_nodes_and_sessions_through_a_crash_and_missed_events_fire() -> None:
    room = Room()
    room.do(A, create("/a", b"1", ephemeral=True))
    room.do(B, get("/a", watch=True))
    room.do(B, get("/later", watch=True))
    room.world.crash(room.world.nodes[SERVER])
    room.run(0.3)
    room.world.nodes[SERVER].restart()
    room.run(1)
    assert room.client(A).opened == room.client(A).opened[:1]
    assert room.do(B, get("/a"))[0].data == b"1"
    room.do(A, put("/a", b"2", -1))
    room.do(A, create("/later"))
    assert room.client(B).events == [("data", "/a"), ("data", "/later")]


def test_calls_under_way_when_the_channel_breaks_are_unknown() -> None:
    room = Room()
    room.world.nodes[SERVER].pause()
    answers = room.do(A, create("/x"), 0.01)
    assert answers == []
    room.world.crash(room.world.nodes[SERVER])
    room.run(0.01)
    room.world.nodes[SERVER].restart()
    room.run(1)
    assert [answer.problem for answer in room.client(A).answers] == [Problem.CONNECTION_LOSS]


def test_a_paused_owner_knows_at_once_that_its_lease_is_over() -> None:
    room = Room()
    assert room.leased(A)
    room.world.nodes[A].pause()
    seen: list[bool] = []
    room.world.after(
        10, room.world.nodes[A].request, lambda client: seen.append(client.session.leased(client.now_us))
    )
    room.run(3)
    room.world.nodes[A].resume()
    room.run(0.1)
    assert seen == [False]


def test_sessions_are_bounded_and_whoever_has_the_last_one_may_ask_for_it_again() -> None:
    context = InOrder(SERVER)
    server = CoordinatorServer(context, ServerConfig(sessions_max=1))
    for sender, nonce in ((A, 7), (B, 8), (A, 7)):
        server.on_message(0, sender, Open(nonce, S))
    assert context.take("send") == [(A, Opened(7, 1, S)), (A, Opened(7, 1, S))]


def test_watches_are_bounded() -> None:
    room = Room(ServerConfig(watches_max=3))
    for number in range(5):
        room.do(A, get(f"/n{number}", watch=True))
    assert room.client(A).expired == 0
    assert room.do(A, create("/n0"))[0].ok


def test_watches_that_find_no_room_leave_nothing_behind_and_are_told() -> None:
    context = InOrder(SERVER)
    server = CoordinatorServer(context, ServerConfig(watches_max=2))
    server.on_message(0, A, Open(7, S))
    server.on_message(0, A, Attach(1, 1, ()))
    for number in range(50):
        server.on_message(0, A, Call(1, number, Operation.GET, f"/n{number}", watch=True))
        if number >= 2:
            server.on_message(0, A, Attach(1, number, ()))
    assert len(server._watches) <= 2
    context.take("send")
    watches = tuple(Watch(EventKind.DATA, f"/w{number}", 0, False) for number in range(3))
    server.on_message(0, A, Attach(1, 99, watches))
    assert context.take("send") == [(A, Fired(1, EventKind.DATA, "/w2")), (A, Attached(1, 99))]


def test_snapshots_in_the_journal_stand_for_what_came_before() -> None:
    room = Room(ServerConfig(snapshot_every=3))
    for number in range(10):
        room.do(A, create(f"/n{number}", str(number).encode()))
    room.world.crash(room.world.nodes[SERVER])
    room.world.nodes[SERVER].restart()
    room.run(1)
    for number in random.Random(1).sample(range(10), 5):
        assert room.do(B, get(f"/n{number}"))[0].data == str(number).encode()


def gone(session: int) -> Callable[[Client], None]:
    return lambda client: client.session.gone(session)


def test_a_session_that_somebody_says_is_dead_ends_once_its_channel_is_broken_and_not_before() -> None:
    room = Room()
    room.do(A, create("/a", ephemeral=True))
    number = room.client(A).opened[0]
    room.do(B, gone(number))
    assert room.do(B, get("/a"))[0].ok
    room.world.kill(room.world.nodes[A])
    room.run(0.02)
    room.do(B, gone(number), 0.02)
    assert room.do(B, get("/a"), 0.02)[0].problem is Problem.NO_NODE


def test_after_a_restart_of_the_server_a_session_that_nobody_knows_ends_when_it_is_said_to_be_dead() -> None:
    room = Room()
    room.do(A, create("/a", ephemeral=True))
    number = room.client(A).opened[0]
    for each in (SERVER, A):
        room.world.kill(room.world.nodes[each])
    room.run(0.3)
    room.world.nodes[SERVER].restart()
    room.run(0.2)
    room.do(B, gone(number), 0.02)
    assert room.do(B, get("/a"), 0.02)[0].problem is Problem.NO_NODE


def test_the_word_of_somebody_without_a_session_ends_nothing() -> None:
    room = Room()
    room.do(A, create("/a", ephemeral=True))
    number = room.client(A).opened[0]
    room.world.kill(room.world.nodes[A])
    room.run(0.05)
    stranger = Gone(0, number)
    room.world.nodes[SERVER].machine.on_message(0, B, stranger)
    assert room.do(B, get("/a"), 0.02)[0].ok

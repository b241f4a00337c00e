"""No message that decodes stops a machine: whatever a peer says, by whatever name, costs that peer at
most."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.examples import examples
from tests.hostile_values import Maker
from tests.unit.protocols import copies_by_hand, mesh_by_hand, proxy_level_by_hand, publisher_by_hand
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.test_publisher_subscriber import Desk as SubscriberDesk

from qanat.checks.raft_hosts import Keeper
from qanat.coordinate.messages import TO_CLIENT
from qanat.coordinate.server import CoordinatorServer, ServerConfig
from qanat.coordinate.session import Session, SessionConfig
from qanat.events.batch import Batch
from qanat.events.errors import RemoteError
from qanat.kernel import Address, Machine
from qanat.protocols.chain import ChainConfig
from qanat.protocols.chain.configuration import Configuration, Member
from qanat.protocols.chain.requests import Configured, Publish, WasReset
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import ClientMeshes, MeshConfig, MeshProxy, ProxyMeshes, Subscribe
from qanat.protocols.proxy_level import ProxyLevelConfig
from qanat.protocols.push_sum import PushSum, PushSumConfig
from qanat.protocols.raft import Kept, RaftConfig
from qanat.protocols.raft.messages import Entry, VoteReply
from qanat.protocols.raft.records import Standing
from qanat.protocols.region.config import RegionConfig
from qanat.protocols.region.machine import RegionReplica
from qanat.protocols.views import Views, ViewsConfig
from qanat.wire.frame import MalformedFrame
from qanat.wire.messages import MessageCodec

ME, BEFORE, AFTER, OTHER, STRANGER = (
    Address(name) for name in ("me", "before", "after", "eu/proxy-1", "x@127.0.0.1:9")
)
PEERS = [BEFORE, AFTER, OTHER, STRANGER, ME]
MINE, THEIRS = 11, 12
NOW = 1_700_000_000_000_000
Made = tuple[Machine[Any, Any], Any]


class Streams(MemoryHistory):
    """What a chain's replica and a proxy's mesh want of a history."""

    def streams(self) -> list[int]:
        return sorted(self._streams)

    def synced(self, stream: int) -> int | None:
        return None

    def holds(self, stream: int) -> bool:
        return stream in self._streams


def history() -> Streams:
    made = Streams()
    made.append(Batch.build(MINE, [b"a", b"b"], source="~x", position=1))
    made.append_numbered(Batch.build(THEIRS, [b"a"], first=1))
    return made


def replica(place: str) -> Callable[[], Made]:
    def make() -> Made:
        context = InOrder(ME)
        machine = RegionReplica(
            context,
            RegionConfig(ChainConfig(), ProxyLevelConfig()),
            history(),
            lambda _context, _listener: copies_by_hand.Session(),
            region="eu",
            owners={MINE: "eu", THEIRS: "us"},
            remote=[OTHER],
            folder="/chains/eu",
            wary_us=1,
        )
        machine.on_start(NOW, [])
        me = Member(ME, 5)
        line = {
            "head": (me, Member(AFTER, 6)),
            "tail": (Member(BEFORE, 4), me),
            "middle": (Member(BEFORE, 4), me, Member(AFTER, 6)),
        }[place]
        machine.manager.me = me
        machine.on_request(NOW, Configured(me, Configuration(7, line, confirmed=True)))
        for record in range(1, machine.chain._written + 1):
            machine.on_persisted(NOW, f"chain/{record}")
        if place == "head":
            machine.on_request(NOW, Publish(1, Batch.build(MINE, [b"c"])))
        return machine, context

    return make


def mesh_client() -> Made:
    return mesh_by_hand.client()


def mesh_proxy() -> Made:
    context = mesh_by_hand.Outputs(ME)
    machine = MeshProxy(context, MeshConfig(), ViewsConfig(), history())
    machine.on_start(NOW, [])
    return machine, context


def proxy_meshes() -> Made:
    context = InOrder(ME)
    machine = ProxyMeshes(context, MeshConfig(), ViewsConfig(), history())
    machine.on_start(NOW, [])
    return machine, context


def client_meshes() -> Made:
    context = InOrder(ME)
    machine = ClientMeshes(context, MeshConfig(), ViewsConfig(), OTHER)
    machine.on_start(NOW, [])
    machine.on_request(NOW, Subscribe(MINE, 0))
    return machine, context


def views() -> Made:
    context = InOrder(ME)
    machine = Views(context, ViewsConfig(), OTHER)
    machine.on_start(NOW, [])
    return machine, context


def push_sum() -> Made:
    context = InOrder(ME)
    machine = PushSum(context, PushSumConfig(), [BEFORE, AFTER])
    machine.on_start(NOW, [])
    return machine, context


def server() -> Made:
    context = InOrder(ME)
    machine = CoordinatorServer(context, ServerConfig())
    machine.on_start(NOW, [])
    return machine, context


def publisher() -> Made:
    desk = publisher_by_hand.Desk()
    desk.join(BEFORE)
    desk.settle()
    return desk.machine, desk.context


def copy() -> Made:
    desk = copies_by_hand.CopyDesk()
    return desk.machine, desk.context


def subscriber() -> Made:
    desk = SubscriberDesk(BEFORE, AFTER)
    return desk.machine, desk.context


def proxy_level() -> Made:
    return proxy_level_by_hand.proxy()


def member(leads: bool) -> Callable[[], Made]:
    def make() -> Made:
        context = InOrder(ME)
        machine = Keeper(context, RaftConfig(pending_records=50), [ME, BEFORE, AFTER])
        kept = Kept()
        kept.apply(Standing(whole=True, lost=False))
        kept.log.put(1, [Entry(1, b"a"), Entry(1, b"b")])
        machine.on_start(NOW, kept.saved())
        if leads:
            machine.on_timer(NOW, "raft/elect")
            machine.on_message(NOW, BEFORE, VoteReply(1, True, True))
            machine.on_message(NOW, BEFORE, VoteReply(1, False, True))
            assert machine.raft.leading is not None
        return machine, context

    return make


MACHINES: dict[str, Callable[[], Made]] = {
    "head": replica("head"), "middle": replica("middle"), "tail": replica("tail"), "mesh client": mesh_client,
    "mesh proxy": mesh_proxy, "proxy's meshes": proxy_meshes, "client's meshes": client_meshes,
    "views": views, "push-sum": push_sum, "coordinator": server, "publisher": publisher,
    "publisher's copy": copy, "subscriber": subscriber, "proxy level": proxy_level,
    "ensemble's member": member(leads=False), "ensemble's leader": member(leads=True),
}  # fmt: skip


def attack(make: Callable[[], Made], seed: int, count: int) -> int:
    """Says `count` things to a machine, with its timers and broken links between them; returns how many it
    heard."""
    rng = random.Random(seed)
    machine, context = make()
    codec = MessageCodec[Any](machine.message_types)
    known = Maker(rng, MINE, THEIRS, 7, 5, 1, *PEERS, "~x", "cache", "/chains/eu")
    heard = 0
    timers: dict[str, None] = {}
    for step in range(count):
        _listen(context, known, timers)
        choice = rng.random()
        if choice < 0.85:
            kind = rng.choice(machine.message_types)
            said = codec.encode(known.message(kind))
            try:
                message = codec.decode(said[0], b"".join(bytes(part) for part in said[1]))
                machine.on_message(NOW + step * 1_000, rng.choice(PEERS), message)
                heard += 1
            except (MalformedFrame, RemoteError):
                continue
        elif choice < 0.95 and timers:
            name = rng.choice(list(timers))
            del timers[name]
            machine.on_timer(NOW + step * 1_000, name)
        else:
            machine.on_link_down(NOW + step * 1_000, rng.choice(PEERS[:-1]))
    return heard


def _listen(context: Any, known: Maker, timers: dict[str, None]) -> None:
    for output in getattr(context, "outputs", []):
        match output:
            case ("send" | "cast", _, message):
                known.hear(message)
            case ("timer", str(name), _):
                timers[name] = None
            case ("cancel", str(name)):
                timers.pop(name, None)
            case ("deliver", WasReset()):
                pass
    if hasattr(context, "outputs"):
        context.outputs.clear()
    else:
        for _, message in [*context.sent, *context.casts]:
            known.hear(message)
        context.sent.clear()
        context.casts.clear()
        timers |= dict.fromkeys(context.timers)


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_that_is_said_to_a_machine_stops_it(name: str) -> None:
    for seed in range(examples(6)):
        assert attack(MACHINES[name], seed, 400) > 100


@pytest.mark.soak
@pytest.mark.parametrize("name", MACHINES)
def test_nothing_that_is_said_to_a_machine_for_long_stops_it(name: str) -> None:
    for seed in range(1_000, 1_300):
        attack(MACHINES[name], seed, 1_500)


def test_a_session_of_the_coordinator_s_survives_its_server() -> None:
    class Listener:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

    for seed in range(examples(6)):
        rng = random.Random(seed)
        context = InOrder(ME)
        session = Session(context, SessionConfig(), OTHER, Listener())
        session.start()
        known = Maker(rng, "/a", 1)
        timers: dict[str, None] = {}
        for step in range(400):
            _listen(context, known, timers)
            if rng.random() < 0.1:
                session.get("/a", lambda _found: None, watch=True)
            session.on_message(NOW + step * 1_000, rng.choice(PEERS), known.message(rng.choice(TO_CLIENT)))
            for name in list(timers):
                if rng.random() < 0.1:
                    del timers[name]
                    session.on_timer(NOW + step * 1_000, name)

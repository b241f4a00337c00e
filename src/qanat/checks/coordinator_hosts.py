"""Coordinators and those who contend through them, under the simulator."""

import enum
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from qanat.coordinate import (
    Answer,
    CoordinatorServer,
    EventKind,
    Problem,
    ServerConfig,
    Session,
    SessionConfig,
)
from qanat.coordinate.ensemble import EnsembleMember
from qanat.kernel import Address, Context, Factory, Machine, Parts
from qanat.protocols.raft import RaftConfig
from qanat.sim import Place, SimNode, World

COORDINATOR, CONTENDER = "coordinator", "contender"
OWNER, COUNTER = "/owner", "/counter"
AGAIN = "again"


class CoordinatorStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of all parts, as a scenario's `[config]`."""

    raft: RaftConfig = RaftConfig()
    session: SessionConfig = SessionConfig()
    server: ServerConfig = ServerConfig()


class Ask(enum.StrEnum):
    COUNT = "count"
    """Add one to the counter, by compare-and-set, until it is certain that it happened."""
    LET_GO = "let-go"
    READ = "read"


class Asked(msgspec.Struct, frozen=True):
    what: Ask
    floor: int = 0
    """The counter was known to be at least this when it was asked."""


class Counted(msgspec.Struct, frozen=True):
    value: int


class Read(msgspec.Struct, frozen=True):
    floor: int
    value: int


class Contender(Machine[Any, Asked]):
    """Wants to own one node, counts in another, and watches both."""

    def __init__(self, context: Context, config: SessionConfig, servers: Sequence[Address]) -> None:
        super().__init__(context)
        self.parts = Parts(self, context)
        self.session = self.parts.add("session", lambda context: Session(context, config, servers, self))
        self.owns = False
        self._round = 0
        """Rises when it lets go: what was asked before tells nothing of now."""
        self.seen = 0
        """The counter as it was when the watch told of it last."""

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.session.start()
        self._watch_counter()

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        self.parts.on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        if not self.parts.on_timer(now_us, name):
            self._contend()

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.parts.on_link_down(now_us, peer)

    def on_request(self, now_us: int, request: Asked) -> None:
        match request.what:
            case Ask.COUNT:
                self._count()
            case Ask.LET_GO:
                if self.owns:
                    self.owns = False
                    self._round += 1
                    self.session.delete(OWNER, -1, lambda answer: self._again())
            case Ask.READ:
                self.session.get(COUNTER, lambda answer: self._read(request.floor, answer))

    # The owner's node

    def on_opened(self, session: int) -> None:
        self._contend()

    def on_expired(self) -> None:
        self.owns = False
        self._watch_counter()

    def on_lease(self) -> None: ...

    def on_event(self, kind: EventKind, path: str) -> None:
        if path == OWNER:
            self._contend()
        else:
            self._watch_counter()

    def _again(self) -> None:
        self.context.set_timer(AGAIN, 50_000)

    def _contend(self) -> None:
        asked_in = self._round
        self.session.get(OWNER, lambda answer: self._found(asked_in, answer), watch=True)

    def _found(self, asked_in: int, answer: Answer) -> None:
        if asked_in != self._round:
            return
        if answer.ok:
            self.owns = answer.owner == self.session.id
        elif answer.problem is Problem.NO_NODE:
            self.owns = False
            self.session.create(OWNER, b"", self._made, ephemeral=True)
        else:
            self._again()

    def _made(self, answer: Answer) -> None:
        if answer.ok:
            self.owns = True
        elif answer.problem is not Problem.NODE_EXISTS:
            self._again()

    # The counter

    def _count(self) -> None:
        self.session.get(COUNTER, self._count_from)

    def _count_from(self, found: Answer) -> None:
        if found.problem is Problem.NO_NODE:
            self.session.create(COUNTER, b"1", lambda answer: self._counted(1, answer))
        elif found.ok:
            value = int(found.data) + 1
            self.session.set(
                COUNTER, str(value).encode(), found.version, lambda answer: self._counted(value, answer)
            )

    def _counted(self, value: int, answer: Answer) -> None:
        if answer.ok:
            self.context.deliver(Counted(value))

    def _read(self, floor: int, answer: Answer) -> None:
        if answer.ok:
            self.context.deliver(Read(floor, int(answer.data)))

    def _watch_counter(self) -> None:
        self.session.get(COUNTER, self._watched, watch=True)

    def _watched(self, answer: Answer) -> None:
        if answer.ok:
            self.seen = int(answer.data)
        elif answer.problem is not Problem.NO_NODE:
            self._watch_counter()


def coordinators(places: Sequence[Place], region: str | None = None) -> list[Address]:
    return [
        place.address for place in places if place.group == COORDINATOR and region in (None, place.region)
    ]


def coordinator_machine(
    context: Context,
    server: ServerConfig,
    raft: RaftConfig,
    members: Sequence[Address],
    member: type[EnsembleMember] = EnsembleMember,
) -> Machine[Any, Any]:
    """One of an ensemble, or the only one."""
    if len(members) == 1:
        return CoordinatorServer(context, server)
    return member(context, server, raft, members)


def builder(
    member: type[EnsembleMember] = EnsembleMember,
) -> Callable[[CoordinatorStudy, Sequence[Place]], Factory]:
    """How a scenario's nodes are made; tests put broken members in."""

    def build(study: CoordinatorStudy, places: Sequence[Place]) -> Factory:
        members = coordinators(places)

        def make(context: Context) -> Machine[Any, Any]:
            if context.address in members:
                return coordinator_machine(context, study.server, study.raft, members, member)
            return Contender(context, study.session, members)

        return make

    return build


def contenders(world: World) -> list[SimNode]:
    return [node for node in world.node_list if node.group == CONTENDER]


def members(world: World) -> list[SimNode]:
    return [node for node in world.node_list if node.group == COORDINATOR]


def contender_of(node: SimNode) -> Contender:
    return cast(Contender, node.machine)

"""Ensembles under the simulator: a machine that keeps what it is told in a log, and answers when it may."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from qanat.kernel import Address, Context, Factory, Machine
from qanat.protocols.raft import MESSAGES, Raft, RaftConfig
from qanat.protocols.raft.messages import RaftMessage
from qanat.sim import Place, SimNode, World

HELD_MAX = 10_000


class Put(msgspec.Struct, frozen=True):
    """A record of the application's."""

    number: int
    attempt: int


class Look(msgspec.Struct, frozen=True):
    """How many records are there? At least `floor` were known to somebody when it was asked."""

    floor: int


class Stored(msgspec.Struct, frozen=True):
    number: int
    record: bytes
    count: int
    """Records up to it."""


class Seen(msgspec.Struct, frozen=True):
    floor: int
    count: int


class Keeper(Machine[RaftMessage, Put | Look]):
    """Counts records; what it says of them waits for the commit and for a round."""

    message_types = MESSAGES
    raft_type = Raft

    def __init__(self, context: Context, config: RaftConfig, members: Sequence[Address]) -> None:
        super().__init__(context)
        self.raft = self.raft_type(context, config, members, list, self)
        self.count = 0
        self._held: deque[tuple[int, int, Stored | Seen]] = deque()
        self._index = 0

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.raft.start(now_us, saved)

    def on_message(self, now_us: int, sender: Address, message: RaftMessage) -> None:
        self.raft.on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        self.raft.on_timer(now_us, name)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.raft.on_link_down(now_us, peer)

    def on_request(self, now_us: int, request: Put | Look) -> None:
        if self.raft.serves and len(self._held) < HELD_MAX:
            if isinstance(request, Put):
                record = f"{request.number}/{request.attempt}".encode()
                self._index = self.raft.propose(record)
                self.count += 1
                self._hold(Stored(request.number, record, self.count))
            else:
                self._hold(Seen(request.floor, self.count))
        self.raft.flush(now_us)

    def _hold(self, item: Stored | Seen) -> None:
        self._held.append((self._index, self.raft.confirm(), item))

    def on_lead(self, now_us: int, records: Sequence[bytes]) -> None:
        self.count, self._index = len(records), 0

    def on_settled(self, now_us: int) -> None:
        while self._held and self.raft.settled(*self._held[0][:2]):
            self.context.deliver(self._held.popleft()[2])

    def on_deposed(self) -> None:
        self._held.clear()


def builder(keeper: type[Keeper] = Keeper) -> Callable[[RaftConfig, Sequence[Place]], Factory]:
    """How a scenario's nodes are made; tests put broken members in."""

    def build(config: RaftConfig, places: Sequence[Place]) -> Factory:
        members = [place.address for place in places]
        return lambda context: keeper(context, config, members)

    return build


def raft_of(node: SimNode) -> Raft:
    """Of whatever machine keeps a log."""
    return cast(Raft, node.machine.raft)  # type: ignore[attr-defined]


def loses_its_disk(world: World, members: Sequence[SimNode], away_us: int) -> None:
    """One member chosen by the seed comes back with nothing, if none of the others is in such a state: more
    is more than an ensemble survives."""
    node = world.workload_rng.choice(members)
    for other in members:
        if not other.up or other.holding is not None or other.disk_stuck:
            return
        if not raft_of(other).seat.kept.whole or raft_of(other).seat.kept.nothing:
            return
    world.crash(node)
    node.wipe()
    world.after(away_us, node.restart)

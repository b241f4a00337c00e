"""What a coordinator on three machines promises, looked at from outside."""

from typing import Any

from qanat.checks.coordinator_hosts import (
    COUNTER,
    Contender,
    Counted,
    Read,
    contender_of,
    contenders,
    members,
)
from qanat.checks.raft_hosts import raft_of
from qanat.coordinate.ensemble import EnsembleMember
from qanat.coordinate.tree import Tree, decode
from qanat.kernel import Address
from qanat.sim import Checker, SimNode, World


class OneOwner(Checker):
    """Who believes to own the node, under a lease, is alone."""

    name = "one-owner"

    def on_step(self, world: World, node: SimNode) -> None:
        if not isinstance(node.machine, Contender) or not _owns(world, node):
            return
        for other in contenders(world):
            if other is not node and other.up and not other.paused and _owns(world, other):
                self.fail(f"it owns the node, and so does {other.address}", node.address)


def _owns(world: World, node: SimNode) -> bool:
    return node.up and contender_of(node).owns and _leased(world, node)


def _leased(world: World, node: SimNode) -> bool:
    return contender_of(node).session.leased(node.now_us)


class LeasesEndFirst(Checker):
    """While a session is leased, no member knows its end to be committed. The committed tree is kept here,
    from the logs."""

    name = "leases"

    def __init__(self, config: object = None) -> None:
        self.tree = Tree()
        self._applied = 0
        self._ended: set[int] = set()
        self._sessions: set[int] = set()

    def on_step(self, world: World, node: SimNode) -> None:
        if isinstance(node.machine, EnsembleMember):
            if self._follow(node):
                for each in contenders(world):
                    self._look(world, each)
        elif isinstance(node.machine, Contender):
            self._look(world, node)

    def _follow(self, node: SimNode) -> bool:
        """Whether there is more than before."""
        seat = raft_of(node).seat
        if not node.up or seat.commit <= self._applied:
            return False
        log = seat.kept.log
        if log.base > self._applied:
            self.tree, self._applied = Tree(), log.base
            for record in log.snapshot:
                self.tree.apply(decode(record))
        for entry in log.from_(self._applied + 1, 1 << 60)[: seat.commit - self._applied]:
            self._applied += 1
            if entry.data:
                self.tree.apply(decode(entry.data))
            self._sessions |= self.tree.sessions.keys()
        self._ended |= self._sessions - self.tree.sessions.keys()
        self._sessions &= self.tree.sessions.keys()
        return True

    def _look(self, world: World, node: SimNode) -> None:
        if node.up and not node.paused:
            session = contender_of(node).session.id
            if session in self._ended and _leased(world, node):
                self.fail(f"it counts on session {session}, whose end is committed", node.address)


class AnsweredIsSeen(LeasesEndFirst):
    """Each count is answered once, and whoever reads later sees it."""

    name = "answered"

    def __init__(self, config: object = None) -> None:
        super().__init__(config)
        self._counted: dict[int, Address] = {}

    def on_step(self, world: World, node: SimNode) -> None:
        if isinstance(node.machine, EnsembleMember):
            self._follow(node)

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Counted):
            before = self._counted.setdefault(item.value, node.address)
            if before != node.address:
                self.fail(f"it counted {item.value}, as {before} did before it", node.address)
        elif isinstance(item, Read) and item.value < item.floor:
            self.fail(f"it reads {item.value}; {item.floor} had been counted when it asked", node.address)

    def waiting_for(self, world: World) -> str | None:
        counted, high = _counter(self.tree), max(self._counted, default=0)
        return f"{high} was counted, and {counted} is committed" if counted < high else None


class Settles(LeasesEndFirst):
    """Once all is well everybody has a lease, one owns the node, all have seen the last count, and no member
    forgot anything."""

    name = "settles"

    def on_step(self, world: World, node: SimNode) -> None:
        if isinstance(node.machine, EnsembleMember):
            self._follow(node)

    def waiting_for(self, world: World) -> str | None:
        for node in world.node_list:
            if not node.up:
                return f"{node.address} is down"
        for node in members(world):
            if isinstance(node.machine, EnsembleMember) and not raft_of(node).seat.kept.whole:
                return f"{node.address} does not count yet"
        for node in contenders(world):
            if not _leased(world, node):
                return f"{node.address} has no lease"
            if contender_of(node).seen != _counter(self.tree):
                return (
                    f"{node.address} saw {contender_of(node).seen} last, the counter is {_counter(self.tree)}"
                )
        if not any(_owns(world, node) for node in contenders(world)):
            return "nobody owns the node"
        return None


def _counter(tree: Tree) -> int:
    node = tree.nodes.get(COUNTER)
    return 0 if node is None else int(node.data)

"""What an ensemble promises, looked at from outside."""

from typing import Any

from qanat.checks.raft_hosts import Seen, Stored, raft_of
from qanat.kernel import Address
from qanat.protocols.raft import RaftConfig
from qanat.sim import Checker, SimNode, World


class OneLeader(Checker):
    """In each term at most one member leads, and it is one that forgot nothing."""

    name = "one-leader"

    def __init__(self, config: object = None) -> None:
        self._leaders: dict[int, Address] = {}

    def members(self, world: World) -> list[SimNode]:
        return world.node_list

    def on_step(self, world: World, node: SimNode) -> None:
        if not node.up or not hasattr(node.machine, "raft"):
            return
        raft = raft_of(node)
        if raft.leading is None:
            return
        if not raft.seat.kept.whole:
            self.fail("it leads, and may have forgotten what it said", node.address)
        other = self._leaders.setdefault(raft.leading.term, node.address)
        if other != node.address:
            self.fail(f"it leads term {raft.leading.term}, and so does {other}", node.address)


class CommittedStays(Checker):
    """What one member calls committed, no other ever calls something else: each one's is the beginning of the
    longest."""

    name = "committed"

    def __init__(self, config: object = None) -> None:
        self.truth: list[bytes] = []
        self._looked_at: dict[tuple[Address, int], tuple[int, int]] = {}

    def on_step(self, world: World, node: SimNode) -> None:
        if not node.up or not hasattr(node.machine, "raft"):
            return
        seat = raft_of(node).seat
        key, state = (node.address, node.life), (seat.commit, seat.kept.log.base)
        if self._looked_at.get(key) == state:
            return
        self._looked_at[key] = state
        records = seat.kept.log.records(seat.commit)
        same = min(len(records), len(self.truth))
        if records[:same] != self.truth[:same]:
            at = next(n for n in range(same) if records[n] != self.truth[n])
            self.fail(
                f"record {at + 1} is committed there as {records[at]!r}, and was {self.truth[at]!r}",
                node.address,
            )
        self.truth += records[same:]


class AnsweredIsKept(CommittedStays):
    """What was answered is committed; and who asks later sees it."""

    name = "answered"

    def __init__(self, config: object = None) -> None:
        super().__init__(config)
        self._answered: dict[int, bytes] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Stored):
            before = self._answered.setdefault(item.count, item.record)
            if before != item.record:
                self.fail(f"record {item.count} was answered as {item.record!r}, and before as {before!r}")
        elif isinstance(item, Seen) and item.count < item.floor:
            self.fail(f"it sees {item.count} records; {item.floor} had been answered when it was asked")

    def on_step(self, world: World, node: SimNode) -> None:
        super().on_step(world, node)
        if node.up and hasattr(node.machine, "raft") and raft_of(node).serves:
            for count in [each for each in self._answered if each <= len(self.truth)]:
                record = self._answered.pop(count)
                if self.truth[count - 1] != record:
                    self.fail(
                        f"record {count} was answered as {record!r}, and {self.truth[count - 1]!r} is"
                        " committed"
                    )

    def on_healed(self, world: World) -> None:
        """Looked at again when a leader serves: by then all of it must be committed."""

    def waiting_for(self, world: World) -> str | None:
        return f"record {min(self._answered)} was answered, and nobody has it" if self._answered else None


class Settles(Checker):
    """Once all is well one member leads, all are whole, and all know the same to be committed."""

    name = "settles"

    def __init__(self, config: RaftConfig | None = None) -> None:
        self.asked: set[int] = set()
        self.stored: set[int] = set()

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Stored):
            self.stored.add(item.number)

    def waiting_for(self, world: World) -> str | None:
        members = [node for node in world.node_list if hasattr(node.machine, "raft")]
        for node in members:
            if not node.up:
                return f"{node.address} is down"
            if not raft_of(node).seat.kept.whole:
                return f"{node.address} does not count yet"
        leaders = [node for node in members if raft_of(node).serves]
        if len(leaders) != 1:
            return f"{len(leaders)} lead"
        for node in members:
            if raft_of(node).seat.commit != raft_of(leaders[0]).seat.commit:
                return f"{node.address} knows less to be committed than the leader"
        missing = self.asked - self.stored
        return f"{min(missing)} was never answered" if missing else None

"""Ensembles under the simulator: who asks them, and what they promise."""

from typing import Any

from qanat.checks.raft_checkers import AnsweredIsKept, CommittedStays, OneLeader, Settles
from qanat.checks.raft_hosts import Look, Put, Stored, builder, loses_its_disk, raft_of
from qanat.protocols.raft import RaftConfig
from qanat.sim import ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import MS, S


class Keeping(Workload, frozen=True, tag="keeping"):
    """Records are put at all members that believe to lead, again and again until one says that it is stored;
    and are asked for."""

    every_ms: float = 40.0
    retry_ms: float = 700.0
    until_s: float = 10.0
    disk_lost_every_s: float = 0.0
    """A member loses its disk so often, on average; 0 never."""
    disk_lost_for_s: float = 0.3

    def start(self, world: World) -> None:
        _Client(self, world).start()


class _Client:
    def __init__(self, workload: Keeping, world: World) -> None:
        self._workload, self._world = workload, world
        self._number = 0
        self._high = 0
        self._stored: set[int] = set()
        self._settles = next((one for one in world.checkers if isinstance(one, Settles)), None)
        world.deliver_hooks.append(self._on_deliver)

    def start(self) -> None:
        self._ask()
        if self._workload.disk_lost_every_s:
            self._world.after(round(self._workload.disk_lost_every_s * S), self._lose)

    def _on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Stored):
            self._stored.add(item.number)
            self._high = max(self._high, item.count)

    def _ask(self) -> None:
        if self._world.now > self._workload.until_s * S:
            return
        self._number += 1
        if self._settles is not None:
            self._settles.asked.add(self._number)
        self._put(self._number, 1)
        self._tell_all(Look(self._high))
        self._world.after(
            round(self._workload.every_ms * MS * (0.5 + self._world.workload_rng.random())), self._ask
        )

    def _put(self, number: int, attempt: int) -> None:
        if number not in self._stored:
            self._tell_all(Put(number, attempt))
            self._world.after(round(self._workload.retry_ms * MS), self._put, number, attempt + 1)

    def _tell_all(self, request: Put | Look) -> None:
        """Also those that lead no more and do not know it."""
        for node in self._world.node_list:
            if node.up and raft_of(node).serves:
                node.request(request)

    def _lose(self) -> None:
        if self._world.now > self._workload.until_s * S:
            return
        workload = self._workload
        loses_its_disk(self._world, self._world.node_list, round(workload.disk_lost_for_s * S))
        every_us = workload.disk_lost_every_s * S * (0.5 + self._world.workload_rng.random())
        self._world.after(round(every_us), self._lose)


KIT = ProtocolKit(
    name="raft",
    config=RaftConfig,
    build=builder(),
    checkers=by_name(OneLeader, CommittedStays, AnsweredIsKept, Settles),
    workloads=(Keeping,),
)

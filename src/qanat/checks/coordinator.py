"""Coordinators under the simulator: contenders for one node, and what they are promised."""

from typing import Any

from qanat.checks.coordinator_checkers import AnsweredIsSeen, LeasesEndFirst, OneOwner, Settles
from qanat.checks.coordinator_hosts import (
    Ask,
    Asked,
    CoordinatorStudy,
    Counted,
    builder,
    contenders,
    members,
)
from qanat.checks.raft_checkers import OneLeader
from qanat.checks.raft_hosts import loses_its_disk
from qanat.sim import ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import MS, S


class Contending(Workload, frozen=True, tag="contending"):
    """Contenders count, read what was counted, and let go of what they own."""

    every_ms: float = 60.0
    let_go_every_s: float = 1.0
    until_s: float = 10.0
    disk_lost_every_s: float = 0.0
    """A coordinator loses its disk so often, on average; 0 never."""
    disk_lost_for_s: float = 0.3

    def start(self, world: World) -> None:
        _Crowd(self, world).start()


class _Crowd:
    def __init__(self, workload: Contending, world: World) -> None:
        self._workload, self._world = workload, world
        self._high = 0
        world.deliver_hooks.append(self._on_deliver)

    def start(self) -> None:
        self._ask()
        self._let_go()
        if self._workload.disk_lost_every_s:
            self._world.after(round(self._workload.disk_lost_every_s * S), self._lose)

    def _on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Counted):
            self._high = max(self._high, item.value)

    @property
    def _over(self) -> bool:
        return self._world.now > self._workload.until_s * S

    def _draw(self) -> float:
        return 0.5 + self._world.workload_rng.random()

    def _ask(self) -> None:
        if self._over:
            return
        who = contenders(self._world)
        rng = self._world.workload_rng
        rng.choice(who).request(Asked(Ask.COUNT))
        rng.choice(who).request(Asked(Ask.READ, self._high))
        self._world.after(round(self._workload.every_ms * MS * self._draw()), self._ask)

    def _let_go(self) -> None:
        if self._over:
            return
        for node in contenders(self._world):
            node.request(Asked(Ask.LET_GO))
        self._world.after(round(self._workload.let_go_every_s * S * self._draw()), self._let_go)

    def _lose(self) -> None:
        if self._over:
            return
        loses_its_disk(self._world, members(self._world), round(self._workload.disk_lost_for_s * S))
        self._world.after(round(self._workload.disk_lost_every_s * S * self._draw()), self._lose)


KIT = ProtocolKit(
    name="coordinator",
    config=CoordinatorStudy,
    build=builder(),
    checkers=by_name(OneLeader, OneOwner, LeasesEndFirst, AnsweredIsSeen, Settles),
    workloads=(Contending,),
)

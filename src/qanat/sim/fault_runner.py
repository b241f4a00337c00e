"""When faults begin and end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qanat.sim.faults import Fault, Undo
from qanat.sim.units import S

if TYPE_CHECKING:
    from qanat.sim.world import World


class FaultRunner:
    """Begins faults, ends them in time, and ends them all when the network is to be well again."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._active: dict[int, Undo] = {}
        self._begun = 0
        self.counts: dict[str, int] = {}

    def schedule(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._world.at(round(fault.at_s * S), self.begin, fault)

    def begin(self, fault: Fault) -> None:
        kind = str(fault.__struct_config__.tag)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._world.note("fault", None, "begins", fault)
        self._begun += 1
        number = self._begun
        self._active[number] = fault.begin(self._world)
        if fault.for_s is not None:
            self._world.after(round(fault.for_s * S), self._end, number, kind)

    def _end(self, number: int, kind: str) -> None:
        undo = self._active.pop(number, None)
        if undo is not None:
            self._world.note("fault", None, "ends", kind)
            undo()

    def heal(self) -> None:
        """End everything; a node that is down for any reason boots."""
        self._world.note("fault", None, "all healed")
        while self._active:
            self._active.pop(min(self._active))()
        for node in self._world.node_list:
            if not node.up:
                self._world.after(0, node.restart)

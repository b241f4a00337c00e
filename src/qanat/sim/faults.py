"""Faults that a scenario can name: each is a small table in the file, and one class here.

A fault begins, and ends after `for_s` or when the safety phase is over, whichever is first. Nodes are
named by shell patterns (`eu/*`); `pick` takes that many of them at random, by the seed.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from qanat.events.errors import LocalError
from qanat.sim.paths import Condition
from qanat.sim.units import MS, S

if TYPE_CHECKING:
    from qanat.sim.node import SimNode
    from qanat.sim.world import World

Undo = Callable[[], None]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", kw_only=True):
    """What all faults share."""

    at_s: float = 0.0
    """Virtual seconds after the start."""
    for_s: float | None = None
    """How long it lasts; none: until the safety phase ends."""

    def __post_init__(self) -> None:
        if self.at_s < 0:
            raise ValueError("at_s must not be negative")
        if self.for_s is not None and self.for_s <= 0:
            raise ValueError("for_s must be above 0; leave it out to last until the safety phase ends")

    def patterns(self) -> list[tuple[str, ...]]:
        """The sets of nodes it names; each must match somebody."""
        return []

    def begin(self, world: "World") -> Undo:
        """Make it happen; the result ends it."""
        raise NotImplementedError


class _NodeFault(Fault, frozen=True):
    nodes: tuple[str, ...] = ("*",)
    pick: int | None = None

    def patterns(self) -> list[tuple[str, ...]]:
        return [self.nodes]

    def begin(self, world: "World") -> Undo:
        hurt = [node for node in choose(world, self.nodes, self.pick) if self.can_hurt(node)]
        for node in hurt:
            self.hurt(world, node)

        def undo() -> None:
            for node in hurt:
                self.mend(world, node)

        return undo

    def can_hurt(self, node: "SimNode") -> bool:
        return True

    def hurt(self, world: "World", node: "SimNode") -> None:
        raise NotImplementedError

    def mend(self, world: "World", node: "SimNode") -> None:
        raise NotImplementedError


class Crash(_NodeFault, frozen=True, tag="crash"):
    """Power is cut: what was not synced is lost or torn. The node boots again at the end."""

    def can_hurt(self, node: "SimNode") -> bool:
        return node.up

    def hurt(self, world: "World", node: "SimNode") -> None:
        world.crash(node)

    def mend(self, world: "World", node: "SimNode") -> None:
        world.after(0, node.restart)


class Kill(_NodeFault, frozen=True, tag="kill"):
    """The process dies and its machine does not: channels break at once, and new ones are refused until it
    boots again at the end. What it had not synced may be lost as in a crash, which is worse than what
    happens."""

    def can_hurt(self, node: "SimNode") -> bool:
        return node.up

    def hurt(self, world: "World", node: "SimNode") -> None:
        world.kill(node)

    def mend(self, world: "World", node: "SimNode") -> None:
        world.after(0, node.restart)


class Forget(Crash, frozen=True, tag="forget"):
    """Power is cut, and what was on disk is not there again: all of it, or what is newer than an older copy
    of it."""

    share: float = 0.0
    """How much of the journal the copy has; 0: there is none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share <= 1:
            raise ValueError("share lies between 0 and 1")

    def hurt(self, world: "World", node: "SimNode") -> None:
        super().hurt(world, node)
        node.forget(self.share)


class Pause(_NodeFault, frozen=True, tag="pause"):
    """The node stops computing; what comes for it waits, up to its inbox."""

    def can_hurt(self, node: "SimNode") -> bool:
        return node.up and not node.paused

    def hurt(self, world: "World", node: "SimNode") -> None:
        node.pause()

    def mend(self, world: "World", node: "SimNode") -> None:
        world.after(0, node.resume)


class DiskStuck(_NodeFault, frozen=True, tag="disk-stuck"):
    """The disk is full or hangs: no sync completes, of the journal or of a log, and nothing that waits for
    one leaves the node."""

    def hurt(self, world: "World", node: "SimNode") -> None:
        node.stick_disk(True)

    def mend(self, world: "World", node: "SimNode") -> None:
        node.stick_disk(False)


class ClockJump(_NodeFault, frozen=True, tag="clock-jump"):
    """The wall clock jumps by `by_ms` (either way), and stays wrong until it is set right at the end."""

    by_ms: float = 1000.0

    def hurt(self, world: "World", node: "SimNode") -> None:
        node.clock.jump(round(self.by_ms * MS))

    def mend(self, world: "World", node: "SimNode") -> None:
        node.clock.jump(-round(self.by_ms * MS))


class ClockDrift(_NodeFault, frozen=True, tag="clock-drift"):
    """The clock, timers too, runs fast (or slow, when negative) by `ppm` microseconds a second."""

    ppm: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -900_000 <= self.ppm <= 900_000:
            raise ValueError("ppm must lie between -900000 and 900000")

    def hurt(self, world: "World", node: "SimNode") -> None:
        node.clock.drift(world.now, self.ppm)

    def mend(self, world: "World", node: "SimNode") -> None:
        node.clock.drift(world.now, 0)


class _LinkFault(Fault, frozen=True):
    between: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Two sets of nodes; the fault is on every path from one to the other."""
    isolate: tuple[str, ...] | None = None
    """Or one set: the fault is between it and all the others."""
    pick: int | None = None
    """Of `isolate`, take this many."""
    one_way: bool = False
    """Only from the first set to the second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.isolate is not None and self.between is not None:
            raise ValueError("give `between` or `isolate`, not both")
        if self.pick is not None and self.isolate is None:
            raise ValueError("`pick` goes with `isolate`")

    def patterns(self) -> list[tuple[str, ...]]:
        return [*(self.between or ()), *([self.isolate] if self.isolate is not None else [])]

    def sides(self, world: "World") -> tuple[frozenset[int], frozenset[int]]:
        everyone = frozenset(range(len(world.node_list)))
        if self.isolate is not None:
            inside = frozenset(node.index for node in choose(world, self.isolate, self.pick))
            return inside, everyone - inside
        if self.between is not None:
            one, other = (choose(world, side, None) for side in self.between)
            return frozenset(node.index for node in one), frozenset(node.index for node in other)
        return everyone, everyone


class Cut(_LinkFault, frozen=True, tag="cut"):
    """Nothing passes: between two sets, around one set, or (with neither) anywhere."""

    def begin(self, world: "World") -> Undo:
        one, other = self.sides(world)
        return _worsen(world, Condition(one, other, both_ways=not self.one_way, cut=True))


class Reject(_LinkFault, frozen=True, tag="reject"):
    """A firewall on the way answers for everybody behind it: channels break at once, and new ones are
    refused, though nobody is dead."""

    def begin(self, world: "World") -> Undo:
        one, other = self.sides(world)
        return _worsen(world, Condition(one, other, both_ways=not self.one_way, cut=True, rejects=True))


class RegionCut(Fault, frozen=True, tag="region-cut"):
    """Nothing passes between one region, chosen by the seed, and another one, or all others. Inside all goes
    on."""

    one_way: bool = False
    from_all: bool = False

    def begin(self, world: "World") -> Undo:
        regions = sorted({node.region for node in world.node_list})
        one, other = world.fault_rng.sample(regions, 2) if len(regions) > 1 else ("", "")
        inside = frozenset(node.index for node in world.node_list if node.region == one)
        outside = frozenset(
            node.index
            for node in world.node_list
            if node.region != one and (self.from_all or node.region == other)
        )
        return _worsen(world, Condition(inside, outside, both_ways=not self.one_way, cut=True))


class Degrade(_LinkFault, frozen=True, tag="degrade"):
    """Links lose, double and hold back more datagrams than they do by nature."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, between 0 and 1")

    def begin(self, world: "World") -> Undo:
        one, other = self.sides(world)
        condition = Condition(
            one,
            other,
            both_ways=not self.one_way,
            loss=self.loss,
            duplicate=self.duplicate,
            reorder=self.reorder,
        )
        return _worsen(world, condition)


class Clog(_LinkFault, frozen=True, tag="clog"):
    """Rolling: `links` paths at a time get `extra_ms` of latency, and others every `every_s`."""

    extra_ms: float = 500.0
    links: int = 1
    every_s: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.links < 1 or self.every_s <= 0 or self.extra_ms < 0:
            raise ValueError("a clog needs links of at least 1, every_s above 0 and extra_ms not negative")

    def begin(self, world: "World") -> Undo:
        one, other = (sorted(side) for side in self.sides(world))
        active: list[Condition] = []
        ended = False

        def unclog() -> None:
            for condition in active:
                world.network.better(condition)
            active.clear()

        def roll() -> None:
            unclog()
            if ended or not one or not other:
                return
            for _ in range(self.links):
                source, target = world.fault_rng.choice(one), world.fault_rng.choice(other)
                sides = frozenset((source,)), frozenset((target,))
                condition = Condition(*sides, both_ways=not self.one_way, extra_us=round(self.extra_ms * MS))
                active.append(condition)
                world.network.worsen(condition)
            world.after(round(self.every_s * S), roll)

        def end() -> None:
            nonlocal ended
            ended = True
            unclog()

        roll()
        return end


AnyFault = (
    Crash
    | Kill
    | Forget
    | Pause
    | DiskStuck
    | ClockJump
    | ClockDrift
    | Cut
    | Reject
    | RegionCut
    | Degrade
    | Clog
)


def choose(world: "World", patterns: Sequence[str], pick: int | None) -> list["SimNode"]:
    """Nodes whose names match, in their own order; `pick` of them at random."""
    nodes = [node for node in world.node_list if matches(node.address, patterns)]
    if not nodes:
        raise LocalError(f"no node matches {', '.join(map(repr, patterns))}")
    if pick is None:
        return nodes
    chosen = world.fault_rng.sample(range(len(nodes)), min(pick, len(nodes)))
    return [nodes[index] for index in sorted(chosen)]


def matches(address: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(address, pattern) for pattern in patterns)


def _worsen(world: "World", condition: Condition) -> Undo:
    world.network.worsen(condition)
    return lambda: world.network.better(condition)

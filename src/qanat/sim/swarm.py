"""Faults chosen by the seed: each run takes a random subset of the kinds, each at a random rate.

Leaving kinds out matters as much as taking them: a run in which nothing ever crashes gets much further
into the trouble that cuts alone can make. (Groce et al., "Swarm testing"; TigerBeetle's simulator.)
"""

import random
from collections.abc import Callable

import msgspec

from qanat.sim.faults import (
    ClockDrift,
    ClockJump,
    Clog,
    Crash,
    Cut,
    Degrade,
    DiskStuck,
    Fault,
    Forget,
    Kill,
    Pause,
    RegionCut,
)


class Swarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[swarm]` table of a scenario."""

    kinds: tuple[str, ...] | None = None
    """Kinds to choose from; none: all of them."""
    take: float = 0.5
    """Chance that a run has a given kind at all; a half makes every pair of kinds meet in a quarter of
    runs."""
    per_minute: tuple[float, float] = (2.0, 30.0)
    """Range of a kind's rate, drawn once per run, evenly in the logarithm."""
    lasts_s: tuple[float, float] = (0.05, 5.0)
    """Range of how long one fault lasts, evenly in the logarithm: from a blip to beyond most timeouts."""
    nodes: tuple[str, ...] = ("*",)
    """Whom faults of nodes may hit."""
    forgetful: tuple[str, ...] = ()
    """Who may lose its journal: a kind of fault that most nodes cannot survive."""
    worst_loss: float = 0.3
    """Datagram loss, doubling and reordering each reach at most this."""

    def __post_init__(self) -> None:
        for name in ("per_minute", "lasts_s"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} is a range [low, high] with 0 < low <= high")
        for name in ("take", "worst_loss"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} lies between 0 and 1")
        if "forget" in (self.kinds or ()) and not self.forgetful:
            raise ValueError("the kind 'forget' needs `forgetful`: who may lose its journal")
        unknown = [kind for kind in self.kinds or () if kind not in SWARM_KINDS]
        if unknown:
            raise ValueError(f"kinds: there is no {unknown[0]!r}; there are {', '.join(SWARM_KINDS)}")


Draw = Callable[[Swarm, random.Random, float, float], Fault]


def _crash(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return Crash(at_s=at_s, for_s=for_s, nodes=swarm.nodes, pick=1)


def _kill(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return Kill(at_s=at_s, for_s=for_s, nodes=swarm.nodes, pick=1)


def _forget(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return Forget(at_s=at_s, for_s=for_s, nodes=swarm.forgetful, pick=1)


def _pause(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return Pause(at_s=at_s, for_s=for_s, nodes=swarm.nodes, pick=rng.randint(1, 2))


def _cut(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return Cut(at_s=at_s, for_s=for_s, isolate=swarm.nodes, pick=rng.randint(1, 3))


def _one_way(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return Cut(at_s=at_s, for_s=for_s, isolate=swarm.nodes, pick=rng.randint(1, 3), one_way=True)


def _degrade(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    loss, duplicate, reorder = (round(rng.random() * swarm.worst_loss, 4) for _ in range(3))
    return Degrade(at_s=at_s, for_s=for_s, loss=loss, duplicate=duplicate, reorder=reorder)


def _clog(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    extra_ms = round(50 * 40 ** rng.random(), 1)  # 50 ms to 2 s
    return Clog(at_s=at_s, for_s=for_s, links=rng.randint(1, 4), extra_ms=extra_ms, every_s=0.5)


def _jump(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    by_ms = round(rng.choice((-1, 1)) * 10 * 1000 ** rng.random(), 1)  # 10 ms to 10 s
    return ClockJump(at_s=at_s, for_s=for_s, nodes=swarm.nodes, pick=1, by_ms=by_ms)


def _drift(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return ClockDrift(at_s=at_s, for_s=for_s, nodes=swarm.nodes, pick=1, ppm=rng.randint(-50_000, 50_000))


def _disk(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    return DiskStuck(at_s=at_s, for_s=for_s, nodes=swarm.nodes, pick=1)


def _region_cut(swarm: Swarm, rng: random.Random, at_s: float, for_s: float) -> Fault:
    one_way, from_all = rng.random() < 0.3, rng.random() < 0.5
    return RegionCut(at_s=at_s, for_s=for_s, one_way=one_way, from_all=from_all)


SWARM_KINDS: dict[str, Draw] = {
    "crash": _crash,
    "pause": _pause,
    "cut": _cut,
    "one-way": _one_way,
    "degrade": _degrade,
    "clog": _clog,
    "clock-jump": _jump,
    "clock-drift": _drift,
    "disk-stuck": _disk,
    "region-cut": _region_cut,
    "kill": _kill,
    "forget": _forget,
}


def draw_faults(swarm: Swarm, rng: random.Random, until_s: float) -> list[Fault]:
    """This run's faults, over `until_s` seconds; each kind's come at exponential intervals."""
    faults: list[Fault] = []
    every = tuple(kind for kind in SWARM_KINDS if kind != "forget" or swarm.forgetful)
    for kind in swarm.kinds if swarm.kinds is not None else every:
        taken = rng.random() < swarm.take
        per_second = _between(rng, swarm.per_minute) / 60
        if not taken:
            continue
        at_s = rng.expovariate(per_second)
        while at_s < until_s:
            faults.append(
                SWARM_KINDS[kind](swarm, rng, round(at_s, 6), round(_between(rng, swarm.lasts_s), 6))
            )
            at_s += rng.expovariate(per_second)
    return faults


def _between(rng: random.Random, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return float(low * (high / low) ** rng.random())

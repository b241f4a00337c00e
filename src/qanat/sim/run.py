"""One run of a scenario: faults and safety first, then a healed network and liveness."""

from typing import TextIO

import msgspec

from qanat.sim.check import Violation, overrides
from qanat.sim.fault_runner import FaultRunner
from qanat.sim.links import us_per_byte
from qanat.sim.paths import Pipe
from qanat.sim.scenario import Scenario
from qanat.sim.swarm import draw_faults
from qanat.sim.trace import Trace
from qanat.sim.units import MS, S
from qanat.sim.world import World


class Outcome(msgspec.Struct, frozen=True):
    """What a run came to. `trace` is the hash of all that happened: equal for equal seeds, anywhere."""

    seed: int
    trace: str
    violations: tuple[Violation, ...]
    virtual_us: int
    settled_us: int | None
    """How long after healing every liveness checker was content; None if that was not reached or not
    asked."""
    messages: int
    sent_bytes: int
    timers: int
    dropped: dict[str, int]
    duplicated: int
    faults: dict[str, int]


def run(scenario: Scenario, seed: int, *, trace_file: TextIO | None = None, tracing: bool = True) -> Outcome:
    """Run a scenario once; the outcome depends on the scenario and the seed alone."""
    world = build(scenario, seed, trace_file=trace_file, tracing=tracing)
    faults = FaultRunner(world)
    world.start()
    chosen = list(scenario.faults)
    if scenario.swarm is not None:
        chosen += draw_faults(scenario.swarm, world.fault_rng, scenario.time.safety_s)
    faults.schedule(chosen)
    if scenario.workload is not None:
        scenario.workload.start(world)
    safety_us = round(scenario.time.safety_s * S)
    world.run(safety_us)
    settled_us = None
    if not world.violations:
        faults.heal()
        for checker in world.checkers:
            world.after(0, checker.on_healed, world)
        settled_us = _settle(world, safety_us, round(scenario.time.liveness_s * S), scenario.time.poll_ms)
    return Outcome(
        seed=seed,
        trace=world.trace.digest() if tracing else "",
        violations=tuple(world.violations),
        virtual_us=world.now,
        settled_us=settled_us,
        messages=world.messages,
        sent_bytes=world.network.sent_bytes(),
        timers=world.timers_fired,
        dropped=dict(sorted(world.network.dropped.items())),
        duplicated=world.network.duplicated,
        faults=faults.counts,
    )


def build(scenario: Scenario, seed: int, *, trace_file: TextIO | None = None, tracing: bool = True) -> World:
    """The scenario's world before its first instant."""
    kit = scenario.kit
    world = World(
        seed,
        links=scenario.links,
        disk=scenario.disk,
        checkers=[kit.checkers[name](scenario.config) for name in scenario.check.checkers],
        check_every=scenario.check.every,
        trace=Trace(trace_file),
        tracing=tracing,
    )
    factory = kit.build(scenario.config, scenario.places)
    groups = {(group.region, group.name): group for group in scenario.groups}
    for place in scenario.places:
        group = groups[place.region, place.group]
        world.add(
            place.address,
            factory,
            region=place.region,
            group=place.group,
            uplink=_pipe(group.uplink_mbit_s),
            downlink=_pipe(group.downlink_mbit_s),
        )
    return world


def _pipe(mbit_s: float | None) -> Pipe | None:
    return None if mbit_s is None else Pipe(us_per_byte(mbit_s))


def _settle(world: World, healed_us: int, at_most_us: int, poll_ms: float) -> int | None:
    """Run on until no checker waits for anything; what still waits at the end is a violation."""
    waiting = [one for one in world.checkers if overrides(one, "waiting_for")]
    end_us = healed_us + at_most_us
    while waiting and world.now < end_us and not world.violations:
        world.run(min(end_us, world.now + round(poll_ms * MS)))
        if not world.violations and not any(one.waiting_for(world) for one in waiting):
            return world.now - healed_us
    if not waiting:
        world.run(end_us)
    if not world.violations:
        world.stepping = None
        for checker in waiting:
            missing = checker.waiting_for(world)
            if missing is not None:
                world.violate(checker.name, f"{at_most_us / S:g} s after healing: {missing}")
    return None

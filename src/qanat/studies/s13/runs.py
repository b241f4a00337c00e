"""The runs behind Fig. 5, 6 and 7: what goes in, what comes out, and many of them over all cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from itertools import pairwise

import msgspec

from qanat.events.errors import InvariantError
from qanat.protocols.mesh import MeshConfig
from qanat.protocols.proxy_level import ProxyLevelConfig
from qanat.sim import World
from qanat.sim.paths import Condition
from qanat.sim.processes import pool
from qanat.studies.registry import Say
from qanat.studies.s13.meter import Meter
from qanat.studies.s13.world import (
    EVENT_BYTES,
    FOUR,
    THREE,
    Load,
    Publisher,
    Settings,
    build_world,
    proxy_of,
)

S = 1_000_000
EVENTS_PER_S = 2_592_000.0
"""Of all regions together: what the paper's prototype carried at most with three proxies."""
WARM_UP_S = 3
"""Until views are full; in its last second each region publishes a trickle, so that subscriptions are
established."""
TRICKLE = Load(events_per_s=3000, batch_ms=100.0)
BEGIN_US = WARM_UP_S * S
"""When the load begins: the paper's time 0."""


CUT_C_EVENT_S = 25_000.0
"""C in Fig. 7: at 648,000 events/s a silent source loses a stream after 0.2 s, the time of one advertisement,
and the owner gets it back from a third proxy when its advertisement comes 0.17 s after the other's. Four
times as much works as well, but more slowly."""
PATIENCE_US = 300_000
"""Latencies are of batches that had at least so much time to arrive before the end: a batch that has not, and
counts with its age, is then above the 300 ms that the paper speaks of."""


class PointSpec(msgspec.Struct, frozen=True):
    """One point of Fig. 5 or 6: three regions, F, the shuffle time, and a share of the load."""

    clients: int
    """In each region."""
    fanout: int
    shuffle_ms: float
    load: float = 1.0
    measure_s: float = 1.0
    from_s: float = 0.3
    """ "Measurements do not start until 300 ms into an experiment"."""
    trickle: bool = True

    @property
    def events_per_s(self) -> float:
        return EVENTS_PER_S * self.load

    def __str__(self) -> str:
        return f"F={self.fanout}, shuffle {self.shuffle_ms:g} ms, load {self.load:.2f}"


class Point(msgspec.Struct, frozen=True):
    spec: PointSpec
    throughput: float
    """Events/s that the average client got."""
    by_region: dict[str, float]
    """The same of the events that each region published."""
    latency_ms: dict[str, float]
    """Mean, by the region of origin, from its proxy to the last of all clients. A batch that is not there at
    the end of the run counts with its age: under overload this is too low."""
    copies: float
    """Of all events, that an average proxy sent into its region."""
    messages: int

    @property
    def share(self) -> float:
        """Of the load, that arrived."""
        return self.throughput / self.spec.events_per_s

    @property
    def worst_latency_ms(self) -> float:
        return max(self.latency_ms.values())


class CutSpec(msgspec.Struct, frozen=True):
    """Fig. 7: four regions, the link between regions 2 and 3 is out for a time."""

    clients: int
    cut_s: float = 19.0
    heal_s: float = 41.0
    end_s: float = 55.0
    load: float = 1.0
    """Of the same total as with three regions: the load of a client is what its links know of."""

    def __str__(self) -> str:
        return f"four regions, cut from {self.cut_s:g} to {self.heal_s:g} s"


class Timeline(msgspec.Struct, frozen=True):
    """By `step_s` from the start of the load."""

    spec: CutSpec
    step_s: float
    throughput: list[float]
    """Events/s of the average client."""
    latency_ms: dict[str, list[float]]
    """By region of origin, of batches published in that step."""
    messages: int


Spec = PointSpec | CutSpec
Result = Point | Timeline


def measure(spec: Spec) -> Result:
    """One run; importable, since other processes call it."""
    return measure_cut(spec) if isinstance(spec, CutSpec) else measure_point(spec)


def measure_point(spec: PointSpec) -> Point:
    settings = Settings(
        THREE,
        spec.clients,
        mesh=MeshConfig(
            fanout=spec.fanout,
            shuffle_ms=spec.shuffle_ms,
            proxy_shuffle_ms=spec.shuffle_ms,
            idle_ms=max(1000.0, spec.shuffle_ms),
        ),
    )
    from_us = BEGIN_US + round(spec.from_s * S)
    end_us = from_us + round(spec.measure_s * S)
    world = build_world(settings)
    meter = Meter(world, spec.clients * len(THREE.regions))
    if spec.trickle:
        Publisher(world, settings, TRICKLE, BEGIN_US - S, BEGIN_US)
    Publisher(world, settings, Load(spec.events_per_s), BEGIN_US, end_us)
    _run(world, from_us)
    sent = _sent_bytes(world, settings)
    _run(world, end_us)
    until_us = max(from_us + 1, end_us - PATIENCE_US)
    streams = {region: settings.stream(region) for region in THREE.regions}
    return Point(
        spec,
        meter.throughput(from_us, end_us),
        {region: meter.throughput(from_us, end_us, stream) for region, stream in streams.items()},
        {region: meter.latency_ms(stream, from_us, until_us, end_us) for region, stream in streams.items()},
        (_sent_bytes(world, settings) - sent)
        / (spec.events_per_s * EVENT_BYTES * spec.measure_s * len(THREE.regions)),
        world.messages,
    )


def measure_cut(spec: CutSpec, step_s: float = 0.2) -> Timeline:
    settings = Settings(FOUR, spec.clients, proxy_level=ProxyLevelConfig(c_event_s=CUT_C_EVENT_S))
    end_us = BEGIN_US + round(spec.end_s * S)
    world = build_world(settings)
    meter = Meter(world, spec.clients * len(FOUR.regions))
    Publisher(world, settings, Load(EVENTS_PER_S * spec.load), BEGIN_US, end_us)
    ends = [frozenset({world.nodes[proxy_of(region)].index}) for region in ("2", "3")]
    cut = Condition(*ends, cut=True)
    world.at(BEGIN_US + round(spec.cut_s * S), world.network.worsen, cut)
    world.at(BEGIN_US + round(spec.heal_s * S), world.network.better, cut)
    _run(world, end_us + S)  # what was published last arrives
    steps = [BEGIN_US + round(number * step_s * S) for number in range(round(spec.end_s / step_s) + 1)]
    spans = list(pairwise(steps))
    return Timeline(
        spec,
        step_s,
        [meter.throughput(start, end) for start, end in spans],
        {
            region: [
                meter.latency_ms(settings.stream(region), start, end, end_us + S) for start, end in spans
            ]
            for region in FOUR.regions
        },
        world.messages,
    )


def _run(world: World, until_us: int) -> None:
    world.run(until_us)
    if world.violations:
        raise InvariantError(f"the simulation broke a promise: {world.violations[0].explanation}")


def _sent_bytes(world: World, settings: Settings) -> int:
    """What all proxies have sent into their own regions."""
    return sum(
        path.sent_bytes
        for region in settings.topology.regions
        for path in world.nodes[proxy_of(region)].paths.values()
        if path.target.region == region
    )


def measure_all(specs: Sequence[Spec], say: Say, workers: int | None = None) -> list[Result]:
    """Every run, in the order of `specs`, over all cores; says each as it ends."""
    results: dict[int, Result] = {}
    for at, result in _finished(specs, workers or os.cpu_count() or 1):
        results[at] = result
        say(f"{len(results)} of {len(specs)}: {specs[at]}: {_told(result)}")
    return [results[at] for at in range(len(specs))]


def _finished(specs: Sequence[Spec], workers: int) -> Iterator[tuple[int, Result]]:
    if workers == 1:
        for at, spec in enumerate(specs):
            yield at, measure(spec)
        return
    with pool(workers) as processes:
        tasks = {processes.submit(measure, spec): at for at, spec in enumerate(specs)}
        for task in as_completed(tasks):
            yield tasks[task], task.result()


def _told(result: Result) -> str:
    if isinstance(result, Timeline):
        return f"{result.messages:,} messages"
    return (
        f"{result.throughput / 1e6:.3f} million events/s ({result.share:.1%}), "
        f"latency up to {result.worst_latency_ms:.0f} ms, {result.copies:.1f} copies from the proxy"
    )

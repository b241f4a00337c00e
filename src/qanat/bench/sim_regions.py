"""How long the simulator takes for three regions of many clients, all of it: boot, views, proxies, meshes."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable

from qanat.protocols.mesh import MeshClient, MeshConfig
from qanat.sim import World
from qanat.studies.s13.meter import Meter
from qanat.studies.s13.world import THREE, Load, Publisher, Settings, build_world

S = 1_000_000
WARM_UP_S = 2
"""Until views are full: four rounds of gossip. They are part of what is timed."""
MEASURED_S = 5
LOAD = Load(events_per_s=100_000, batch_ms=150.0)
"""Each region publishes 5,000 events at a time; a client gets twenty batches a second."""
MESH = MeshConfig(shuffle_ms=150.0, proxy_shuffle_ms=150.0)
"""A shuffle once per batch: a shorter time would have members without news ask for it between two batches."""
STEP_US = 250_000


def run_regions(clients: int, say: Callable[[str], None]) -> dict[str, float]:
    """`clients` in all, in three regions, each of which publishes a third of the load to all."""
    gc.disable()  # The world itself is all there is to look through, again and again.
    try:
        return _timed(clients, say)
    finally:
        gc.enable()


def _timed(clients: int, say: Callable[[str], None]) -> dict[str, float]:
    settings = Settings(THREE, clients // len(THREE.regions), mesh=MESH)
    began, began_cpu = time.perf_counter(), time.process_time()
    world = build_world(settings)
    meter = Meter(world, settings.clients * len(THREE.regions))
    end_us = (WARM_UP_S + MEASURED_S) * S
    Publisher(world, settings, LOAD, WARM_UP_S * S, end_us)
    while world.now < end_us:
        world.run(world.now + STEP_US)
        say(
            f"{world.now / S:.2f} of {end_us / S:.0f} virtual s: {world.messages:,} messages, "
            f"{time.perf_counter() - began:,.0f} s"
        )
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    published = LOAD.events_per_s * MEASURED_S
    counters = _delivered(world)
    return {
        "clients": float(meter.clients),
        "virtual_s": float(MEASURED_S),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "messages": float(world.messages),
        "messages_per_s": world.messages / wall_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "published": published,
        "mean_delivered": sum(counters) / len(counters),
        "least_delivered": float(min(counters)),
        "latency_to_all_ms": sum(
            meter.latency_ms(settings.stream(region), (WARM_UP_S + 1) * S, end_us - S, end_us)
            for region in THREE.regions
        )
        / len(THREE.regions),
    }


def _delivered(world: World) -> list[int]:
    """Of each client, the events of all streams."""
    return [
        sum(incoming.cnt for incoming in machine.streams.values())
        for node in world.node_list
        if isinstance(machine := node.machine, MeshClient)
    ]

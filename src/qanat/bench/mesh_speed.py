"""How fast a large region is simulated; `./qanat bench mesh` prints it."""

import time
from collections.abc import Sequence

from qanat.checks.mesh import STREAMS, Feed, MeshStudyConfig, factory
from qanat.checks.views_checkers import PROXY
from qanat.kernel import Address
from qanat.protocols.mesh import MeshClient
from qanat.sim import Links, LinkSpec, Place, World
from qanat.sim.links import us_per_byte
from qanat.sim.paths import Pipe
from qanat.sim.units import S

MBIT_S = 1000.0
"""Of every node, each way: the paper's networks inside a region (section 5.2)."""
WARM_UP_S = 3.0
"""Until views are full: six rounds of gossip."""


def region_world(places: Sequence[Place], config: MeshStudyConfig) -> World:
    """Clients and their proxy in a region as in the paper's simulation: 1 ms one way, 1 Gbit/s, no trace."""
    world = World(1, links=Links(LinkSpec(latency_ms=1.0)), tracing=False)
    make = factory(config, places)
    for place in places:
        pipes = {"uplink": Pipe(us_per_byte(MBIT_S)), "downlink": Pipe(us_per_byte(MBIT_S))}
        world.add(place.address, make, region=place.region, group=place.group, **pipes)
    return world


def region_places(clients: int) -> list[Place]:
    names = [("proxy-1", PROXY), *((f"client-{number}", "client") for number in range(1, clients + 1))]
    return [Place(Address(f"eu/{name}"), "eu", group) for name, group in names]


def measure(clients: int = 1000, events_per_s: int = 100_000, virtual_s: float = 1.0) -> dict[str, float]:
    """One region at that rate, in batches of 10 ms of 10-byte ghosts, after the views are full."""
    world = region_world(region_places(clients), MeshStudyConfig())
    world.start()
    world.run(round(WARM_UP_S * S))
    feed = Feed(every_ms=10.0, batch_events=events_per_s // 100, until_s=virtual_s - 0.01)
    feed.start(world)
    before, began = world.messages, time.perf_counter()
    world.run(round((WARM_UP_S + virtual_s) * S))
    took_s = time.perf_counter() - began
    counters = [
        machine.streams[STREAMS[0]].cnt
        for node in world.node_list
        if isinstance(machine := node.machine, MeshClient)
    ]
    return {
        "messages": world.messages - before,
        "messages_per_wall_s": (world.messages - before) / took_s,
        "wall_s": took_s,
        "published": round(events_per_s * virtual_s),
        "least_delivered": min(counters),
        "mean_delivered": sum(counters) / len(counters),
    }

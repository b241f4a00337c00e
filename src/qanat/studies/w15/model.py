"""Fig. 7 in virtual time: the publisher and the subscribers that ship, under the simulator, where nothing but
the readers takes time.

What a policy is worth is so found without the noise of a machine, and the same every time.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

from qanat.checks.publisher_hosts import Hosts, PublisherStudy, publisher_of
from qanat.checks.publisher_log import SimLog, batch_of
from qanat.kernel import Address
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.machine import UNREAD_BYTES
from qanat.protocols.publisher.messages import Updates
from qanat.protocols.publisher.subscriber import Handed
from qanat.sim import Place, SimNode, World
from qanat.sim.units import MS, S
from qanat.studies.w15.caravans import Tradeoff

APPLICATIONS, SHARDS = 10, 16
ROWS, READ_ROWS = 1_000, 10
REPLAY_S = 10.0
"""For one reader of the whole log."""


def modelled(policy: str, caravans: int, applications: int = APPLICATIONS) -> Tradeoff:
    """As `w15_caravans.spread`; latency in parts of the time that one reader takes for the log."""
    names = [f"a{number}" for number in range(applications)]
    starts = {name: number * ROWS // applications for number, name in enumerate(names)}
    log = _log()
    reads = [log.rows[row : row + READ_ROWS] for row in range(0, ROWS, READ_ROWS)]
    log_bytes = sum(batch_of(rows).virtual_size + UNREAD_BYTES for rows in reads)
    study = PublisherStudy(
        publisher=PublisherConfig(
            caravans_max=caravans, policy=policy, caravan_bytes_s=log_bytes / REPLAY_S, plan_ms=100.0,
            near=ROWS // 100, read_rows=READ_ROWS,
        ),
        applications={name: ApplicationConfig(start=f"{start}:0") for name, start in starts.items()},
        handle_ms=dict.fromkeys(names, (0.0, 0.0)),
        read_ms=(0.1, 0.1),
    )  # fmt: skip
    came: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    world, node = _world(study, log, names, lambda name, at_us, count: came[name].append((at_us, count)))
    while any(sum(count for _, count in came[name]) < ROWS - starts[name] for name in names):
        world.run(world.now + 100 * MS)
        if world.violations or world.now > 10 * REPLAY_S * S:
            raise AssertionError(f"the replay did not end: {world.violations}")
    began = min(first for (first, _), *_ in came.values())
    late = [sum((at - began) * n for at, n in some) / sum(n for _, n in some) for some in came.values()]
    return Tradeoff(policy, caravans, publisher_of(node).read_bytes / log_bytes, mean(late) / (REPLAY_S * S))


def _log() -> SimLog:
    log = SimLog()
    for row in range(ROWS):
        log.write([(f"s{row % SHARDS}", "red")], 0)
    return log


def _world(
    study: PublisherStudy, log: SimLog, names: list[str], took: Callable[[str, int, int], object]
) -> tuple[World, SimNode]:
    """One publisher, and a subscriber of each application; `took` is told when so many updates came to
    whom."""
    places = [Place(Address(name), "", name) for name in ("publisher", *names)]
    hosts, world = Hosts(study, places), World(0, tracing=False)
    hosts.log = log

    def on_deliver(world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Handed) and isinstance(item.item, Updates):
            took(node.group, world.now, sum(batch.count for batch in item.item.batches))

    world.deliver_hooks.append(on_deliver)
    nodes = [world.add(place.address, hosts.make, group=place.group) for place in places]
    world.start()
    return world, nodes[0]

"""Whole regions under the simulator: what applications do. What they are promised is in `region_checkers`."""

from qanat.checks.chain_checkers import AnsweredIsStored, PrefixOfPredecessor, RemovedStaysOut
from qanat.checks.chain_hosts import chain_of, history_of, replicas
from qanat.checks.chain_publishers import Publisher
from qanat.checks.region_checkers import CollectedAlike, OneHistory, Places, Settled
from qanat.checks.region_hosts import (
    RegionStudy,
    addresses_in,
    builder,
    quiet_stream_of,
    regions,
    replicas_in,
    stream_of,
)
from qanat.events.batch import Batch
from qanat.events.tombstones import gc_event
from qanat.kernel import Address
from qanat.protocols.chain import Leave, Wanted
from qanat.sim import ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import MS, S


class RegionPublisher(Publisher):
    """A client of one region, which now and then publishes a garbage-collection event."""

    def __init__(self, world: World, workload: "Publishing", region: str, number: int) -> None:
        targets = addresses_in(world, region)
        super().__init__(
            world, workload, f"{region}-{number}", stream_of(region), quiet_stream_of(region), targets
        )
        self._gc_share = workload.gc_share

    def _batch(self, position: int) -> Batch:
        rng = self.world.workload_rng
        if rng.random() >= self._gc_share or not self.upto:
            return super()._batch(position)
        predicate = rng.choice(("same key", f"upto {rng.randint(1, self.upto)}"))
        return gc_event(
            self.stream,
            predicate,
            key=f"key-{rng.randint(0, 5)}".encode(),
            payload=f"{self.source}:{position}".encode().ljust(self.workload.event_bytes),
            time_us=self.world.now,
            source=self.source,
            position=position,
        )


class Publishing(Workload, frozen=True, tag="publishing"):
    """Clients of every region publish to its stream, at the head that they were told of."""

    publishers: int = 2
    """In each region."""
    every_ms: float = 200.0
    event_bytes: int = 24
    window: int = 3
    """Publishes of one source under way at a time."""
    patience_ms: float = 700.0
    """Without an answer for this long, everything unanswered is published again."""
    gc_share: float = 0.0
    """Of publishes that are a GC event instead: half of them `same key`, half `upto` some number."""
    collect_every_s: float = 0.0
    """Every replica collects garbage about this often; 0: never."""
    changes_every_s: float = 0.0
    """An operator changes something this often: the wanted length of a chain, or a replica is stopped in
    order and started again. 0: never."""
    until_s: float = 4.0

    def start(self, world: World) -> None:
        for region in regions(world):
            for number in range(self.publishers):
                publisher = RegionPublisher(world, self, region, number)
                world.after(300 * MS, publisher.go_on)
        if self.collect_every_s:
            for node in replicas(world):
                self._collect_later(world, node.address)
        if self.changes_every_s:
            world.after(round(self.changes_every_s * S), self._change, world)

    def _change(self, world: World) -> None:
        rng = world.workload_rng
        if world.now >= self.until_s * S:
            for node in replicas(world):  # when every earlier word has been heard
                world.after(S // 2, node.request, Wanted(chain_of(node).config.replicas))
            return
        nodes = replicas_in(world, rng.choice(regions(world)))
        if rng.random() < 0.5:
            wanted = rng.randint(1, len(nodes))
            for node in nodes:
                world.after(rng.randrange(S // 2), node.request, Wanted(wanted))
        else:
            node = rng.choice(nodes)
            node.request(Leave())
            world.after(50 * MS, _stop, world, node)
            world.after(rng.randrange(100 * MS, S), node.restart)
        world.after(round(self.changes_every_s * S * (0.5 + rng.random())), self._change, world)

    def _collect_later(self, world: World, address: Address) -> None:
        every_us = self.collect_every_s * S * (0.5 + world.workload_rng.random())
        world.after(round(every_us), self._collect, world, address)

    def _collect(self, world: World, address: Address) -> None:
        node = world.nodes[address]
        if node.ready and not node.disk_stuck:
            for stream, log in history_of(node).logs.items():
                log.collect(everything=True, settled=chain_of(node).settled(stream))
        self._collect_later(world, address)


def _stop(world: World, node: SimNode) -> None:
    if node.up:
        world.crash(node)


KIT = ProtocolKit(
    name="region",
    config=RegionStudy,
    build=builder(),
    checkers=by_name(
        OneHistory,
        Places,
        PrefixOfPredecessor,
        AnsweredIsStored,
        RemovedStaysOut,
        Settled,
        CollectedAlike,
    ),
    workloads=(Publishing,),
)

"""Chains of replicas under the simulator: what applications do. What they are promised is in
`chain_checkers`."""

from qanat.checks.chain_checkers import (
    AnsweredIsStored,
    NothingLost,
    PrefixOfPredecessor,
    RemovedStaysOut,
    Settles,
    StableStays,
)
from qanat.checks.chain_hosts import (
    OWNED,
    QUIET,
    REMOTE,
    ChainStudy,
    builder,
    chain_of,
    history_of,
    replicas,
)
from qanat.checks.chain_publishers import Publisher
from qanat.events.batch import Batch
from qanat.protocols.chain import Store, Wanted
from qanat.sim import ProtocolKit, Workload, World, by_name
from qanat.sim.units import MS, S


class Publishing(Workload, frozen=True, tag="publishing"):
    """Ordered sources publish to the head; another region's stream enters there as well."""

    publishers: int = 3
    every_ms: float = 40.0
    event_bytes: int = 24
    window: int = 3
    """Publishes of one source under way at a time."""
    patience_ms: float = 700.0
    """Without an answer for this long, everything unanswered is published again."""
    remote_every_ms: float = 100.0
    collect_every_s: float = 0.0
    """A random replica collects garbage this often; 0: never."""
    resize_every_s: float = 0.0
    """The wanted length changes this often, by chance, and all replicas hear of it within half a second; 0:
    never."""
    until_s: float = 10.0

    def start(self, world: World) -> None:
        everyone = [node.address for node in replicas(world)]
        for number in range(self.publishers):
            stream, at = OWNED[number % len(OWNED)], number % len(everyone)
            targets = [*everyone[at:], *everyone[:at]]
            publisher = Publisher(world, self, f"source-{number}", stream, QUIET, targets)
            world.after(300 * MS, publisher.go_on)
        world.after(300 * MS, self._feed, world)
        if self.collect_every_s:
            world.after(round(self.collect_every_s * S), self._collect, world)
        if self.resize_every_s:
            world.after(round(self.resize_every_s * S), self._resize, world)

    def _resize(self, world: World) -> None:
        """The last word is the scenario's own."""
        nodes, rng, last = replicas(world), world.workload_rng, world.now >= self.until_s * S
        wanted = chain_of(nodes[0]).config.replicas if last else rng.randint(1, len(nodes))
        for node in nodes:
            world.after(S // 2 if last else rng.randrange(S // 2), node.request, Wanted(wanted))
        if not last:
            world.after(round(self.resize_every_s * S * (0.5 + rng.random())), self._resize, world)

    def _feed(self, world: World) -> None:
        """The proxy level hands the next remote events to whoever is head; numbers and contents are given."""
        if world.now > self.until_s * S:
            return
        for node in replicas(world):
            if node.up and chain_of(node).is_head:
                first = history_of(node).counter(REMOTE) + 1
                payloads = [f"remote:{number}".encode() for number in (first, first + 1)]
                node.request(Store(Batch.build(REMOTE, payloads, first=first)))
        world.after(round(self.remote_every_ms * MS), self._feed, world)

    def _collect(self, world: World) -> None:
        node = world.workload_rng.choice(replicas(world))
        if node.ready and not node.disk_stuck:
            for stream, log in history_of(node).logs.items():
                log.collect(everything=True, settled=chain_of(node).settled(stream))
        if world.now < self.until_s * S:
            world.after(round(self.collect_every_s * S), self._collect, world)


KIT = ProtocolKit(
    name="chain",
    config=ChainStudy,
    build=builder(),
    checkers=by_name(
        StableStays,
        PrefixOfPredecessor,
        AnsweredIsStored,
        RemovedStaysOut,
        Settles,
        NothingLost,
    ),
    workloads=(Publishing,),
)

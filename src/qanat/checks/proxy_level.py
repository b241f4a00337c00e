"""The Proxy-Level Protocol under the simulator: proxies with histories that crash, and a workload of
publishers."""

from collections.abc import Sequence

from qanat.checks.proxy_level_checkers import (
    HistoryInvariant,
    InOrder,
    OneSource,
    Spreads,
    history_of,
    machine_of,
)
from qanat.checks.proxy_level_history import SimHistory
from qanat.events.batch import Batch, stream_id
from qanat.events.tombstones import gc_event
from qanat.kernel import Context, Factory
from qanat.protocols.history import Synced
from qanat.protocols.proxy_level import ProxyLevel, ProxyLevelConfig, Publish, Streams
from qanat.sim import Place, ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import MS, S


class ProxyLevelScenario(ProxyLevelConfig, frozen=True):
    """The protocol's settings, and how simulated proxies store."""

    streams_per_region: int = 1
    sync_every_ms: float = 0.0
    """Own events are durable, answered for and sent only after the next sync; 0: at once."""
    forgets: float = 0.0
    """Chance that a proxy that crashed has lost the streams that others own."""


class Publishing(Workload, frozen=True, tag="publishing"):
    """Each region publishes batches to its streams at random times; now and then a GC event, or to a foreign
    stream."""

    every_ms: float = 100.0
    """Mean time between two batches of one stream."""
    events: int = 8
    """At most, in one batch."""
    payload_bytes: int = 20
    keys: int = 5
    gc_share: float = 0.05
    """Of batches that are a GC event instead: half of them `same key`, half `upto` some number."""
    foreign_share: float = 0.02
    """Of batches that go to a proxy that does not own their stream."""
    until_s: float = 10.0

    def __post_init__(self) -> None:
        if self.every_ms <= 0 or self.events < 1 or self.keys < 1:
            raise ValueError("every_ms must be above 0, events and keys at least 1")

    def start(self, world: World) -> None:
        world.at(1, self._begin, world)

    def _begin(self, world: World) -> None:
        for node in world.node_list:
            for stream in sorted(history_of(node).own):
                self._next(world, node, stream)
            config = machine_of(node).config
            if isinstance(config, ProxyLevelScenario) and config.sync_every_ms:
                world.after(1, _sync, world, node, round(config.sync_every_ms * MS))

    def _next(self, world: World, node: SimNode, stream: int) -> None:
        world.after(
            round(world.workload_rng.expovariate(1 / self.every_ms) * MS) + 1,
            self._publish,
            world,
            node,
            stream,
        )

    def _publish(self, world: World, node: SimNode, stream: int) -> None:
        if world.now > self.until_s * S:
            return
        rng = world.workload_rng
        key = b"k%d" % rng.randrange(self.keys)
        if rng.random() < self.gc_share:
            upto = rng.randint(1, max(1, len(history_of(node).published[stream])))
            batch = gc_event(stream, rng.choice(("same key", f"upto {upto}")), key=key, time_us=world.now)
        else:
            count = rng.randint(1, self.events)
            payloads = [rng.randbytes(self.payload_bytes) for _ in range(count)]
            batch = Batch.build(stream, payloads, keys=[key] * count, time_us=world.now)
        target = rng.choice(world.node_list) if rng.random() < self.foreign_share else node
        target.request(Publish(rng.getrandbits(32), batch))
        self._next(world, node, stream)


def _sync(world: World, node: SimNode, every_us: int) -> None:
    """A node's disk: what was appended since the last time is durable now, unless power is cut before."""
    if node.ready:
        for stream in sorted(history_of(node).sync()):
            node.request(Synced(stream, history_of(node).durable(stream)))
    world.after(every_us, _sync, world, node, every_us)


def build(
    config: ProxyLevelScenario, places: Sequence[Place], machine: type[ProxyLevel] = ProxyLevel
) -> Factory:
    """`machine` is another class than the real one where a test plants a bug."""
    owners = {
        stream_id(f"{place.region}/stream-{number}"): place.region
        for place in places
        for number in range(1, config.streams_per_region + 1)
    }
    regions = {place.address: place.region for place in places}
    everyone = [place.address for place in places]
    histories: dict[str, SimHistory] = {}

    def factory(context: Context) -> ProxyLevel:
        address = context.address
        streams = Streams(regions[address], owners)
        before = histories.get(address)
        if before is None:
            histories[address] = SimHistory(frozenset(streams.own), instant=not config.sync_every_ms)
        else:
            forget = context.rng.random() < config.forgets
            histories[address] = before.power_cut(sorted(owners), forget=forget)
        return machine(context, config, histories[address], streams, everyone)

    return factory


KIT = ProtocolKit(
    name="proxy-level",
    config=ProxyLevelScenario,
    build=build,
    checkers=by_name(HistoryInvariant, InOrder, OneSource, Spreads),
    workloads=(Publishing,),
)

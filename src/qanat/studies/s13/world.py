"""Regions of clients as in Sprinkler's simulation (section 5.2): real machines, ghost events, the paper's
bandwidths.

Each region has one proxy and its clients. The proxy is one node with both protocols: the proxy level towards
other regions, the mesh towards its own. A chain behind it would add its own latency to each event and nothing
else, so there is none.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeAlias

import msgspec

from qanat.events.batch import Batch, stream_id
from qanat.kernel import Address, Context, Factory, Machine, Message
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import Arrived, MeshClient, MeshConfig, MeshProxy
from qanat.protocols.proxy_level import ProxyLevel, ProxyLevelConfig, Publish, Streams
from qanat.protocols.proxy_level.machine import Advanced
from qanat.protocols.views import ViewsConfig
from qanat.sim import Links, LinkSpec, SimNode, World
from qanat.sim.links import us_per_byte
from qanat.sim.paths import Pipe

S = 1_000_000
REGION_MBIT_S = 1000.0
"""Of every node inside a region, each way: "processes communicate over 1 Gbps networks"."""
BETWEEN_MBIT_S = 10_000.0
"""Between two regions: "three regions connected by 10 Gbps links"."""
WITHIN_MS = 1.0
EVENT_BYTES = 10
C_EVENT_S = 100_000.0
"""The paper's C, which it does not give. Between two advertisements, 0.2 s, a stream of 864,000 events/s gets
on by 170,000: with a C of a few events each advertisement of another proxy would change the source. With this
one a source that is silent loses the stream after √(C / rate) = 0.34 s, and one that is not keeps it."""


class Topology(msgspec.Struct, frozen=True):
    """Regions and the one-way latency of each pair of them, in ms."""

    regions: tuple[str, ...]
    latency_ms: Mapping[tuple[str, str], float]


THREE = Topology(("0", "1", "2"), {("0", "1"): 10.0, ("0", "2"): 35.0, ("1", "2"): 35.0})
"""Fig. 5(a): two regions on one coast, one on the other; the picture's numbers are not in the text."""
FOUR = Topology(
    ("0", "1", "2", "3"),
    {
        ("0", "1"): 10.0,
        ("0", "2"): 35.0,
        ("0", "3"): 35.0,
        ("1", "2"): 35.0,
        ("1", "3"): 25.0,
        ("2", "3"): 15.0,
    },
)
"""Fig. 8: the link that fails, between 2 and 3, has the paper's 15 ms; the others are chosen."""


class Load(msgspec.Struct, frozen=True):
    """What applications publish, in all regions together and evenly."""

    events_per_s: float
    batch_ms: float = 10.0
    """Events of so long a time are one batch; a driver publishes in a closed loop, so they come bundled."""


class _ToMesh:
    """The proxy level's context: what it delivers goes to the mesh of the same node."""

    def __init__(self, context: Context, proxy: RegionProxy) -> None:
        self._proxy = proxy
        self.send, self.cast = context.send, context.cast
        self.set_timer, self.cancel_timer = context.set_timer, context.cancel_timer
        self.persist, self.trace = context.persist, context.trace
        self.wall_us, self.when_persisted = context.wall_us, context.when_persisted
        self.address: Address = context.address
        self.rng: random.Random = context.rng

    def deliver(self, item: object) -> None:
        if isinstance(item, Advanced):
            self._proxy.mesh.on_request(0, Arrived(item.stream))


RegionMessage: TypeAlias = Message


class RegionProxy(Machine[RegionMessage, Publish]):
    """One node, two protocols, one history."""

    message_types = (*ProxyLevel.message_types, *MeshProxy.message_types)
    _mesh_types: ClassVar[frozenset[type[Message]]] = frozenset(MeshProxy.message_types)
    _timers: ClassVar[frozenset[str]] = frozenset({"notify", "shuffle", "gossip"})

    def __init__(
        self,
        context: Context,
        settings: Settings,
        streams: Streams,
        proxies: Sequence[Address],
    ) -> None:
        super().__init__(context)
        self.history = MemoryHistory()
        self.mesh = MeshProxy(context, settings.mesh, settings.views, self.history)
        self.level = ProxyLevel(
            _ToMesh(context, self), settings.proxy_level, self.history, streams, list(proxies)
        )

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.level.on_start(now_us, saved)
        self.mesh.on_start(now_us, saved)

    def on_message(self, now_us: int, sender: Address, message: RegionMessage) -> None:
        half: Machine[Message, Publish] = self.mesh if type(message) in self._mesh_types else self.level  # type: ignore[assignment]
        half.on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        if name in self._timers:
            self.mesh.on_timer(now_us, name)
        else:
            self.level.on_timer(now_us, name)

    def on_request(self, now_us: int, request: Publish) -> None:
        self.level.on_request(now_us, request)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.level.on_link_down(now_us, peer)
        self.mesh.on_link_down(now_us, peer)


class Settings(msgspec.Struct, frozen=True):
    topology: Topology
    clients: int
    """In each region."""
    mesh: MeshConfig = MeshConfig()
    views: ViewsConfig = ViewsConfig()
    proxy_level: ProxyLevelConfig = ProxyLevelConfig(c_event_s=C_EVENT_S)

    def stream(self, region: str) -> int:
        """Each region owns one."""
        return stream_id(f"region-{region}")


def proxy_of(region: str) -> Address:
    return Address(f"{region}/proxy-1")


def build_world(settings: Settings, seed: int = 1) -> World:
    """Booted at time 0; nobody publishes yet."""
    topology = settings.topology
    links = Links(
        within=LinkSpec(latency_ms=WITHIN_MS),
        between={
            pair: LinkSpec(latency_ms=latency_ms, bandwidth_mbit_s=BETWEEN_MBIT_S, shared=True, uplinks=False)
            for pair, latency_ms in topology.latency_ms.items()
        },
    )
    world = World(seed, links=links, tracing=False)
    owners = {settings.stream(region): region for region in topology.regions}
    proxies = [proxy_of(region) for region in topology.regions]
    after = dict.fromkeys(owners, 0)
    for region in topology.regions:
        proxy = partial(RegionProxy, settings=settings, streams=Streams(region, owners), proxies=proxies)
        client = partial(
            MeshClient, config=settings.mesh, views=settings.views, proxy=proxy_of(region), after=after
        )
        _add(world, proxy_of(region), proxy, region, "proxy")
        for number in range(1, settings.clients + 1):
            _add(world, Address(f"{region}/client-{number}"), client, region, "client")
    world.start()
    return world


def _add(world: World, address: Address, make: Factory, region: str, group: str) -> None:
    up, down = Pipe(us_per_byte(REGION_MBIT_S)), Pipe(us_per_byte(REGION_MBIT_S))
    world.add(address, make, region=region, group=group, uplink=up, downlink=down)


class Publisher:
    """Publishes a load from `start_us` to `end_us`: in each region a batch every `batch_ms`, the regions in
    turn."""

    def __init__(self, world: World, settings: Settings, load: Load, start_us: int, end_us: int) -> None:
        self._world = world
        self._settings = settings
        self._load = load
        self._end_us = end_us
        regions = settings.topology.regions
        self.batch_events = round(load.events_per_s * load.batch_ms / 1000 / len(regions))
        self._every_us = round(load.batch_ms * 1000)
        self._number = 0
        for at, region in enumerate(regions):
            node = world.nodes[proxy_of(region)]
            world.at(
                start_us + at * self._every_us // len(regions), self._publish, node, settings.stream(region)
            )

    def _publish(self, node: SimNode, stream: int) -> None:
        now = self._world.now
        if now >= self._end_us:
            return
        self._number += 1
        batch = Batch.build(stream, (self.batch_events, EVENT_BYTES), ghost=True, time_us=now)
        node.request(Publish(self._number, batch))
        self._world.after(self._every_us, self._publish, node, stream)

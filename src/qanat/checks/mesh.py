"""The region's mesh under the simulator: machines, workload, kit."""

from collections.abc import Callable, Sequence

import msgspec

from qanat.checks.mesh_checkers import VISITOR, BoundedBuffers, Everything, Gapless, Unadvertised
from qanat.checks.views import proxies
from qanat.checks.views_checkers import PROXY, BoundedViews, Connected, DeadVanish
from qanat.events.batch import Batch, stream_id
from qanat.events.tombstones import gc_event
from qanat.kernel import Address, Context, Factory
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import Arrived, MeshClient, MeshConfig, MeshProxy
from qanat.protocols.mesh.proxy import ProxyRequest
from qanat.protocols.views import ViewsConfig
from qanat.sim import Checker, Place, ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import S

STREAMS = tuple(stream_id(f"stream-{number}") for number in range(1, 9))


class MeshStudyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mesh: MeshConfig = MeshConfig()
    views: ViewsConfig = ViewsConfig()
    streams: int = 1
    """Streams that every client wants."""

    def __post_init__(self) -> None:
        if not 1 <= self.streams <= len(STREAMS):
            raise ValueError(f"streams lies between 1 and {len(STREAMS)}")


class Publish(msgspec.Struct, frozen=True):
    """Request to the proxy of a study: the events of a batch without numbers are new."""

    batch: Batch


class StudyProxy(MeshProxy):
    """A proxy that owns its streams and numbers what is published; its history outlives its crashes."""

    history: MemoryHistory

    def on_request(self, now_us: int, request: ProxyRequest | Publish) -> None:
        if isinstance(request, Publish):
            self.history.append(request.batch)
            request = Arrived(request.batch.stream)
        super().on_request(now_us, request)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        super().on_start(now_us, saved)
        for stream in STREAMS:
            super().on_request(now_us, Arrived(stream))


class Feed(Workload, frozen=True, tag="feed"):
    """Batches published at every proxy, one stream after the other, at even times from its start on."""

    every_ms: float = 20.0
    batch_events: int = 10
    payload_bytes: int = 10
    until_s: float = 2.0
    ghost: bool = True
    """Batches state the size of their payloads and carry none."""
    collect_every: int = 0
    """After so many batches a GC event that buries the older half; 0: none. Ghosts cannot be collected."""

    def __post_init__(self) -> None:
        if self.every_ms <= 0 or self.batch_events < 1 or self.payload_bytes < 0:
            raise ValueError("every_ms and batch_events must be above 0, payload_bytes not negative")

    def start(self, world: World) -> None:
        at_us, number = 0, 0
        while at_us <= self.until_s * S:
            for node in world.node_list:
                if node.group == PROXY:
                    world.after(at_us, self._publish, node, number)
            at_us += round(self.every_ms * 1000)
            number += 1

    def _publish(self, node: SimNode, number: int) -> None:
        if not node.up:
            return
        machine = node.machine
        if not isinstance(machine, StudyProxy):
            raise TypeError(f"{node.address} runs {type(machine).__name__}, not a study's proxy")
        stream = STREAMS[number % self._streams(node.world)]
        time_us = node.world.now
        if self.collect_every and number % self.collect_every == self.collect_every - 1:
            half = machine.history.counter(stream) // 2
            node.request(Publish(gc_event(stream, f"upto {max(half, 1)}", time_us=time_us)))
        elif self.ghost:
            shape = (self.batch_events, self.payload_bytes)
            node.request(Publish(Batch.build(stream, shape, ghost=True, time_us=time_us)))
        else:
            payloads = [bytes(self.payload_bytes)] * self.batch_events
            node.request(Publish(Batch.build(stream, payloads, time_us=time_us)))

    @staticmethod
    def _streams(world: World) -> int:
        return next(
            len(node.machine.streams) for node in world.node_list if isinstance(node.machine, MeshClient)
        )


def factory(
    config: MeshStudyConfig,
    places: Sequence[Place],
    client: type[MeshClient] = MeshClient,
    proxy: type[StudyProxy] = StudyProxy,
) -> Factory:
    """Machines by group: `proxy`, `visitor`, and clients; other classes than ours are planted by tests."""
    proxy_of = proxies(places)
    group = {place.address: place.group for place in places}
    histories: dict[Address, MemoryHistory] = {}
    after = dict.fromkeys(STREAMS[: config.streams], 0)

    def make(context: Context) -> MeshClient | MeshProxy:
        address = context.address
        if group[address] == PROXY:
            history = histories.setdefault(address, MemoryHistory())
            return proxy(context, config.mesh, config.views, history)
        listens = group[address] != VISITOR
        return client(context, config.mesh, config.views, proxy_of(address), after, listens=listens)

    return make


def _of_views(checker: Callable[[ViewsConfig], Checker]) -> Callable[[MeshStudyConfig], Checker]:
    return lambda config: checker(config.views)


KIT = ProtocolKit(
    name="mesh",
    config=MeshStudyConfig,
    build=factory,
    checkers={
        **by_name(Gapless, BoundedBuffers, Unadvertised, Everything),
        **{checker.name: _of_views(checker) for checker in (BoundedViews, DeadVanish, Connected)},
    },
    workloads=(Feed,),
)

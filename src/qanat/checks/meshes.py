"""Meshes of several streams whose proxy moves, under the simulator: machines, workload, checkers, kit.

The proxies are replicas of one chain, reduced to what a mesh sees of it: one history, and one replica at a
time that serves. Clients hear of a move when their own way to the chain tells them, each at another time.
"""

from collections.abc import Sequence

import msgspec

from qanat.checks.mesh_checkers import VISITOR, Gapless
from qanat.checks.views_checkers import PROXY
from qanat.events.batch import Batch, stream_id
from qanat.kernel import Address, Context, Factory
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.mesh import Arrived, ClientMeshes, MeshConfig, ProxyMeshes, Serve, Subscribe
from qanat.protocols.views import UseProxy, ViewsConfig
from qanat.sim import Checker, Place, ProtocolKit, SimNode, Workload, World, by_name
from qanat.sim.units import S

STREAMS = (stream_id("wanted-by-all"), stream_id("wanted-by-some"))
SOME = 4
"""Every so many clients want the second stream as well."""


class MeshesStudyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mesh: MeshConfig = MeshConfig()
    views: ViewsConfig = ViewsConfig()


class SharedHistory(MemoryHistory):
    """What the chain has; it outlives every crash."""

    def holds(self, stream: int) -> bool:
        return stream in STREAMS


class Chain:
    """Who serves, and what there is."""

    def __init__(self, serving: Address) -> None:
        self.serving = serving
        self.history = SharedHistory()


class StudyReplica(ProxyMeshes):
    def __init__(self, context: Context, config: MeshesStudyConfig, chain: Chain) -> None:
        super().__init__(
            context, config.mesh, config.views, chain.history, serves=chain.serving == context.address
        )
        self.chain = chain


class StudyMember(ClientMeshes):
    """A client that subscribes from the beginning, anew in each life."""

    def __init__(
        self, context: Context, config: MeshesStudyConfig, chain: Chain, wants: Sequence[int], listens: bool
    ) -> None:
        super().__init__(context, config.mesh, config.views, chain.serving, listens=listens)
        self.chain, self.wants = chain, wants

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        super().on_start(now_us, saved)
        for stream in self.wants:
            self.on_request(now_us, Subscribe(stream, 0))


class MovingFeed(Workload, frozen=True, tag="moving-feed"):
    """Batches at even times, one stream after the other, while the place of the proxy goes round."""

    every_ms: float = 20.0
    batch_events: int = 10
    move_every_ms: float = 300.0
    told_ms: float = 200.0
    """Within which a client hears of a move."""
    until_s: float = 2.0

    def __post_init__(self) -> None:
        if min(self.every_ms, self.move_every_ms, self.told_ms) <= 0 or self.batch_events < 1:
            raise ValueError("every_ms, move_every_ms, told_ms and batch_events must be above 0")

    def start(self, world: World) -> None:
        until_us = round(self.until_s * S)
        every_us, move_us = round(self.every_ms * 1000), round(self.move_every_ms * 1000)
        for number, at_us in enumerate(range(every_us, until_us + 1, every_us)):
            world.at(at_us, self._publish, world, STREAMS[number % len(STREAMS)])
        for at_us in range(move_us, until_us + 1, move_us):
            world.at(at_us, self._move, world)

    def _publish(self, world: World, stream: int) -> None:
        chain = chain_of(world)
        chain.history.append(Batch.build(stream, [b"payload"] * self.batch_events, time_us=world.now))
        world.nodes[chain.serving].request(Arrived(stream))

    def _move(self, world: World) -> None:
        """To another replica that is up; it serves once the old one has stopped, as a chain sees to."""
        chain = chain_of(world)
        others = [
            node
            for node in world.node_list
            if node.group == PROXY and node.ready and node.address != chain.serving
        ]
        old = world.nodes[chain.serving]
        if not others or (old.up and not old.ready):
            return
        new = world.workload_rng.choice(others)
        old.request(Serve(False))
        chain.serving = new.address
        new.request(Serve(True))
        for node in world.node_list:
            if node.group != PROXY:
                delay_us = world.workload_rng.randrange(round(self.told_ms * 1000)) + 1
                world.after(delay_us, node.request, UseProxy(new.address))


def chain_of(world: World) -> Chain:
    for node in world.node_list:
        if isinstance(machine := node.machine, StudyReplica | StudyMember):
            return machine.chain
    raise TypeError("no node runs this study's machines")


class OneServes(Checker):
    """A replica that does not serve is in no mesh."""

    name = "one-serves"

    def on_step(self, world: World, node: SimNode) -> None:
        machine = node.machine
        if isinstance(machine, StudyReplica) and machine.meshes and machine.chain.serving != node.address:
            self.fail(f"{machine.chain.serving} serves, and this one is in a mesh", node.address)


class OwnStreams(Checker):
    """Clients are in the meshes of their streams alone, and nobody who does not want a stream is in a view of
    its mesh."""

    name = "own-streams"

    def on_step(self, world: World, node: SimNode) -> None:
        machine = node.machine
        if not isinstance(machine, StudyReplica | StudyMember):
            return
        for stream, mesh in machine.meshes.items():
            if isinstance(machine, StudyMember) and stream not in machine.wants:
                self.fail(f"is in the mesh of {stream:#x}, which it does not want", node.address)
            for peer in mesh.membership.view:
                other = world.nodes[peer].machine
                if isinstance(other, StudyMember) and stream not in other.wants:
                    self.fail(
                        f"{peer} is in its view of {stream:#x}, which that one does not want", node.address
                    )


class EveryStream(Checker):
    """Once the network is well and nobody publishes, every client that is up has all of its streams."""

    name = "every-stream"

    def waiting_for(self, world: World) -> str | None:
        chain = chain_of(world)
        for node in world.node_list:
            machine = node.machine
            if not node.up or not isinstance(machine, StudyMember):
                continue
            for stream, mesh in machine.meshes.items():
                has, there = mesh.counter(stream), chain.history.counter(stream)
                if has != there:
                    return f"{node.address} has {has} of {there} events of stream {stream:#x}"
        return None


def factory(
    config: MeshesStudyConfig,
    places: Sequence[Place],
    member: type[StudyMember] = StudyMember,
    replica: type[StudyReplica] = StudyReplica,
) -> Factory:
    """Machines by group; other classes than ours are planted by tests."""
    group = {place.address: place.group for place in places}
    chain = Chain(next(place.address for place in places if place.group == PROXY))
    clients = [place.address for place in places if place.group != PROXY]
    wants = {
        address: STREAMS if number % SOME == 0 else STREAMS[:1] for number, address in enumerate(clients)
    }

    def make(context: Context) -> StudyReplica | StudyMember:
        address = context.address
        if group[address] == PROXY:
            return replica(context, config, chain)
        return member(context, config, chain, wants[address], group[address] != VISITOR)

    return make


KIT = ProtocolKit(
    name="meshes",
    config=MeshesStudyConfig,
    build=factory,
    checkers=by_name(Gapless, OneServes, OwnStreams, EveryStream),
    workloads=(MovingFeed,),
)

"""What the region's mesh promises, seen from outside."""

from typing import Protocol

import numpy as np

from qanat.checks.views_checkers import membership
from qanat.events.batch import Batch, Kind
from qanat.kernel import Address
from qanat.protocols.mesh import MeshClient, MeshConfig, MeshProxy
from qanat.protocols.mesh.ranges import HOLES
from qanat.protocols.views import ViewsConfig
from qanat.sim import Checker, SimNode, World

VISITOR = "visitor"
"""The group of clients to which nobody can open a connection."""


class Settings(Protocol):
    """What the checkers read of a study's settings."""

    @property
    def mesh(self) -> MeshConfig: ...
    @property
    def views(self) -> ViewsConfig: ...


class Gapless(Checker):
    """Each life of each client is given 1, 2, 3, … of each stream: every number once, by an event or by a
    tombstone over it, which may reach back over what was delivered."""

    name = "gapless"

    def __init__(self, config: Settings) -> None:
        self._delivered: dict[tuple[Address, int], int] = {}

    def on_deliver(self, world: World, node: SimNode, item: object) -> None:
        if not isinstance(item, Batch):
            return
        key = (node.address, item.stream)
        had = self._delivered.get(key, 0)
        if item.first > had + 1:
            self.fail(f"was given {item.first} after {had}: a gap", node.address)
        if item.last <= had or not item.count:
            self.fail(f"was given {item.first}..{item.last} when it had {had}: a repetition", node.address)
        self._delivered[key] = item.last
        if item.is_dense:
            if item.first <= had:
                self.fail(f"was given {item.first} again when it had {had}", node.address)
            return
        seqs, ranges = item.seqs().astype(np.int64), item.ranges
        reach = seqs - (1 if ranges is None else ranges.astype(np.int64))
        if not reach[0] <= had < seqs[0] or not np.array_equal(reach[1:], seqs[:-1]):
            self.fail(f"rows of {item.first}..{item.last} leave numbers out, after {had}", node.address)
        kinds = item.kinds
        if reach[0] < had and (kinds is None or kinds[0] != Kind.TOMBSTONE):
            self.fail(f"an event that is no tombstone reaches back before {had}", node.address)

    def on_crash(self, world: World, node: SimNode) -> None:
        for key in [key for key in self._delivered if key[0] == node.address]:
            del self._delivered[key]


class BoundedBuffers(Checker):
    """What a client holds for others, holds early, has asked for and knows to be missing is bounded."""

    name = "bounded-buffers"

    def __init__(self, config: Settings) -> None:
        self._config = config.mesh

    def on_step(self, world: World, node: SimNode) -> None:
        machine = node.machine
        if not node.up or not isinstance(machine, MeshClient):
            return
        config = self._config
        self._within("receive buffer's bytes", machine.buffer.bytes, config.buffer_bytes, node)
        self._within("early events' bytes", machine.early_bytes, config.early_bytes, node)
        at_proxy = config.proxy_requests + config.neighbour_requests
        proxy = machine.membership.proxy
        for incoming in machine.streams.values():
            self._within("open parts", incoming.open_parts, config.requests + HOLES, node)
            self._within("gaps", len(incoming.gaps), 3 * config.requests + HOLES, node)
            self._within("peers with news to ask for", len(incoming.told), config.requests + HOLES, node)
            for peer, requests in incoming.at_peer.items():
                limit = at_proxy if peer == proxy else config.neighbour_requests
                self._within(f"requests at {peer}", requests, limit, node)

    def _within(self, what: str, value: int, limit: int, node: SimNode) -> None:
        if value > limit:
            self.fail(f"{what}: {value}, promised are at most {limit}", node.address)


class Unadvertised(Checker):
    """A client that cannot be connected to is in nobody's view."""

    name = "unadvertised"

    def on_step(self, world: World, node: SimNode) -> None:
        if node.up:
            for peer in membership(node).view:
                if world.nodes[peer].group == VISITOR:
                    self.fail(f"{peer}, which nobody can connect to, is in its view", node.address)


class Everything(Checker):
    """Once the network is well and nobody publishes, every client that is up has all that its proxy has."""

    name = "everything"

    def waiting_for(self, world: World) -> str | None:
        for node in world.node_list:
            client = node.machine
            if not node.up or not isinstance(client, MeshClient):
                continue
            proxy = world.nodes[client.membership.proxy]
            if not proxy.up or not isinstance(proxy.machine, MeshProxy):
                return f"{proxy.address} is down"
            for stream, incoming in client.streams.items():
                counter = proxy.machine.history.durable(stream)
                if incoming.cnt != counter:
                    return f"{node.address} has {incoming.cnt} of {counter} events of stream {stream:#x}"
        return None

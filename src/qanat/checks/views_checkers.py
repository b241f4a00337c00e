"""What the views of a region promise, seen from outside."""

import math
from collections.abc import Iterator, Sequence

from qanat.kernel import Address
from qanat.protocols.views import Membership, ViewsConfig
from qanat.sim import Checker, SimNode, World
from qanat.sim.units import MS, S

PROXY = "proxy"
"""The group of nodes that are proxies; the first of each region is the one its clients use."""
IN_DEGREE_FACTOR = 4
"""No client is in more than this many times V views. In-degrees of a random graph are near V; a star's centre
is in all of them."""


def membership(node: SimNode) -> Membership:
    part = getattr(node.machine, "membership", None)
    if not isinstance(part, Membership):
        raise TypeError(f"{node.address} runs {type(node.machine).__name__}, which has no view")
    return part


def living(world: World) -> Iterator[tuple[SimNode, Membership]]:
    """Nodes that are up and take part."""
    for node in world.node_list:
        if node.up and (part := membership(node)).listens:
            yield node, part


def diameter_bound(members: int, view_size: int) -> int:
    """What we promise for the graph without directions: ⌈log N / log (V/2)⌉ + 2.

    Each step from a node reaches V/2 times as many (half of a view's members may be known already), up to N;
    two more steps for the nodes that happen to be known by few.
    """
    degree = max(2.0, view_size / 2)
    return math.ceil(math.log(max(members, 2)) / math.log(degree)) + 2


def distances(neighbours: Sequence[int], start: int) -> tuple[int, int]:
    """(farthest distance, bit set of what is reached) from one node; `neighbours` are bit sets."""
    reached = frontier = 1 << start
    steps = 0
    while True:
        nearer, frontier = frontier, 0
        while nearer:
            low = nearer & -nearer
            frontier |= neighbours[low.bit_length() - 1]
            nearer ^= low
        frontier &= ~reached
        if not frontier:
            return steps, reached
        reached |= frontier
        steps += 1


def undirected(views: dict[Address, Membership]) -> list[int]:
    """Who knows or is known by whom, as one bit set per node, in the order of `views`."""
    index = {address: number for number, address in enumerate(views)}
    links = [0] * len(views)
    for address, part in views.items():
        here = index[address]
        for peer in part.view:
            there = index.get(peer)
            if there is not None:
                links[here] |= 1 << there
                links[there] |= 1 << here
    return links


class BoundedViews(Checker):
    """No view is larger than V or holds its own node."""

    name = "bounded-views"

    def __init__(self, config: ViewsConfig) -> None:
        self._limit = config.view_size

    def on_step(self, world: World, node: SimNode) -> None:
        if not node.up:
            return
        view = membership(node).view
        if len(view) > self._limit:
            self.fail(f"its view has {len(view)} members, V is {self._limit}", node.address)
        if node.address in view:
            self.fail("it is in its own view", node.address)


class DeadVanish(Checker):
    """Who has been dead for `forget_rounds` + 1 rounds is in no view. A node that does not compute counts no
    rounds, so time in which anybody is paused does not count. Proxies are known by configuration."""

    name = "dead-vanish"
    look_us = 50 * MS
    drift = 1.1
    """Timers may run this much slow (the swarm's drift is up to 5 %)."""
    slack_rounds = 5
    """One for the round that was under way, the others for a datagram held back on a clogged link."""

    def __init__(self, config: ViewsConfig) -> None:
        rounds = config.forget_rounds + self.slack_rounds
        self._allowed_us = round(rounds * config.gossip_us * self.drift)
        self._dead: dict[Address, int] = {}
        self._paused_at = 0

    def begin(self, world: World) -> None:
        world.after(self.look_us, self._look, world)

    def _look(self, world: World) -> None:
        if any(node.paused for node in world.node_list):
            self._paused_at = world.now
        for node in world.node_list:
            if node.up and membership(node).listens:
                self._dead.pop(node.address, None)
            elif node.group != PROXY:
                self._dead.setdefault(node.address, world.now)
        world.after(self.look_us, self._look, world)

    def on_crash(self, world: World, node: SimNode) -> None:
        """Also of one that was up for less than the time between two looks, and told others of itself."""
        if node.address in self._dead:
            self._dead[node.address] = world.now

    def _forgotten(self, world: World) -> set[Address]:
        """Those of whom nobody may know any more."""
        latest = world.now - self._allowed_us
        if self._paused_at > latest:
            return set()
        return {address for address, since in self._dead.items() if since <= latest}

    def on_step(self, world: World, node: SimNode) -> None:
        if not node.up or not self._dead:
            return
        latest = world.now - self._allowed_us
        if self._paused_at > latest:
            return
        dead = self._dead
        for peer in membership(node).view:
            since = dead.get(peer)
            if since is not None and since <= latest:
                self.fail(
                    f"{peer}, dead for {(world.now - since) / S:.1f} s, is still in its view", node.address
                )

    def waiting_for(self, world: World) -> str | None:
        waited = [address for address in self._dead if address not in self._forgotten(world)]
        known = {peer for _, part in living(world) for peer in part.view}
        for address in waited:
            if address in known:
                return f"{address} is dead and still known"
        return None


class Connected(Checker):
    """Once the network is well, views make one graph, and of small diameter even without the proxy, which
    would make any graph look small."""

    name = "connected"

    def __init__(self, config: ViewsConfig) -> None:
        self._config = config

    def waiting_for(self, world: World) -> str | None:
        views = {node.address: part for node, part in living(world)}
        if len(views) < 2:
            return None
        links = undirected(views)
        _, reached = distances(links, 0)
        if reached != (1 << len(views)) - 1:
            lost = next(address for n, address in enumerate(views) if not reached >> n & 1)
            return f"{lost} is in another part of the graph than {next(iter(views))}"
        clients = {node.address: part for node, part in living(world) if node.group != PROXY}
        bound = diameter_bound(len(clients), self._config.view_size)
        links, everyone = undirected(clients), (1 << len(clients)) - 1
        for number, address in enumerate(clients):
            farthest, reached = distances(links, number)
            if reached != everyone:
                return f"without the proxy, {address} does not reach everyone"
            if farthest > bound:
                return f"the diameter is at least {farthest} from {address}; promised are {bound}"
        return None


class EvenInDegrees(Checker):
    """Once the network is well, every client is in some view, and none is in very many: no star."""

    name = "in-degrees"

    def __init__(self, config: ViewsConfig) -> None:
        self._limit = IN_DEGREE_FACTOR * config.view_size

    def waiting_for(self, world: World) -> str | None:
        known = dict.fromkeys((node.address for node, _ in living(world) if node.group != PROXY), 0)
        for _, part in living(world):
            for peer in part.view:
                if peer in known:
                    known[peer] += 1
        for address, times in known.items():
            if not times and len(known) > 1:
                return f"nobody knows {address}"
            if times > self._limit:
                return f"{address} is in {times} views; promised are at most {self._limit}"
        return None

"""The simulated network: everything about messages that is not on the hot path.

The hot path itself (queueing, latency, the push on the event heap) is in `SimNode.send` and `.cast`, the
arrival in `World.run`; they come here for whatever is out of the ordinary.
"""

import random
from collections import deque
from typing import TYPE_CHECKING

from qanat.kernel import Address, Message
from qanat.sim.links import LOOPBACK, Links, us_per_byte
from qanat.sim.paths import Channel, Condition, Nature, Path, Pipe

if TYPE_CHECKING:
    from qanat.sim.node import SimNode
    from qanat.sim.world import World

IDLE_PATHS = 1_000_000
"""Paths kept before idle ones are swept: about 300 MB. A swept path is made anew when needed."""


class Network:
    def __init__(
        self, world: "World", links: Links, rng: random.Random, *, idle_paths: int = IDLE_PATHS
    ) -> None:
        self._world = world
        self._links = links
        self._rng = rng
        self._conditions: list[Condition] = []
        self._shared: dict[tuple[str, str], Pipe] = {}
        self._natures: dict[tuple[str, str], Nature] = {}
        self._loopback = Nature(LOOPBACK)
        self._made = 0
        self._idle_paths = idle_paths
        self._swept_bytes = 0
        self.dropped: dict[str, int] = {}
        """Messages that did not arrive, by reason."""
        self.duplicated = 0

    # Paths

    def path(self, source: "SimNode", to: Address) -> Path | None:
        """The path to an address, made when first used; None when no node has that name."""
        path = source.paths.get(to)
        if path is not None:
            return path
        target = self._world.nodes.get(to)
        if target is None:
            return None
        if self._made >= self._idle_paths:
            self._sweep()
        looped = source is target
        nature = self._loopback if looped else self._nature(source.region, target.region)
        pipes: tuple[Pipe, ...] = ()
        if nature.spec.bandwidth_mbit_s is not None:
            pipes = (self._transmitter(nature.spec.bandwidth_mbit_s, nature.spec.shared, source, target),)
        if nature.spec.uplinks and not looped:
            if source.uplink is not None:
                pipes = (source.uplink, *pipes)
            if target.downlink is not None:
                pipes = (*pipes, target.downlink)
        path = source.paths[to] = Path(source, target, nature, pipes)
        self._made += 1
        if self._conditions:
            self._refresh(path)
        return path

    def _nature(self, source: str, target: str) -> Nature:
        nature = self._natures.get((source, target))
        if nature is None:
            nature = self._natures[source, target] = Nature(self._links.spec(source, target))
        return nature

    def _transmitter(self, mbit_s: float, shared: bool, source: "SimNode", target: "SimNode") -> Pipe:
        if not shared:
            return Pipe(us_per_byte(mbit_s))
        return self._shared.setdefault((source.region, target.region), Pipe(us_per_byte(mbit_s)))

    def _sweep(self) -> None:
        """Forget idle paths, so that memory follows the traffic and not the pairs that ever spoke."""
        now = self._world.now
        in_flight = {id(event[2]) for event in self._world.agenda if type(event[2]) is Path}
        self._made = 0
        for node in self._world.nodes.values():
            kept = {}
            for to, path in node.paths.items():
                if id(path) not in in_flight and path.idle(now):
                    self._swept_bytes += path.sent_bytes
                else:
                    kept[to] = path
            node.paths.clear()
            node.paths.update(kept)
            self._made += len(kept)
        # All of them busy: let the number grow, rather than sweep in vain at every new path.
        self._idle_paths = max(self._idle_paths, 2 * self._made)

    def sent_bytes(self) -> int:
        nodes = self._world.nodes.values()
        return self._swept_bytes + sum(path.sent_bytes for node in nodes for path in node.paths.values())

    def _refresh(self, path: Path) -> None:
        source, target = path.source_index, path.target.index
        path.apply([one for one in self._conditions if one.covers(source, target)])

    # Conditions

    def worsen(self, condition: Condition) -> None:
        self._conditions.append(condition)
        self._changed(condition)

    def better(self, condition: Condition) -> None:
        if condition in self._conditions:
            self._conditions.remove(condition)
            self._changed(condition)

    def _changed(self, condition: Condition) -> None:
        nodes = self._world.node_list
        for index in sorted(condition.touched()):
            for path in list(nodes[index].paths.values()):
                if not condition.covers(index, path.target.index):
                    continue
                was_cut = path.cut
                self._refresh(path)
                if was_cut and not path.cut and path.stalled:
                    self._world.after(path.latency_us, self._drain, path)
                if path.channel is not None:
                    self.reconsider(path.channel)
                    if path.rejects:
                        self._world.after(path.latency_us, self.break_channel, path.channel, "rejected")

    # Departures out of the ordinary

    def rough_cast(self, path: Path, message: Message, arrive_us: int) -> None:
        """A datagram on a path that loses, doubles, holds back, or is cut."""
        if path.cut:
            self.drop(path, message, "cut")
            return
        draw = self._rng.random
        if path.loss and draw() < path.loss:
            self.drop(path, message, "loss")
            return
        if path.reorder and draw() < path.reorder:
            arrive_us += int(draw() * path.nature.reorder_us)
        self._world.arrival(arrive_us, path, message, None)
        if path.duplicate and draw() < path.duplicate:
            self.duplicated += 1
            again = arrive_us + int(draw() * (path.jitter_us + path.latency_us)) + 1
            self._world.arrival(again, path, message, None)

    def retransmissions_us(self, path: Path) -> int:
        """What losses cost a channel's message: each one a timeout that doubles, as TCP's does."""
        cost, timeout = 0, path.nature.retransmit_us
        while path.loss and self._rng.random() < path.loss and cost < path.nature.detect_us:
            cost += timeout
            timeout *= 2
        return cost

    def drop(self, path: Path, message: Message, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self._world.note("drop", path.target, path.source_address, type(message).__name__, reason)

    def unreachable(self, source: "SimNode", to: Address, channel: bool) -> None:
        """No node has that name: a datagram vanishes, a channel never opens."""
        self.dropped["no such node"] = self.dropped.get("no such node", 0) + 1
        self._world.note("drop", source, to, "no such node")
        if channel:
            self._world.after(Nature(self._links.default).detect_us, source.link_down, to, source.life)

    # Channels

    def open(self, path: Path) -> Channel:
        """A new channel; the first message waits for the handshake's round trip."""
        back = self.path(path.target, path.source.address)
        if back is None:
            raise KeyError(path.source.address)
        channel = path.channel = back.channel = Channel(path, back)
        now = self._world.now
        path.opened()
        back.opened()
        round_trip_us = path.latency_us + back.latency_us if path is not back else 0
        path.fifo_at = now + round_trip_us + path.latency_us
        back.fifo_at = max(now + round_trip_us, path.fifo_at if path is back else 0)
        self.reconsider(channel)
        if channel.refused:
            self._world.after(round_trip_us, self._refused, channel, path.source.life)
        return channel

    def _refused(self, channel: Channel, life: int) -> None:
        """Whoever listens there by now: the news was on its way."""
        channel.forth.source.refused(channel.forth.target.address, life)
        self.break_channel(channel, "refused")

    def reset(self, node: "SimNode") -> None:
        """Its process is dead and its machine is not: those who have a channel with it hear so, where they
        can be reached."""
        for path in list(node.paths.values()):
            channel = path.channel
            if channel is not None and not path.cut:
                self._world.after(path.latency_us, self.break_channel, channel, "reset")

    def reconsider(self, channel: Channel) -> None:
        """Something changed around a channel: start, or stop, the time it has to live."""
        if not channel.open:
            return
        if channel.ailing and not channel.doom:
            channel.doom = self._world.after(channel.forth.nature.detect_us, self._doomed, channel)
        elif not channel.ailing and channel.doom:
            channel.doom = 0

    def _doomed(self, channel: Channel) -> None:
        if channel.open and channel.doom == self._world.event:
            self.break_channel(channel, "no answer")

    def break_channel(self, channel: Channel, reason: str) -> None:
        """Both ends are told; what was under way on it is lost."""
        if not channel.open:
            return
        channel.open = False
        for path in (channel.forth, channel.back):
            path.channel = None
            for message in path.stalled or ():
                self.drop(path, message, "broken channel")
            path.stalled = None
            path.clear = not path.cut
            self._discard_queue(path)
        one, other = channel.forth.source, channel.forth.target
        self._world.note("break", one, other.address, reason)
        self._world.after(0, one.link_down, other.address, one.life)
        if one is not other:
            self._world.after(0, other.link_down, one.address, other.life)

    def _discard_queue(self, path: Path) -> None:
        """A reset throws away what waited for the pair's own transmitter; shared ones go on."""
        spec = path.nature.spec
        if spec.bandwidth_mbit_s is not None and not spec.shared:
            own = path.pipes[1 if spec.uplinks and path.source.uplink is not None else 0]
            own.free_at = min(own.free_at, float(self._world.now))

    # Arrivals out of the ordinary

    def rough_arrival(self, path: Path, message: Message, channel: Channel | None) -> None:
        """Something is wrong where a message arrives: with the path, the channel or the node."""
        node = path.target
        if channel is not None and not channel.open:
            self.drop(path, message, "broken channel")
        elif channel is None and path.cut:
            self.drop(path, message, "cut")
        elif channel is not None and not path.clear:
            if path.stalled is None:
                path.stalled = deque()
            path.stalled.append(message)
        elif not node.up:
            self.drop(path, message, "down")
        elif not node.queue_message(path, message, channel):
            self.drop(path, message, "full inbox")
            if channel is not None:
                self.break_channel(channel, "full inbox")

    def _drain(self, path: Path) -> None:
        """After a cut: what a channel kept arrives, in order and before anything newer."""
        channel, stalled = path.channel, path.stalled
        if path.cut or channel is None or not stalled:
            return
        message = stalled.popleft()
        path.clear = True
        self._world.arrive(path, message, channel)
        if path.stalled is stalled and stalled and not path.cut:
            path.clear = False
            self._world.after(0, self._drain, path)

"""What the Proxy-Level Protocol promises, looked at from outside."""

from collections.abc import Iterable
from typing import Any

from qanat.checks.proxy_level_history import SimHistory
from qanat.events.batch import Batch, Kind
from qanat.events.filters import Filter, parse
from qanat.events.tombstones import GC_ATTRIBUTE
from qanat.kernel import Address
from qanat.log.checker import Event, Grave, matches, rows_of
from qanat.protocols.proxy_level import Advanced, ProxyLevel, ProxyLevelConfig, Refused
from qanat.sim import Checker, SimNode, World
from qanat.sim.units import S

EVERYTHING = 1 << 62
LARGEST_BATCH_BYTES = 2 * 1024
"""Of what the workload publishes; the window may be passed by one batch."""


def machine_of(node: SimNode) -> ProxyLevel:
    machine: Any = node.machine
    if not isinstance(machine, ProxyLevel):
        raise TypeError(f"{node.address} runs {type(machine).__name__}, not the proxy level")
    return machine


def history_of(node: SimNode) -> SimHistory:
    history: Any = machine_of(node).history
    if not isinstance(history, SimHistory):
        raise TypeError(f"{node.address} keeps a {type(history).__name__}")
    return history


def owner_of(world: World, stream: int) -> SimNode:
    return next(node for node in world.node_list if stream in history_of(node).own)


def up(world: World) -> Iterable[SimNode]:
    return (node for node in world.node_list if node.up)


class HistoryInvariant(Checker):
    """The paper's: a history holds every published event up to its counter, or its tombstone and a matching
    GC event.

    While a proxy catches up, a tombstone may be here before the GC event that made it: then that one must
    have been published with a number above the counter, so that it still comes. The rows of a batch are
    compared once with what was published (batches never change); that batches follow each other is looked at
    for what is new each time, and for all of a history now and then and once everything rests.
    """

    name = "history"
    whole_every = 40

    def __init__(self, config: ProxyLevelConfig) -> None:
        self._deliveries = 0
        self._compared: dict[int, Batch] = {}
        """By identity, and kept, so that no identity is used twice."""
        self._gc_events: dict[int, list[tuple[Event, Filter]]] = {}
        self._gc_seen: dict[int, int] = {}

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Advanced):
            self._deliveries += 1
            whole = self._deliveries % self.whole_every == 0
            self._check(world, node, item.stream, 1 if whole else item.first)
        elif isinstance(item, Refused):
            owner = machine_of(node).streams.owners.get(item.stream, "")
            if item.owner != ("" if owner == node.region else owner):
                self.fail(f"a publish was sent to {item.owner!r}, but the stream belongs to {owner!r}")

    def waiting_for(self, world: World) -> str | None:
        for node in up(world):
            for stream in machine_of(node).streams.owners:
                self._check(world, node, stream, 1)
        return None

    def _check(self, world: World, node: SimNode, stream: int, start: int) -> None:
        history, truth = history_of(node), history_of(owner_of(world, stream)).published[stream]
        counter = history.durable(stream) if stream in history.own else history.counter(stream)
        if counter > len(truth):
            self.fail(
                f"it has {counter} events of {stream}, but only {len(truth)} were published", node.address
            )
        expected = start
        for batch in history.read(stream, start, EVERYTHING, counter):
            if batch.first != expected and not batch.first < expected == start:
                self.fail(f"stream {stream}: {expected} is due, {batch.first} is there", node.address)
            if id(batch) not in self._compared:
                self._compare(node, stream, truth, batch, counter)
                self._compared[id(batch)] = batch
            expected = batch.last + 1
        if expected != counter + 1:
            self.fail(f"stream {stream}: the counter is {counter}, but {expected} is not there", node.address)

    def _compare(self, node: SimNode, stream: int, truth: list[Event], batch: Batch, counter: int) -> None:
        expected = batch.first
        for row in rows_of([batch]):
            first, last = (row.first, row.last) if isinstance(row, Grave) else (row.seq, row.seq)
            if first != expected:
                self.fail(f"stream {stream}: {expected} is due, {first} is there", node.address)
            if isinstance(row, Grave):
                self._check_grave(node, stream, truth, row, counter)
            elif row != truth[row.seq - 1]:
                self.fail(
                    f"stream {stream}: {row} is there, but {truth[row.seq - 1]} was published", node.address
                )
            expected = last + 1

    def _check_grave(
        self, node: SimNode, stream: int, truth: list[Event], grave: Grave, counter: int
    ) -> None:
        gc_events = self._published_gc_events(stream, truth)
        for event in truth[grave.first - 1 : grave.last]:
            made_by = (g for g, predicate in gc_events if event.seq < g.seq and matches(predicate, g, event))
            if not any(g.seq > counter or _holds(node, stream, g) for g in made_by):
                self.fail(
                    f"stream {stream}: {event.seq} is under a tombstone, but no GC event that matches is"
                    " there",
                    node.address,
                )

    def _published_gc_events(self, stream: int, truth: list[Event]) -> list[tuple[Event, Filter]]:
        found = self._gc_events.setdefault(stream, [])
        for event in truth[self._gc_seen.get(stream, 0) :]:
            if event.kind is Kind.GC:
                found.append((event, parse(str(event.attributes[GC_ATTRIBUTE]))))
        self._gc_seen[stream] = len(truth)
        return found


def _holds(node: SimNode, stream: int, event: Event) -> bool:
    return event in rows_of(history_of(node).read(stream, event.seq, 1))


class InOrder(Checker):
    """Counters never go back in one life, and each stream is taken without a gap or a repetition."""

    name = "order"

    def __init__(self, config: ProxyLevelConfig) -> None:
        self._counters: dict[tuple[Address, int, int], int] = {}
        self._advanced: dict[tuple[Address, int, int], int] = {}

    def on_step(self, world: World, node: SimNode) -> None:
        if not node.up:
            return
        machine = machine_of(node)
        for stream in machine.streams.owners:
            counter, key = machine.history.counter(stream), (node.address, node.life, stream)
            if counter < self._counters.get(key, 0):
                self.fail(f"the counter of {stream} went from {self._counters[key]} back to {counter}")
            self._counters[key] = counter

    def on_deliver(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Advanced):
            key = (node.address, node.life, item.stream)
            before = self._advanced.get(key)
            if item.last < item.first or (before is not None and item.first != before + 1):
                self.fail(f"stream {item.stream}: after {before} came {item.first}..{item.last}")
            self._advanced[key] = item.last


class OneSource(Checker):
    """At most one source per remote stream, asked from the proxy's own counter; subscriptions never form a
    cycle.

    A subscription counts once its source holds it. One that was given up may last at its former source as
    long as the news is under way, but not once all is well.
    """

    name = "one-source"

    def __init__(self, config: ProxyLevelConfig) -> None:
        self._window_bytes = config.window_bytes
        self._peer_window_bytes = config.peer_window_bytes
        self._tokens: dict[tuple[Address, int, Address], tuple[int, int]] = {}

    def on_trace(self, world: World, node: SimNode, what: str, fields: dict[str, Any]) -> None:
        if what == "events refused":
            self.fail(f"{node.address} got events that it cannot take: {fields['reason']}")

    def on_step(self, world: World, node: SimNode) -> None:
        if not node.up:
            return
        sending = machine_of(node).sending
        for peer, flow in sending.flows.items():
            if not 0 <= flow.in_flight_bytes <= self._peer_window_bytes + LARGEST_BATCH_BYTES:
                self.fail(f"{flow.in_flight_bytes} bytes are in flight to {peer}")
        for stream, subscribers in sending.cursors.items():
            for peer, cursor in subscribers.items():
                if cursor.in_flight_bytes > self._window_bytes + LARGEST_BATCH_BYTES:
                    self.fail(f"{cursor.in_flight_bytes} bytes are in flight to {peer}")
                # A path can close into a circle only where a source has just taken a new subscriber.
                if self._tokens.get((node.address, stream, peer)) != (node.life, cursor.token):
                    self._tokens[node.address, stream, peer] = (node.life, cursor.token)
                    self._check_path(world, world.nodes[peer], stream)

    def _check_path(self, world: World, node: SimNode, stream: int) -> None:
        if not node.up:
            return
        seen, at = [node.address], source(world, node, stream)
        while at is not None:
            if at.address in seen:
                self.fail(f"stream {stream} goes in a circle: {' from '.join([*seen, at.address])}")
            seen.append(at.address)
            at = source(world, at, stream)

    def waiting_for(self, world: World) -> str | None:
        for node in up(world):
            for stream, subscribers in machine_of(node).sending.cursors.items():
                for peer, cursor in subscribers.items():
                    if not world.nodes[peer].up:
                        return f"{peer} is down"
                    expects = machine_of(world.nodes[peer]).receiving.expects[stream]
                    if expects.source != node.address or expects.token != cursor.token:
                        return f"{peer} still has a subscription to {stream} at {node.address}"
        return None


def source(world: World, node: SimNode, stream: int) -> SimNode | None:
    """Where a stream comes to a node from, if both sides agree that it does."""
    expects = machine_of(node).receiving.expects.get(stream)
    if expects is None or expects.source is None:
        return None
    other = world.nodes[expects.source]
    cursor = machine_of(other).sending.cursors.get(stream, {}).get(node.address) if other.up else None
    return other if cursor is not None and cursor.token == expects.token else None


class Spreads(Checker):
    """Once the network is well, every proxy comes to have all of every stream, along a path from its
    owner."""

    name = "spreads"
    rest_us = 2 * S
    """Nothing may be missing for so long, while publishing goes on for a part of it."""

    def __init__(self, config: ProxyLevelConfig) -> None:
        self._since_us: int | None = None
        self._total = 0

    def waiting_for(self, world: World) -> str | None:
        missing = self._missing(world)
        total = 0
        if missing is None:
            total = sum(history_of(node).counter(s) for node in world.node_list for s in history_of(node).own)
        if missing is not None or total != self._total or self._since_us is None:
            self._total, self._since_us = total, world.now
            return missing or "the streams to rest"
        return None if world.now - self._since_us >= self.rest_us else "the streams to rest"

    def _missing(self, world: World) -> str | None:
        for node in world.node_list:
            if not node.up:
                return f"{node.address} is down"
        for node in world.node_list:
            machine = machine_of(node)
            for stream, expects in machine.receiving.expects.items():
                owner = owner_of(world, stream)
                there, here = machine_of(owner).visible(stream), machine.history.counter(stream)
                if here != there:
                    return f"{node.address} has {here} of {there} events of {stream}, from {expects.source}"
                if expects.source is not None and source(world, node, stream) is None:
                    return (
                        f"{node.address} waits for {stream} from {expects.source}, which does not know of it"
                    )
        return None

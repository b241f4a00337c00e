"""A simulated node: its machine's context, its timers, its inbox, its life and death."""

import random
from collections import deque
from typing import TYPE_CHECKING, Any

from qanat.events.errors import LocalError
from qanat.kernel import Address, Factory, Machine, Message, ProtocolInvariantError
from qanat.sim.clock import Clock
from qanat.sim.outbox import Outbox
from qanat.sim.paths import Channel, Path, Pipe
from qanat.sim.size import fixed_sizes, wire_size

if TYPE_CHECKING:
    from qanat.sim.world import World

INBOX_MESSAGES = 10_000
"""Messages a paused node's sockets hold: about a megabyte of small ones. Then datagrams are dropped and
channels break."""


class SimNode:
    """Implements `qanat.kernel.Context` for one machine; the rest is for the world, faults and checkers.

    `ready` is the hot path's one question: up, not paused, and nothing older waiting in the inbox.
    """

    __slots__ = (
        "world", "index", "address", "region", "group", "rng", "machine", "_factory",
        "up", "ready", "paused", "refuses", "life", "clock", "paths", "uplink", "downlink",
        "holding", "_outbox", "_timers", "_inbox", "_inbox_messages",
    )  # fmt: skip

    def __init__(
        self,
        world: "World",
        index: int,
        address: Address,
        factory: Factory,
        *,
        region: str = "",
        group: str = "",
        uplink: Pipe | None = None,
        downlink: Pipe | None = None,
    ) -> None:
        self.world = world
        self.index = index
        self.address = address
        self.region = region
        self.group = group
        self.rng: random.Random = world.machine_rng
        self.uplink = uplink
        self.downlink = downlink
        self._factory = factory
        self.machine: Machine[Any, Any]
        self.up = False
        self.ready = False
        self.paused = False
        self.refuses = False
        """Whether, while this is down, its machine is up and refuses channels for it."""
        self.life = 0
        self.clock = Clock(index)
        self.paths: dict[Address, Path] = {}
        self._timers: dict[str, list[int]] = {}
        self.holding: Outbox | None = None
        self._outbox: Outbox | None = None
        self._inbox: deque[tuple[Any, Any, Any]] | None = None
        self._inbox_messages = 0

    # The machine's context

    def cast(self, to: Address, message: Message) -> None:
        if self.holding is not None:
            self.holding.hold("cast", to, message)
            return
        world = self.world
        path = self.paths.get(to)
        if path is None:
            path = world.network.path(self, to)
            if path is None:
                world.network.unreachable(self, to, channel=False)
                return
        if message is world.last_cast:
            size = world.last_size
        else:
            size = fixed_sizes.get(message.__class__) or wire_size(message)
            world.last_cast, world.last_size = message, size
        now = world.now
        arrive = now
        if path.pipes:
            leaves: float = now
            for pipe in path.pipes:
                free = pipe.free_at
                if free > leaves:
                    if free - now > path.queue_us:
                        world.network.drop(path, message, "full queue")
                        return
                    leaves = free
                leaves += size * pipe.us_per_byte
                pipe.free_at = leaves
            arrive = int(leaves)
        path.sent_bytes += size
        arrive += path.latency_us
        if path.jitter_us:
            arrive += int(world.draw() * path.jitter_us)
        if path.rough:
            world.network.rough_cast(path, message, arrive)
        else:
            world.push((arrive, world.next_event(), path, message, None))

    @property
    def now_us(self) -> int:
        """The node's monotonic time."""
        return self.clock.monotonic(self.world.now)

    def wall_us(self) -> int:
        return self.clock.wall(self.world.now)

    def send(self, to: Address, message: Message) -> None:
        if self.holding is not None:
            self.holding.hold("send", to, message)
            return
        world = self.world
        path = self.paths.get(to)
        if path is None:
            path = world.network.path(self, to)
            if path is None:
                world.network.unreachable(self, to, channel=True)
                return
        channel = path.channel or world.network.open(path)
        size = fixed_sizes.get(message.__class__) or wire_size(message)
        now = world.now
        arrive = now
        if path.pipes:
            leaves: float = now
            for pipe in path.pipes:
                if pipe.free_at > leaves:
                    leaves = pipe.free_at
                leaves += size * pipe.us_per_byte
                pipe.free_at = leaves
            if leaves - now > path.backlog_us:
                world.network.drop(path, message, "backlog")
                world.network.break_channel(channel, "backlog")
                return
            arrive = int(leaves)
        path.sent_bytes += size
        arrive += path.latency_us
        if path.jitter_us:
            arrive += int(world.draw() * path.jitter_us)
        if path.rough:
            arrive += world.network.retransmissions_us(path)
        if arrive < path.fifo_at:
            arrive = path.fifo_at
        else:
            path.fifo_at = arrive
        world.push((arrive, world.next_event(), path, message, channel))

    def set_timer(self, name: str, after_us: int) -> None:
        if after_us < 0:
            raise LocalError(f"timer {name!r} set {-after_us} µs into the past")
        world = self.world
        due = world.now + (self.clock.true_us(after_us) if self.clock.drift_ppm else after_us)
        timer = self._timers.get(name)
        if timer is not None and timer[1] <= due:
            # An entry on the heap comes up early enough: it will see the new time and go back. So a
            # timer that is pushed out with every message costs no heap entry per message.
            timer[0] = due
            return
        event = world.next_event()
        self._timers[name] = [due, due, event]
        world.push((due, event, self._on_timer_event, name, event))

    def cancel_timer(self, name: str) -> None:
        timer = self._timers.get(name)
        if timer is not None:
            timer[0] = -1

    def persist(self, record: bytes) -> None:
        if self._outbox is None:
            self._outbox = Outbox(self)
        self._outbox.persist(record)

    def when_persisted(self, name: str) -> None:
        if self.holding is not None:
            self.holding.hold("persisted", None, name)
        else:
            self.world.after(0, self._persisted, name, self.life)

    def _persisted(self, name: str, life: int) -> None:
        if life != self.life or not self.up:
            return
        if not self.ready:
            self.queue(self._persisted, name, life)
            return
        self.world.note("persisted", self, name)
        self.world.stepping = self
        self.machine.on_persisted(self.now_us, name)

    def deliver(self, item: object) -> None:
        kinds = self.machine.delivers
        if kinds is not None and item.__class__ not in kinds:
            raise ProtocolInvariantError(f"{type(self.machine).__name__} delivers no {type(item).__name__}")
        if self.holding is not None:
            self.holding.hold("deliver", None, item)
        else:
            self.world.delivered(self, item)

    def trace(self, what: str, **fields: object) -> None:
        self.world.traced(self, what, fields)

    # Timers

    def _on_timer_event(self, name: str, event: int) -> None:
        timer = self._timers.get(name)
        if timer is None or timer[2] != event:
            return
        due, now = timer[0], self.world.now
        if due > now:
            timer[1], timer[2] = due, self.world.next_event()
            self.world.push((due, timer[2], self._on_timer_event, name, timer[2]))
            return
        if due >= 0 and not self.ready:
            timer[1] = now
            self.queue(self._on_timer_event, name, event)
            return
        del self._timers[name]
        if due < 0:
            return
        self.world.timers_fired += 1
        trace = self.world.trace_entries
        if trace is not None:
            trace.append((now, "timer", self.index, name))
        self.world.stepping = self
        self.machine.on_timer(self.now_us, name)

    # Life

    def start(self) -> None:
        """Boot with whatever survived; the machine is new, its volatile state gone."""
        self.up = self.ready = True
        self.paused = self.refuses = False
        self.life += 1
        self.clock.boot()
        saved = self._outbox.surviving() if self._outbox is not None else ()
        self.machine = self._factory(self)
        self.world.admit(self.machine)
        self.world.note("start", self, len(saved))
        self.world.stepping = self
        self.machine.on_start(self.now_us, saved)

    def crash(self, rng: random.Random) -> None:
        """Power cut: timers, held outputs and whatever waits in sockets are gone; peers learn in time."""
        lost, torn = self._outbox.crash(rng) if self._outbox is not None else (0, False)
        self.up = self.ready = self.paused = False
        self.life += 1
        self._timers = {}
        self._inbox = None
        self._inbox_messages = 0
        self.world.note("crash", self, {"records_lost": lost, "torn": torn})
        for path in list(self.paths.values()):
            if path.channel is not None:
                self.world.network.reconsider(path.channel)

    def forget(self, share: float) -> None:
        """What was on disk is gone, but for the older part of it; only of a node that is down."""
        if self._outbox is not None:
            self._outbox.forget(share)
        self.world.note("forget", self, share)

    def restart(self) -> None:
        """Boot again. The new life knows nothing of old channels: their other ends are told now."""
        if self.up:
            return
        for path in list(self.paths.values()):
            if path.channel is not None:
                self.world.network.break_channel(path.channel, "peer restarted")
        self.start()

    def wipe(self) -> None:
        """The disk is another one, with nothing on it. For a node that is down."""
        self._outbox = None
        self.world.note("wipe", self)

    def stick_disk(self, stuck: bool) -> None:
        """A full or hanging disk, or its end."""
        if self._outbox is None:
            self._outbox = Outbox(self)
        self._outbox.stick(stuck)

    @property
    def disk_stuck(self) -> bool:
        """Whoever gives the node files of its own lets their syncs wait as long."""
        return self._outbox is not None and self._outbox.stuck

    def pause(self) -> None:
        """Stop computing (a long collection, a stopped virtual machine): all that comes waits, in order."""
        self.paused, self.ready = True, False
        self.world.note("pause", self)

    def resume(self) -> None:
        if not self.paused:
            return
        self.paused = False
        self.world.note("resume", self)
        self._catch_up()

    def _catch_up(self) -> None:
        """One waiting event per step, before anything newer."""
        if self.paused or not self.up or self.ready:
            return
        self.ready = True
        if self._inbox:
            target, first, second = self._inbox.popleft()
            if type(target) is Path:
                self._inbox_messages -= 1
                self.world.arrive(target, first, second, received=True)
            else:
                target(first, second)
        if self._inbox and self.up:
            self.ready = False
            self.world.after(0, self._catch_up)

    def queue(self, target: Any, first: Any, second: Any) -> None:
        """Keep an event until the node computes again."""
        if self._inbox is None:
            self._inbox = deque()
        self._inbox.append((target, first, second))

    def queue_message(self, path: Path, message: Message, channel: Channel | None) -> bool:
        """Keep a message for a node that is not computing; False when its sockets are full."""
        if self._inbox_messages >= self.world.inbox_messages:
            return False
        self._inbox_messages += 1
        self.queue(path, message, channel)
        return True

    def link_down(self, peer: Address, life: int) -> None:
        if life != self.life or not self.up:
            return
        if not self.ready:
            self.queue(self.link_down, peer, life)
            return
        trace = self.world.trace_entries
        if trace is not None:
            trace.append((self.world.now, "down", self.index, peer))
        self.world.stepping = self
        self.machine.on_link_down(self.now_us, peer)

    def refused(self, peer: Address, life: int) -> None:
        if life != self.life or not self.up:
            return
        if not self.ready:
            self.queue(self.refused, peer, life)
            return
        self.world.note("refused", self, peer)
        self.world.stepping = self
        self.machine.on_refused(self.now_us, peer)

    def request(self, request: Any, life: int | None = None) -> bool:
        """A local call; False when the node is down, and the caller gets nothing. Waits while paused."""
        if not self.up or (life is not None and life != self.life):
            return False
        if not self.ready:
            self.queue(self.request, request, self.life)
            return True
        self.world.note("request", self, request)
        self.world.stepping = self
        self.machine.on_request(self.now_us, request)
        return True

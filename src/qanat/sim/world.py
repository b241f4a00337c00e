"""The simulated world: virtual time, the event heap, and the loop that takes one event after the other.

Time is a whole number of microseconds since the start. Events at the same instant happen in the order in
which they were scheduled, so a run is a function of its seed alone. Randomness comes in separate streams
(network, machines, workload, faults), all derived from the seed.
"""

import gc
import random
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import heappop
from itertools import count
from typing import Any

from qanat.events.errors import InvariantError, LocalError
from qanat.kernel import Address, Factory, Machine, Message, check_immutable
from qanat.sim.agenda import Agenda
from qanat.sim.check import Checker, CheckFailed, Violation, overrides
from qanat.sim.journal import DiskSpec
from qanat.sim.links import Links
from qanat.sim.network import IDLE_PATHS, Network
from qanat.sim.node import INBOX_MESSAGES, SimNode
from qanat.sim.paths import Channel, Path, Pipe
from qanat.sim.trace import FLUSH_ENTRIES, Trace, encode

DeliverHook = Callable[["World", SimNode, Any], None]


class World:
    """Nodes, network and time. Build it, `add` nodes, `start`, then `run(until_us)` as often as needed.

    A run stops at the first safety violation, since nothing that follows a broken promise is worth much.
    """

    def __init__(
        self,
        seed: int,
        *,
        links: Links | None = None,
        disk: DiskSpec | None = None,
        checkers: Iterable[Checker] = (),
        check_every: int = 1,
        trace: Trace | None = None,
        tracing: bool = True,
        inbox_messages: int = INBOX_MESSAGES,
        idle_paths: int = IDLE_PATHS,
    ) -> None:
        self.seed = seed
        self.now = 0
        self.event = 0
        self.agenda = Agenda()
        self.push = self.agenda.push
        self.next_event = count(1).__next__
        self.machine_rng = random.Random(f"{seed}/machines")
        self.workload_rng = random.Random(f"{seed}/workload")
        self.fault_rng = random.Random(f"{seed}/faults")
        network_rng = random.Random(f"{seed}/network")
        self.draw = network_rng.random
        self.disk = disk or DiskSpec()
        self.inbox_messages = inbox_messages
        self.nodes: dict[Address, SimNode] = {}
        self.node_list: list[SimNode] = []
        self.network = Network(self, links or Links(), network_rng, idle_paths=idle_paths)
        self.trace = trace or Trace()
        self.trace_entries = self.trace.entries if tracing else None
        self.checkers = list(checkers)
        self.check_every = check_every
        self.deliver_hooks: list[DeliverHook] = [
            one.on_deliver for one in self.checkers if overrides(one, "on_deliver")
        ]
        self.violations: list[Violation] = []
        self.stepping: SimNode | None = None
        self.last_cast: Message | None = None
        self.last_size = 0
        """The last datagram and its size: most are sent to several nodes in a row."""
        self.messages = 0
        self.timers_fired = 0
        self.steps = 0
        self._since_check = 0
        self._admitted: set[type] = set()

    # Building

    def add(
        self,
        address: Address,
        factory: Factory,
        *,
        region: str = "",
        group: str = "",
        uplink: Pipe | None = None,
        downlink: Pipe | None = None,
    ) -> SimNode:
        if address in self.nodes:
            raise LocalError(f"there are two nodes named {address!r}")
        node = SimNode(
            self,
            len(self.node_list),
            address,
            factory,
            region=region,
            group=group,
            uplink=uplink,
            downlink=downlink,
        )
        self.nodes[address] = node
        self.node_list.append(node)
        return node

    def start(self) -> None:
        """Boot every node at time 0, in the order they were added."""
        self.trace.begin([node.address for node in self.node_list])
        for checker in self.checkers:
            checker.begin(self)
        for node in self.node_list:
            self.after(0, node.start)

    def admit(self, machine: Machine[Any, Any]) -> None:
        """Refuse a protocol whose messages could be changed after they were sent; looks once per protocol."""
        kind = type(machine)
        if kind not in self._admitted:
            for message in (*machine.message_types, *machine.sent_types):
                check_immutable(message)
            self._admitted.add(kind)

    # Scheduling

    def at(self, time_us: int, action: Callable[..., object], *arguments: Any) -> int:
        """Call `action(*arguments)` at that time, or now if it is past; returns the event's number."""
        event = self.next_event()
        self.push((max(time_us, self.now), event, _call, action, arguments))
        return event

    def after(self, delay_us: int, action: Callable[..., object], *arguments: Any) -> int:
        return self.at(self.now + delay_us, action, *arguments)

    def arrival(self, time_us: int, path: Path, message: Message, channel: Channel | None) -> None:
        self.push((time_us, self.next_event(), path, message, channel))

    # Running

    def run(self, until_us: int) -> None:
        """Take events up to and including that time, or up to the first violation."""
        if self.violations:
            return
        try:
            with _patient_collector():
                self._loop(until_us)
        except CheckFailed as failed:
            self.violate(failed.checker, failed.explanation, failed.node)
        except Exception as error:  # whatever a machine raises is a finding of this run, with its story
            self.violate("machine", _describe(error))
        else:
            self.now = max(self.now, until_us)

    def _loop(self, until_us: int) -> None:
        heap, pop, turn = self.agenda.heap, heappop, self.agenda.turn
        entries = self.trace_entries
        note = entries.append if entries is not None else None
        on_step = [one.on_step for one in self.checkers if overrides(one, "on_step")]
        check_every = self.check_every if on_step else 0
        messages = 0
        to_flush = FLUSH_ENTRIES
        try:
            while heap or turn(until_us):
                if heap[0][0] > until_us:
                    break
                now, event, target, first, second = pop(heap)
                self.now = now
                if target.__class__ is Path:
                    node = target.target
                    if node.ready and target.clear and (second is None or second.open):
                        messages += 1
                        if note is not None:
                            note((now, "message", node.index, target.source_index, first))
                        clock = node.clock
                        self.stepping = node
                        node.machine.on_message(
                            clock.monotonic(now) if clock.drift_ppm else now + clock.base_us,
                            target.source_address,
                            first,
                        )
                    else:
                        self.stepping = None
                        self.network.rough_arrival(target, first, second)
                else:
                    self.event = event
                    self.stepping = None
                    target(first, second)
                to_flush -= 1
                if not to_flush:
                    to_flush = FLUSH_ENTRIES
                    if entries is not None:
                        self.trace.flush()
                    self.messages += messages
                    self.steps += FLUSH_ENTRIES
                    messages = 0
                if check_every and self.stepping is not None:
                    self._since_check += 1
                    if self._since_check >= check_every:
                        self._since_check = 0
                        for hook in on_step:
                            hook(self, self.stepping)
        finally:
            self.messages += messages
            self.steps += FLUSH_ENTRIES - to_flush

    def arrive(
        self, path: Path, message: Message, channel: Channel | None, *, received: bool = False
    ) -> None:
        """A message that waited somewhere arrives now: what the loop does, off the hot path.

        `received`: it waited in the node's own sockets, so what became of the path since then is nothing to
        it.
        """
        node = path.target
        if not (node.ready and (received or path.clear) and (channel is None or channel.open)):
            self.network.rough_arrival(path, message, channel)
            return
        self.messages += 1
        if self.trace_entries is not None:
            self.trace_entries.append((self.now, "message", node.index, path.source_index, message))
        self.stepping = node
        node.machine.on_message(node.clock.monotonic(self.now), path.source_address, message)

    # What nodes report

    def delivered(self, node: SimNode, item: Any) -> None:
        self.note("deliver", node, item)
        for hook in self.deliver_hooks:
            hook(self, node, item)

    def traced(self, node: SimNode, what: str, fields: dict[str, Any]) -> None:
        if self.trace_entries is not None:
            self.trace_entries.append((self.now, "trace", node.index, what, encode(fields)))
        for checker in self.checkers:
            checker.on_trace(self, node, what, fields)

    def note(self, kind: str, node: SimNode | None, *rest: Any) -> None:
        if self.trace_entries is not None:
            self.trace.note(self.now, kind, -1 if node is None else node.index, *rest)

    def crash(self, node: SimNode) -> None:
        if node.up:
            node.crash(self.fault_rng)
            for checker in self.checkers:
                checker.on_crash(self, node)

    def kill(self, node: SimNode) -> None:
        """Its process dies; the machine goes on, and says so to whoever is there or comes."""
        if node.up:
            self.crash(node)
            node.refuses = True
            self.network.reset(node)

    def violate(self, checker: str, explanation: str, node: Address | None = None) -> None:
        if node is None and self.stepping is not None:
            node = self.stepping.address
        story = tuple(self.trace.story())
        self.violations.append(Violation(checker, self.now, str(node or ""), explanation, story))


@contextmanager
def _patient_collector() -> Iterator[None]:
    """Look for cyclic garbage rarely: a world makes millions of small objects and hardly a cycle."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _call(action: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    action(*arguments)


def _describe(error: Exception) -> str:
    """One sentence for a broken invariant; for anything else also where it came from."""
    if isinstance(error, InvariantError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    place = (
        f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno} in {frames[-1].name})"
        if frames
        else ""
    )
    return f"{type(error).__name__}: {error}{place}"

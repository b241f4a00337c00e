"""How fast the simulator is: simulated messages and timers per second of one core."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial

from qanat.bench.figures import gathered, in_turns
from qanat.bench.sim_regions import run_regions
from qanat.kernel import Address, Context, Machine, Message
from qanat.sim import Links, LinkSpec, World

DESCRIPTION = (
    "simulated messages per second of one core: rumours over links with latency, jitter and bandwidth"
)

FANOUT = 4
"""Peers that hear of a node's state each round."""
ROUND_US = 10_000
WARM_UP_US = 50_000
"""Until the first answers have come back: as many messages arrive as leave."""
WAN = LinkSpec(latency_ms=20.0, jitter_ms=5.0, bandwidth_mbit_s=100.0)


class Rumour(Message, frozen=True):
    """What the sender knows."""

    origin: int
    version: int
    heat: float


class Gossip(Machine[Rumour, int]):
    """Every round tells a few random peers; answers whoever knows less. Enough work to be a real protocol."""

    message_types = (Rumour,)

    def __init__(self, context: Context, peers: Sequence[Address], number: int) -> None:
        super().__init__(context)
        self._peers = peers
        self._number = number
        self._best = number
        self._known = 0

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.context.set_timer("round", self.context.rng.randrange(ROUND_US) + 1)

    def on_timer(self, now_us: int, name: str) -> None:
        self._known += 1
        rumour = Rumour(self._best, self._known, 0.5)
        peers, rng = self._peers, self.context.rng
        for _ in range(FANOUT):
            self.context.cast(peers[int(rng.random() * len(peers))], rumour)
        self.context.set_timer("round", ROUND_US)

    def on_message(self, now_us: int, sender: Address, message: Rumour) -> None:
        if message.origin > self._best:
            self._best = message.origin
        elif message.origin < self._best and message.heat > 0.25:
            self.context.cast(sender, Rumour(self._best, message.version, message.heat / 2))


class Ticker(Machine[Rumour, int]):
    """Timers alone: one that fires, one that is pushed out each time."""

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.context.set_timer("tick", self.context.rng.randrange(1000) + 1)

    def on_timer(self, now_us: int, name: str) -> None:
        self.context.set_timer("tick", 1000)
        self.context.set_timer("watchdog", 1_000_000)


def gossip_world(nodes: int, *, tracing: bool = True) -> World:
    world = World(1, links=Links(WAN), tracing=tracing)
    peers = [Address(f"node-{number}") for number in range(nodes)]
    for number, peer in enumerate(peers):
        world.add(peer, partial(Gossip, peers=peers, number=number))
    world.start()
    return world


def messages_per_s(nodes: int, virtual_us: int, *, tracing: bool = True) -> float:
    world = gossip_world(nodes, tracing=tracing)
    world.run(WARM_UP_US)
    before = world.messages
    began = time.perf_counter()
    world.run(WARM_UP_US + virtual_us)
    world.trace.digest()
    return (world.messages - before) / (time.perf_counter() - began)


def timers_per_s(nodes: int, virtual_us: int) -> float:
    world = World(1)
    for number in range(nodes):
        world.add(Address(f"node-{number}"), Ticker)
    world.start()
    began = time.perf_counter()
    world.run(virtual_us)
    return world.timers_fired / (time.perf_counter() - began)


def bytes_per_node(nodes: int) -> float:
    """Memory of a booted node with its machine, its timer and no traffic yet."""
    gc.collect()
    tracemalloc.start()
    world = gossip_world(nodes)
    world.run(0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / len(world.node_list)


def bytes_per_path() -> float:
    """Memory of one direction between two nodes that have spoken; paths of idle pairs are swept in time."""
    world = gossip_world(1000)
    world.run(0)
    gc.collect()
    tracemalloc.start()
    world.run(WARM_UP_US)
    world.agenda.clear()  # messages in flight are not the paths' memory
    world.trace.flush()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / sum(len(node.paths) for node in world.node_list)


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    figures: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    for number in range(rounds):
        traced, untraced, ratio = in_turns(
            lambda: messages_per_s(100, 2_000_000),
            lambda: messages_per_s(100, 2_000_000, tracing=False),
            2,
            first=number,
        )
        add("messages_per_s", traced)
        add("messages_per_s_untraced", untraced)
        add("trace_cost_ratio", 1 / ratio)
        add("nodes_10000_messages_per_s", messages_per_s(10_000, 40_000))
        add("timers_per_s", timers_per_s(100, 2_000_000))
        say(f"round {number + 1}: {traced:,.0f} messages/s with 100 nodes, {untraced:,.0f} without a trace")
    add("bytes_per_node", bytes_per_node(100_000))
    add("bytes_per_path", bytes_per_path())
    return gathered(figures)


def run_clients(clients: int, say: Callable[[str], None]) -> dict[str, float]:
    """With `--clients N`: three regions with N clients in all, once."""
    return run_regions(clients, say)

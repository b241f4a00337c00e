"""For tests of the simulator and of protocols on it: a machine that does as it is told and notes what
happens to it, small worlds of such machines, and the assertion that a scenario keeps its promises.
"""

from collections.abc import Callable, Sequence
from typing import Any

from qanat.kernel import Address, Context, Machine, Message
from qanat.sim.links import Links, LinkSpec
from qanat.sim.run import run
from qanat.sim.scenario import Scenario
from qanat.sim.sweep import replay_command
from qanat.sim.units import S
from qanat.sim.world import World

A, B, C = Address("a"), Address("b"), Address("c")


def assert_kept(scenario: Scenario, seeds: Sequence[int]) -> None:
    """Run each seed; a broken promise fails with its story and the command that replays it."""
    for seed in seeds:
        outcome = run(scenario, seed)
        if outcome.violations:
            worst = outcome.violations[0]
            story = "\n".join(worst.story)
            raise AssertionError(
                f"seed {seed} broke {worst.checker!r} at {worst.time_us / S:.6f} s {worst.node}: "
                f"{worst.explanation}\n{story}\nreplay: {replay_command(scenario.path, seed)}"
            )


class Note(Message, frozen=True):
    number: int
    payload: bytes = b""


class Recorder(Machine[Note, Callable[[Context], None]]):
    """Requests are functions of the context, run inside the machine; everything else is written down."""

    message_types = (Note,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.log: list[tuple[Any, ...]] = []
        self.saved: Sequence[bytes] = ()
        self.timer_hook: Callable[[Context], None] | None = None

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.saved = saved

    def on_message(self, now_us: int, sender: Address, message: Note) -> None:
        self.log.append(("message", now_us, sender, message.number))

    def on_timer(self, now_us: int, name: str) -> None:
        self.log.append(("timer", now_us, name))
        if self.timer_hook is not None:
            self.timer_hook(self.context)

    def on_request(self, now_us: int, request: Callable[[Context], None]) -> None:
        request(self.context)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.log.append(("down", now_us, peer))

    def numbers(self) -> list[int]:
        return [entry[3] for entry in self.log if entry[0] == "message"]

    def downs(self) -> list[Address]:
        return [entry[2] for entry in self.log if entry[0] == "down"]


def make_world(
    seed: int = 1, *, names: Sequence[str] = ("a", "b", "c"), link: LinkSpec | None = None, **more: Any
) -> World:
    """Worlds in which requests are functions cannot be traced request by request; tracing is off."""
    world = World(
        seed, links=Links(link or LinkSpec(latency_ms=10.0)), tracing=more.pop("tracing", False), **more
    )
    for name in names:
        world.add(Address(name), Recorder)
    world.start()
    world.run(0)
    return world


def recorder(world: World, address: Address) -> Recorder:
    machine = world.nodes[address].machine
    if not isinstance(machine, Recorder):
        raise TypeError(f"{address} runs {type(machine).__name__}, not a Recorder")
    return machine


def do(world: World, address: Address, action: Callable[[Context], None], at_us: int | None = None) -> None:
    """Run something inside a node's machine, now or at a time."""
    world.at(world.now if at_us is None else at_us, world.nodes[address].request, action)


def casts(to: Address, *numbers: int, payload_bytes: int = 0) -> Callable[[Context], None]:
    """For `do`: cast one note per number."""

    def action(context: Context) -> None:
        for number in numbers:
            context.cast(to, Note(number, bytes(payload_bytes)))

    return action


def sends(to: Address, *numbers: int, payload_bytes: int = 0) -> Callable[[Context], None]:
    """For `do`: send one note per number."""

    def action(context: Context) -> None:
        for number in numbers:
            context.send(to, Note(number, bytes(payload_bytes)))

    return action


def arrivals(world: World, address: Address) -> list[tuple[int, int]]:
    """(time since the start, number) of every message that arrived."""
    node = world.nodes[address]
    return [
        (entry[1] - node.clock.base_us, entry[3])
        for entry in recorder(world, address).log
        if entry[0] == "message"
    ]

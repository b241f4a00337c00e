"""The loop: order, seeds, checkers, and what a machine's mistake becomes."""

from collections.abc import Sequence
from typing import Any

import pytest

from qanat.events.errors import LocalError
from qanat.kernel import Address, Context, Factory, Machine, Message, require
from qanat.sim import Checker, Links, LinkSpec, SimNode, World
from qanat.sim.testing import A, B, Note, Recorder, casts, do, make_world, recorder
from qanat.sim.units import S


class Chatter(Machine[Note, int]):
    """Answers at random, to exercise every stream of randomness."""

    message_types = (Note,)

    def __init__(self, context: Context, everyone: Sequence[Address]) -> None:
        super().__init__(context)
        self._everyone = everyone

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.context.set_timer("t", 1000)

    def on_timer(self, now_us: int, name: str) -> None:
        self.context.cast(self.context.rng.choice(self._everyone), Note(self.context.rng.randrange(1000)))
        self.context.set_timer("t", self.context.rng.randrange(1000, 5000))

    def on_message(self, now_us: int, sender: Address, message: Note) -> None:
        if message.number % 3:
            self.context.send(sender, Note(message.number // 2))
        else:
            self.context.trace("third", number=message.number)


def chat(seed: int) -> str:
    names = [Address(f"n{number}") for number in range(6)]
    factory: Factory = lambda context: Chatter(context, names)  # noqa: E731
    world = World(seed, links=Links(LinkSpec(latency_ms=2.0, jitter_ms=3.0, loss=0.1, duplicate=0.1)))
    for name in names:
        world.add(name, factory)
    world.start()
    world.run(1 * S)
    assert world.messages > 500
    return world.trace.digest()


def test_a_seed_is_a_run_and_another_seed_another() -> None:
    assert chat(1) == chat(1)
    assert len({chat(seed) for seed in range(10)}) == 10


def test_running_in_slices_changes_nothing() -> None:
    def sliced(step_us: int) -> str:
        world = World(5, links=Links(LinkSpec(latency_ms=2.0, jitter_ms=3.0)))
        for name in (A, B):
            world.add(name, lambda context: Chatter(context, (A, B)))
        world.start()
        for until_us in range(step_us, S + 1, step_us):
            world.run(until_us)
        return world.trace.digest()

    assert len({sliced(step_us) for step_us in (S, S // 2, S // 100)}) == 1


def test_events_at_one_instant_happen_in_the_order_of_their_scheduling() -> None:
    world = make_world(link=LinkSpec(latency_ms=1.0))
    order: list[int] = []
    for number in range(50):
        world.at(500, order.append, number)
    do(world, A, casts(B, *range(20)))
    world.run(1 * S)
    assert order == list(range(50))
    assert recorder(world, B).numbers() == list(range(20))


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(LocalError, match="two nodes named 'a'"):
        make_world(names=("a", "a"))


class Broken(Recorder):
    def on_message(self, now_us: int, sender: Address, message: Note) -> None:
        require(message.number != 2, "number two is not allowed")
        if message.number == 3:
            raise ZeroDivisionError("three")


@pytest.mark.parametrize(
    ("number", "words"), [(2, "number two is not allowed"), (3, "ZeroDivisionError: three")]
)
def test_a_machine_that_raises_is_a_violation_with_time_node_and_story(number: int, words: str) -> None:
    world = World(1, links=Links(LinkSpec(latency_ms=10.0)))
    world.add(A, Recorder)
    world.add(B, Broken)
    world.start()
    world.run(0)
    world.nodes[A].cast(B, Note(1))
    world.nodes[A].cast(B, Note(number))
    world.nodes[A].cast(B, Note(4))
    world.run(1 * S)
    (violation,) = world.violations
    assert (violation.time_us, violation.node, violation.checker) == (10_000, "b", "machine")
    assert words in violation.explanation
    assert f"Note(number={number}" in violation.story[-1]
    before = world.messages
    world.run(2 * S)  # it stays stopped
    assert world.messages == before


class Mutable(Message, frozen=True):
    names: list[str]


class Sharing(Recorder):
    message_types = (Mutable,)  # type: ignore[assignment]


def test_a_protocol_with_messages_that_can_change_is_not_let_in() -> None:
    world = World(1)
    world.add(A, Sharing)
    world.start()
    world.run(0)
    assert "holds a list" in world.violations[0].explanation


class Counting(Checker):
    name = "counting"

    def __init__(self) -> None:
        self.steps: list[Address] = []
        self.traces: list[tuple[str, dict[str, Any]]] = []

    def on_step(self, world: World, node: SimNode) -> None:
        self.steps.append(node.address)
        if len(self.steps) > 1000:
            self.fail("too many steps")

    def on_trace(self, world: World, node: SimNode, what: str, fields: dict[str, Any]) -> None:
        self.traces.append((what, fields))


def test_checkers_see_every_step_or_every_nth() -> None:
    for every, expected in ((1, 303), (10, 30)):
        checker = Counting()
        world = make_world(checkers=[checker], check_every=every)
        do(world, A, casts(B, *range(299)))
        world.run(1 * S)
        assert len(checker.steps) == expected  # three boots, a request, 299 messages
        assert world.messages == 299


def test_a_checker_ends_the_run_and_blames_the_node_that_acted() -> None:
    checker = Counting()
    world = make_world(checkers=[checker])
    do(world, A, casts(B, *range(2000)))
    world.run(1 * S)
    (violation,) = world.violations
    assert (violation.checker, violation.node, violation.explanation) == ("counting", "b", "too many steps")
    assert world.messages == 997


def test_checkers_hear_traces() -> None:
    checker = Counting()
    world = make_world(checkers=[checker])
    world.nodes[A].trace("became_head", epoch=3)
    assert checker.traces == [("became_head", {"epoch": 3})]

"""Traces: canonical, hashed piecemeal, readable."""

import io
from dataclasses import dataclass

import pytest

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.kernel import Address
from qanat.sim import Trace
from qanat.sim.testing import A, B, Note, make_world
from qanat.sim.trace import STORY_ENTRIES, encode


@dataclass(frozen=True)
class Item:
    name: str
    size: int


def filled(flush_every: int, entries: int = 2000) -> Trace:
    trace = Trace()
    trace.begin([A, B])
    for number in range(entries):
        trace.entries.append((number, "message", number % 2, 0, Note(number)))
        if number % flush_every == 0:
            trace.flush()
    return trace


def test_the_hash_does_not_depend_on_when_it_was_fed() -> None:
    assert len({filled(every).digest() for every in (1, 7, 15, 16, 512, 10_000)}) == 1
    assert filled(7).digest() != filled(7, entries=1999).digest()


def test_names_are_part_of_the_hash() -> None:
    one, other = Trace(), Trace()
    one.begin([A])
    other.begin([B])
    assert one.digest() != other.digest()


def test_what_is_noted_may_change_afterwards() -> None:
    """Items are encoded when they are handed over, so a machine that goes on changing them does no harm."""
    growing = [1]
    one, other = Trace(), Trace()
    one.note(0, "deliver", 0, growing)
    growing.append(2)
    other.note(0, "deliver", 0, [1])
    assert one.digest() == other.digest()


def test_sets_and_dictionaries_are_put_in_order() -> None:
    assert encode({"b": 1, "a": {3, 1, 2}}) == encode({"a": {2, 3, 1}, "b": 1})


def test_batches_and_dataclasses_can_be_traced_and_strange_things_not() -> None:
    batch = Batch.build(7, [b"x"], first=3)
    assert b"batch" in encode(batch)
    assert encode(Item("x", 1)) == encode({"name": "x", "size": 1})
    with pytest.raises(LocalError, match="a object cannot go into a trace"):
        encode(object())


def test_the_story_is_bounded_and_ends_with_the_latest() -> None:
    trace = filled(500)
    story = trace.story()
    assert len(story) == STORY_ENTRIES
    assert "Note(number=1999" in story[-1]
    assert "from a" in story[-1]


def test_a_full_trace_can_be_read() -> None:
    out = io.StringIO()
    world = make_world(trace=Trace(out), tracing=True)
    node = world.nodes[A]
    world.note("fault", None, "begins", "quake")
    node.trace("thought", depth=3)
    node.cast(B, Note(5))
    world.run(1_000_000)
    world.trace.digest()
    text = out.getvalue()
    assert "world            fault    begins quake" in text
    assert "a                trace    thought depth=3" in text
    assert "0.010000  b                message  from a: Note(number=5" in text


def test_without_tracing_nothing_is_kept() -> None:
    world = make_world(tracing=False)
    world.nodes[A].cast(Address("b"), Note(1))
    world.run(1_000_000)
    assert world.trace.entries == []
    assert world.messages == 1

"""The mesh's books: receive buffer, ranges, and what is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.mesh import MeshConfig
from qanat.protocols.mesh.buffer import ReceiveBuffer
from qanat.protocols.mesh.incoming import Incoming
from qanat.protocols.mesh.ranges import HOLES, holes

pytestmark = pytest.mark.paper("S7")

STREAM, OTHER = 7, 8
PEER = Address("eu/a")


def batch(first: int, last: int, stream: int = STREAM) -> Batch:
    return Batch.build(stream, [b"x" * 10] * (last - first + 1), first=first)


SIZE = batch(1, 10).virtual_size


def filled(batches: int, limit_batches: int) -> ReceiveBuffer:
    buffer = ReceiveBuffer(limit_batches * SIZE)
    for number in range(batches):
        buffer.add(STREAM, number * 10 + 1, number * 10 + 10, batch(number * 10 + 1, number * 10 + 10))
    return buffer


def firsts(found: list[Batch]) -> list[int]:
    return [one.first for one in found]


def test_the_oldest_is_discarded_and_the_rest_is_found_whole() -> None:
    buffer = filled(5, limit_batches=3)
    assert buffer.bytes == 3 * SIZE
    found, upto = buffer.find(STREAM, 1, 50, 1_000_000)
    assert (firsts(found), upto) == ([21, 31, 41], 50)
    found, upto = buffer.find(STREAM, 35, 35, 1_000_000)
    assert (firsts(found), upto) == ([31], 35)
    assert buffer.find(STREAM, 1, 20, 1_000_000) == ([], 20)
    assert buffer.find(OTHER, 1, 20, 1_000_000) == ([], 20)


def test_an_answer_ends_at_its_bound_and_says_where_but_has_one_batch_at_least() -> None:
    buffer = filled(5, limit_batches=5)
    found, upto = buffer.find(STREAM, 5, 50, 2 * SIZE)
    assert (firsts(found), upto) == ([1, 11], 20)
    found, upto = buffer.find(STREAM, 5, 50, 1)
    assert (firsts(found), upto) == ([1], 10)


def test_a_batch_larger_than_the_buffer_pushes_nothing_out() -> None:
    buffer = filled(2, limit_batches=2)
    buffer.add(STREAM, 21, 400, batch(21, 400))
    assert firsts(buffer.find(STREAM, 1, 400, 1_000_000)[0]) == [1, 11]


def test_streams_share_the_bound_and_a_forgotten_one_leaves_its_room() -> None:
    buffer = filled(2, limit_batches=3)
    for first in (1, 11):
        buffer.add(OTHER, first, first + 9, batch(first, first + 9, OTHER))
    assert firsts(buffer.find(STREAM, 1, 20, 1_000_000)[0]) == [11]
    buffer.forget(OTHER)
    assert buffer.bytes == SIZE
    for first in (21, 31, 41):
        buffer.add(STREAM, first, first + 9, batch(first, first + 9))
    assert buffer.bytes == 3 * SIZE


@given(st.integers(1, 30), st.integers(0, 30), st.lists(st.tuples(st.integers(1, 70), st.integers(0, 9))))
def test_holes_are_what_a_naive_count_finds(first: int, more: int, parts: list[tuple[int, int]]) -> None:
    last = first + more
    covered = sorted((low, low + length) for low, length in parts)
    naive = set(range(first, last + 1)).difference(*(range(low, high + 1) for low, high in covered))
    found = holes(first, last, covered)
    numbers = {number for low, high in found for number in range(low, high + 1)}
    assert len(found) <= HOLES
    assert numbers >= naive
    assert naive == set() or (min(numbers), max(numbers)) == (min(naive), max(naive))
    if len(found) > 1:
        assert numbers == naive


def test_what_is_lost_is_given_back_lowest_first_and_without_what_came_meanwhile() -> None:
    incoming = Incoming(STREAM, 0)
    incoming.nxt = 101
    incoming.lose(51, 60)
    incoming.lose(1, 40)
    incoming.keep_early(11, 20, 0, batch(11, 20))
    assert incoming.next_lost() == (1, 10)
    assert incoming.next_lost() == (21, 40)
    incoming.cnt = 55
    assert incoming.next_lost() == (56, 60)
    assert incoming.next_lost() is None


def test_early_batches_ripen_in_order() -> None:
    incoming = Incoming(STREAM, 0)
    for order, (first, last) in enumerate([(21, 30), (11, 20), (11, 15), (41, 50)]):
        incoming.keep_early(first, last, order, batch(first, last))
    incoming.cnt = 10
    ripened = []
    for ripe in incoming.ripe():
        ripened.append((ripe.first, ripe.last))
        incoming.cnt = max(incoming.cnt, ripe.last)
    assert ripened == [(11, 20), (11, 15), (21, 30)]
    assert incoming.early_bytes == batch(41, 50).virtual_size


def test_requests_are_counted_by_peer() -> None:
    incoming = Incoming(STREAM, 0)
    incoming.nxt = 21
    incoming.ask(PEER, 1, 10, 0)
    incoming.ask(PEER, 11, 20, 0)
    assert incoming.at_peer == {PEER: 2}
    incoming.give_up(1)
    assert incoming.close(11).last == 20
    assert incoming.at_peer == {}
    assert incoming.lost == [(1, 10)]


@pytest.mark.parametrize(("name", "value"), [("fanout", 0), ("notify_ms", 0.0), ("idle_ms", 1.0)])
def test_settings_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        MeshConfig(**{name: value})  # type: ignore[arg-type]

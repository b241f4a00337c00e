"""Latency, jitter, queueing, loss, doubling and reordering."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.batch import Batch
from qanat.kernel import Address, Message
from qanat.sim import Links, LinkSpec, wire_size
from qanat.sim.links import us_per_byte
from qanat.sim.paths import Pipe
from qanat.sim.testing import A, B, C, Note, Recorder, arrivals, casts, do, make_world, recorder, sends
from qanat.sim.units import MS
from qanat.sim.world import World


def test_a_datagram_arrives_after_the_latency() -> None:
    world = make_world(link=LinkSpec(latency_ms=10.0))
    do(world, A, casts(B, 1), at_us=5 * MS)
    world.run(1_000_000)
    assert arrivals(world, B) == [(15 * MS, 1)]
    assert recorder(world, C).log == []


def test_a_new_channel_costs_one_round_trip_and_no_more() -> None:
    world = make_world(link=LinkSpec(latency_ms=10.0))
    do(world, A, sends(B, 1), at_us=0)
    do(world, A, sends(B, 2), at_us=100 * MS)
    world.run(1_000_000)
    assert arrivals(world, B) == [(30 * MS, 1), (110 * MS, 2)]


def test_messages_queue_for_the_transmitter() -> None:
    """1 Mbit/s is 8 µs a byte: the k-th message leaves after k transmissions, each then takes the latency."""
    world = make_world(link=LinkSpec(latency_ms=5.0, bandwidth_mbit_s=1.0, queue_ms=1000.0))
    message = Note(0, bytes(1000))
    size = wire_size(message)
    do(world, A, casts(B, *range(10), payload_bytes=1000), at_us=0)
    world.run(10_000_000)
    assert arrivals(world, B) == [((number + 1) * size * 8 + 5 * MS, number) for number in range(10)]


def test_each_direction_and_each_pair_has_its_own_transmitter() -> None:
    world = make_world(link=LinkSpec(latency_ms=0.0, bandwidth_mbit_s=1.0))
    size = wire_size(Note(0, bytes(100)))
    do(world, A, casts(B, 1, payload_bytes=100), at_us=0)
    do(world, A, casts(C, 1, payload_bytes=100), at_us=0)
    do(world, B, casts(A, 2, payload_bytes=100), at_us=0)
    world.run(1_000_000)
    assert {arrivals(world, node)[0][0] for node in (A, B, C)} == {size * 8}


def test_a_shared_line_serialises_all_pairs_of_two_regions() -> None:
    world = World(1, links=Links(LinkSpec(latency_ms=0.0, bandwidth_mbit_s=1.0, shared=True)), tracing=False)
    for name, region in (("a", "eu"), ("b", "us"), ("c", "us")):
        world.add(Address(name), Recorder, region=region)
    world.start()
    world.run(0)
    size = wire_size(Note(0))
    do(world, A, casts(B, 1))
    do(world, A, casts(C, 1))
    world.run(1_000_000)
    assert [arrivals(world, node)[0][0] for node in (B, C)] == [size * 8, 2 * size * 8]


def test_an_uplink_serialises_all_that_a_node_sends() -> None:
    world = World(1, links=Links(LinkSpec(latency_ms=0.0)), tracing=False)
    for name in ("a", "b", "c"):
        world.add(Address(name), Recorder, uplink=Pipe(us_per_byte(1.0)), downlink=Pipe(us_per_byte(2.0)))
    world.start()
    world.run(0)
    size = wire_size(Note(0))
    do(world, A, casts(B, 1))
    do(world, A, casts(C, 1))
    world.run(1_000_000)
    assert [arrivals(world, node)[0][0] for node in (B, C)] == [size * 12, size * 20]


def test_a_line_with_an_interface_of_its_own_passes_by_the_uplinks() -> None:
    line = LinkSpec(latency_ms=1.0, bandwidth_mbit_s=8.0, uplinks=False)
    world = World(1, links=Links(LinkSpec(latency_ms=0.0), between={("eu", "us"): line}), tracing=False)
    for name, region in (("a", "eu"), ("b", "us"), ("c", "eu")):
        up, down = Pipe(us_per_byte(1.0)), Pipe(us_per_byte(1.0))
        world.add(Address(name), Recorder, region=region, uplink=up, downlink=down)
    world.start()
    world.run(0)
    size = wire_size(Note(0))
    do(world, A, sends(B, 1))
    do(world, A, casts(C, 1))
    world.run(1_000_000)
    assert [arrivals(world, node)[0][0] for node in (B, C)] == [3000, size * 16]


def test_a_datagram_that_would_wait_too_long_is_dropped() -> None:
    world = make_world(link=LinkSpec(latency_ms=0.0, bandwidth_mbit_s=1.0, queue_ms=10.0))
    do(world, A, casts(B, *range(100), payload_bytes=1000))
    world.run(10_000_000)
    arrived = recorder(world, B).numbers()
    assert arrived == list(range(len(arrived)))
    assert 0 < len(arrived) < 100
    assert world.network.dropped == {"full queue": 100 - len(arrived)}


def test_a_channel_with_too_much_waiting_breaks() -> None:
    world = make_world(link=LinkSpec(latency_ms=1.0, bandwidth_mbit_s=1.0, backlog_mb=0.1))
    do(world, A, sends(B, *range(15), payload_bytes=10_000))
    world.run(60_000_000)
    assert recorder(world, A).downs() == [B]
    assert recorder(world, B).downs() == [A]


@pytest.mark.parametrize("loss", [0.01, 0.2, 0.5])
def test_the_rate_of_loss_is_what_was_asked(loss: float) -> None:
    world = make_world(link=LinkSpec(latency_ms=1.0, loss=loss))
    do(world, A, casts(B, *range(20_000)))
    world.run(1_000_000)
    lost = 20_000 - len(recorder(world, B).log)
    assert world.network.dropped == {"loss": lost}
    # Six standard deviations of a binomial.
    assert abs(lost - 20_000 * loss) < 6 * (20_000 * loss * (1 - loss)) ** 0.5


def test_duplicates_and_reordering_happen_to_datagrams_alone() -> None:
    link = LinkSpec(latency_ms=5.0, jitter_ms=2.0, duplicate=0.3, reorder=0.3, loss=0.1)
    world = make_world(link=link)
    do(world, A, casts(B, *range(500)))
    do(world, A, sends(C, *range(500)))
    world.run(600_000_000)
    cast, sent = recorder(world, B).numbers(), recorder(world, C).numbers()
    assert sent == list(range(500))
    assert len(cast) > len(set(cast))
    assert cast != sorted(cast)
    assert set(cast) < set(range(500))


@given(
    seed=st.integers(0, 2**32),
    latency_ms=st.floats(0, 50),
    jitter_ms=st.floats(0, 50),
    loss=st.sampled_from([0.0, 0.3]),
    bandwidth=st.sampled_from([None, 0.5, 100.0]),
    times=st.lists(st.integers(0, 100_000), min_size=1, max_size=40),
)
def test_a_whole_channel_delivers_all_in_order_once(
    seed: int, latency_ms: float, jitter_ms: float, loss: float, bandwidth: float | None, times: list[int]
) -> None:
    link = LinkSpec(latency_ms=latency_ms, jitter_ms=jitter_ms, loss=loss, bandwidth_mbit_s=bandwidth)
    world = make_world(seed, names=("a", "b"), link=link)
    for number, at_us in enumerate(sorted(times)):
        do(world, A, sends(B, number), at_us=at_us)
    world.run(3_600_000_000)
    assert recorder(world, B).numbers() == list(range(len(times)))
    assert world.violations == []


class Carrier(Message, frozen=True):
    batch: Batch


def test_a_batch_counts_with_its_payload_even_when_it_has_none() -> None:
    plain = Batch.build(1, [bytes(500)] * 100, first=1)
    ghost = Batch.build(1, (100, 500), first=1, ghost=True)
    assert ghost.size < plain.size / 10
    assert abs(wire_size(Carrier(plain)) - wire_size(Carrier(ghost))) < 8  # padding
    assert wire_size(Carrier(ghost)) >= 50_000


def test_fixed_messages_have_one_size_and_others_grow() -> None:
    assert wire_size(Note(1)) == wire_size(Note(2**60))
    assert wire_size(Note(1, bytes(100))) == wire_size(Note(1)) + 100


def test_an_unknown_address_loses_datagrams_and_breaks_channels() -> None:
    world = make_world()
    nobody = Address("nobody")
    do(world, A, casts(nobody, 1))
    do(world, A, sends(nobody, 2))
    world.run(10_000_000)
    assert recorder(world, A).downs() == [nobody]
    assert world.network.dropped == {"no such node": 2}


def test_a_node_can_speak_to_itself() -> None:
    world = make_world(link=LinkSpec(loss=0.9))
    do(world, A, casts(A, 1))
    do(world, A, sends(A, 2))
    world.run(1_000_000)
    assert sorted(recorder(world, A).numbers()) == [1, 2]


def test_idle_paths_are_forgotten_and_made_anew() -> None:
    names = [f"n{number}" for number in range(20)]
    world = make_world(names=names, idle_paths=50)
    for step in range(40):
        for name in names:
            to = Address(names[(names.index(name) + step) % 20])
            do(world, Address(name), casts(to, 1), at_us=step * 100 * MS)
    world.run(10_000_000)
    assert sum(len(node.paths) for node in world.node_list) <= 51
    assert world.messages == 20 * 40
    assert world.network.sent_bytes() == 20 * 40 * wire_size(Note(1))

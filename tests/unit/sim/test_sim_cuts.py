"""Cuts, clogs and what they do to datagrams and channels."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.errors import LocalError
from qanat.kernel import Address
from qanat.sim import FaultRunner, LinkSpec, World
from qanat.sim.faults import Clog, Crash, Cut, Degrade, Fault
from qanat.sim.testing import A, B, C, arrivals, casts, do, make_world, recorder, sends
from qanat.sim.units import MS, S

LINK = LinkSpec(latency_ms=10.0, detect_ms=1000.0)


def with_faults(
    *faults: Fault, names: tuple[str, ...] = ("a", "b", "c"), seed: int = 1
) -> tuple[World, FaultRunner]:
    world = make_world(seed, names=names, link=LINK)
    runner = FaultRunner(world)
    runner.schedule(faults)
    return world, runner


def heard(world: World, pairs: list[tuple[Address, Address]], at_us: int) -> set[tuple[Address, Address]]:
    """Which of these paths carry a datagram sent at that time."""
    for number, (source, target) in enumerate(pairs):
        do(world, source, casts(target, 1000 + number), at_us=at_us)
    world.run(at_us + 500 * MS)
    return {
        (source, target)
        for number, (source, target) in enumerate(pairs)
        if 1000 + number in recorder(world, target).numbers()
    }


ALL = [(x, y) for x in (A, B, C) for y in (A, B, C) if x != y]


@pytest.mark.parametrize(
    ("fault", "passes"),
    [
        (Cut(between=(("a",), ("b",))), {(A, C), (C, A), (B, C), (C, B)}),
        (Cut(isolate=("a",)), {(B, C), (C, B)}),
        (Cut(between=(("a",), ("b", "c")), one_way=True), {(B, A), (C, A), (B, C), (C, B)}),
        (Cut(), set()),
    ],
    ids=["partial", "isolate", "one-way", "full"],
)
def test_a_cut_stops_exactly_its_paths_and_ends(fault: Cut, passes: set[tuple[Address, Address]]) -> None:
    world, runner = with_faults(fault)
    assert heard(world, ALL, 1 * S) == passes
    runner.heal()
    assert heard(world, ALL, 2 * S) == set(ALL)


def test_a_datagram_in_flight_is_lost_when_the_path_is_cut() -> None:
    world, _ = with_faults(Cut(at_s=0.005, for_s=0.1))
    do(world, A, casts(B, 1), at_us=0)
    world.run(1 * S)
    assert recorder(world, B).log == []
    assert world.network.dropped == {"cut": 1}


def test_a_long_cut_breaks_the_channel_and_tells_both_ends() -> None:
    world, _ = with_faults(Cut(at_s=1.0, for_s=5.0, between=(("a",), ("b",))))
    do(world, A, sends(B, 1), at_us=0)
    do(world, A, sends(B, 2), at_us=1 * S - 5 * MS)  # in flight at the cut
    do(world, A, sends(B, 3), at_us=1 * S + 5 * MS)
    world.run(1 * S + 999 * MS)
    assert recorder(world, A).downs() == []
    world.run(10 * S)
    do(world, A, sends(B, 4))
    world.run(20 * S)
    assert recorder(world, B).numbers() == [1, 4]
    assert recorder(world, A).downs() == [B]
    assert recorder(world, B).downs() == [A]
    assert recorder(world, C).downs() == []


def test_a_short_cut_only_delays_a_channel() -> None:
    world, _ = with_faults(Cut(at_s=1.0, for_s=0.5))
    for number in range(20):
        do(world, A, sends(B, number), at_us=900 * MS + number * 50 * MS)
    world.run(10 * S)
    assert recorder(world, B).numbers() == list(range(20))
    assert recorder(world, A).downs() == []
    late = [at_us for at_us, number in arrivals(world, B) if 2 <= number < 12]
    assert all(at_us >= 1500 * MS for at_us in late)


def test_a_one_way_cut_breaks_a_channel_too() -> None:
    world, _ = with_faults(Cut(at_s=1.0, for_s=5.0, between=(("a",), ("b",)), one_way=True))
    do(world, B, sends(A, 1), at_us=0)
    do(world, B, sends(A, 2), at_us=1500 * MS)  # this way still works until the break is noticed
    world.run(10 * S)
    assert recorder(world, A).numbers() == [1, 2]
    assert recorder(world, B).downs() == [A]


def test_a_channel_opened_into_a_cut_ends_in_a_link_down() -> None:
    world, _ = with_faults(Cut(for_s=5.0))
    do(world, A, sends(B, 1), at_us=1 * S)
    world.run(4 * S)
    assert recorder(world, A).downs() == [B]
    assert recorder(world, B).numbers() == []


def test_a_crashed_peer_breaks_the_channel_after_detection_or_at_its_restart() -> None:
    slow, _ = with_faults(Crash(at_s=1.0, for_s=5.0, nodes=("b",)))
    fast, _ = with_faults(Crash(at_s=1.0, for_s=0.2, nodes=("b",)))
    for world, expected in ((slow, 2000), (fast, 1200)):
        do(world, A, sends(B, 1), at_us=0)
        world.run(10 * S)
        offset = world.nodes[A].clock.base_us
        assert [(entry[1] - offset) // MS for entry in recorder(world, A).log if entry[0] == "down"] == [
            expected
        ]
        assert recorder(world, B).downs() == []  # its new life never knew the channel


def test_degrading_is_added_to_the_links_own_loss() -> None:
    world, runner = with_faults(Degrade(loss=0.5, duplicate=0.2))
    do(world, A, casts(B, *range(2000)), at_us=1 * S)
    world.run(2 * S)
    assert 800 < world.network.dropped["loss"] < 1200
    assert world.network.duplicated > 100
    runner.heal()
    do(world, A, casts(B, *range(5000, 6000)))
    world.run(3 * S)
    assert sum(number >= 5000 for number in recorder(world, B).numbers()) == 1000


def test_a_clog_rolls_over_links_and_ends() -> None:
    world, runner = with_faults(Clog(links=1, extra_ms=200.0, every_s=0.1))
    for step in range(200):
        for source, target in ALL:
            do(world, source, casts(target, step), at_us=step * 10 * MS)
    world.run(2 * S + 300 * MS)
    delays = {
        (target, number): at_us - number * 10 * MS
        for target in (A, B, C)
        for at_us, number in arrivals(world, target)
    }
    clogged = {target for (target, _), delay in delays.items() if delay > 100 * MS}
    assert len(clogged) > 1
    assert sum(delay > 100 * MS for delay in delays.values()) < len(delays) / 2
    runner.heal()
    assert heard(world, ALL, 3 * S) == set(ALL)


def test_faults_that_contradict_themselves_are_refused() -> None:
    world, _ = with_faults()
    with pytest.raises(ValueError, match="not both"):
        Cut(between=(("a",), ("b",)), isolate=("c",))
    with pytest.raises(ValueError, match="goes with `isolate`"):
        Cut(pick=2)
    with pytest.raises(LocalError, match="no node matches 'z'"):
        Cut(isolate=("z",)).begin(world)


@given(
    seed=st.integers(0, 1000),
    cuts=st.lists(
        st.tuples(st.floats(0, 3), st.floats(0.01, 2.5), st.booleans(), st.booleans()), min_size=1, max_size=5
    ),
)
def test_whatever_is_cut_channels_deliver_prefixes(
    seed: int, cuts: list[tuple[float, float, bool, bool]]
) -> None:
    """Between two link-downs, what arrives is a prefix of what was sent on that channel."""
    faults: list[Fault] = [
        Cut(at_s=at, for_s=lasts, between=(("a",), ("b",)) if forth else (("b",), ("a",)), one_way=one_way)
        for at, lasts, one_way, forth in cuts
    ]
    world, runner = with_faults(*faults, names=("a", "b"), seed=seed)
    sent: list[int] = []
    for number in range(200):
        do(world, A, sends(B, number), at_us=number * 20 * MS)
        sent.append(number)
    world.run(5 * S)
    runner.heal()
    world.run(20 * S)
    got = recorder(world, B).numbers()
    assert got == sorted(set(got))
    # A gap is allowed only where the sender was told: as many gaps as link-downs at most.
    gaps = sum(later != earlier + 1 for earlier, later in itertools.pairwise(got))
    assert gaps + (got[:1] != [0]) + (got[-1:] != [199]) <= len(recorder(world, A).downs())
    assert recorder(world, A).downs() == [B] * len(recorder(world, B).downs())

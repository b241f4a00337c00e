"""Timers, clocks, the journal, crashes and pauses."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.errors import LocalError
from qanat.kernel import Context
from qanat.sim import Checker, DiskSpec, FaultRunner, LinkSpec, SimNode, World
from qanat.sim.clock import EPOCH_US, Clock
from qanat.sim.faults import ClockDrift, ClockJump, Cut, DiskStuck, Pause
from qanat.sim.journal import Journal
from qanat.sim.testing import A, B, Note, arrivals, casts, do, make_world, recorder, sends
from qanat.sim.units import MS, S


def fired(world: World) -> list[tuple[int, str]]:
    base_us = world.nodes[A].clock.base_us
    return [(entry[1] - base_us, entry[2]) for entry in recorder(world, A).log if entry[0] == "timer"]


# Timers


def test_a_timer_fires_once() -> None:
    world = make_world()
    do(world, A, lambda context: context.set_timer("t", 5 * MS))
    world.run(1 * S)
    assert fired(world) == [(5 * MS, "t")]
    assert world.timers_fired == 1


@pytest.mark.parametrize("second_ms", [1, 20])
def test_setting_again_replaces_whether_earlier_or_later(second_ms: int) -> None:
    world = make_world()
    do(world, A, lambda context: context.set_timer("t", 10 * MS))
    do(world, A, lambda context: context.set_timer("t", second_ms * MS), at_us=2 * MS)
    world.run(1 * S)
    assert fired(world) == [((2 + second_ms) * MS, "t")]


def test_a_cancelled_timer_is_silent_and_can_be_set_again() -> None:
    world = make_world()
    do(world, A, lambda context: context.set_timer("t", 10 * MS))
    do(world, A, lambda context: context.cancel_timer("t"), at_us=1 * MS)
    do(world, A, lambda context: context.cancel_timer("never set"))
    world.run(50 * MS)
    assert fired(world) == []
    do(world, A, lambda context: context.set_timer("t", 10 * MS))
    do(world, A, lambda context: context.cancel_timer("t"))
    do(world, A, lambda context: context.set_timer("t", 30 * MS))
    world.run(1 * S)
    assert fired(world) == [(80 * MS, "t")]


def test_a_timer_pushed_out_again_and_again_costs_one_event() -> None:
    world = make_world(names=("a",))

    def push_out(context: Context) -> None:
        for _ in range(10_000):
            context.set_timer("t", 1 * S)

    do(world, A, push_out)
    world.run(1 * MS)
    assert len(world.agenda) == 1


def test_a_timer_into_the_past_is_refused() -> None:
    world = make_world()
    do(world, A, lambda context: context.set_timer("t", -1))
    world.run(1)
    assert "into the past" in world.violations[0].explanation


@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from("xy"), st.integers(-1, 60)), max_size=30))
def test_timers_behave_as_a_dictionary_of_deadlines(steps: list[tuple[int, str, int]]) -> None:
    """Against a naive model: a negative delay stands for a cancel."""
    world = make_world(names=("a",))
    model: dict[str, int] = {}
    expected: list[tuple[int, str]] = []

    def expire(upto: int) -> None:
        for due, name in sorted((due, name) for name, due in model.items() if due < upto):
            expected.append((due * MS, name))
            del model[name]

    now = 0
    for wait, name, delay in steps:
        now += wait
        expire(now + 1 if wait else now)
        if delay < 0:
            do(world, A, lambda context, name=name: context.cancel_timer(name), at_us=now * MS + 1)  # type: ignore[misc]
            model.pop(name, None)
        else:
            do(
                world,
                A,
                lambda context, name=name, delay=delay: context.set_timer(
                    name, delay * MS - 1 if delay else 0
                ),  # type: ignore[misc]
                at_us=now * MS + 1,
            )
            model[name] = now + delay
        world.run(now * MS + 1)
        expire(now + 1)
    expire(10**9)
    world.run(10**12)
    assert sorted((at_us // MS * MS, name) for at_us, name in fired(world)) == sorted(expected)


# Clocks


def test_a_jump_changes_dates_and_neither_monotonic_time_nor_timers() -> None:
    world = make_world()
    node, dates = world.nodes[A], []
    FaultRunner(world).schedule([ClockJump(at_s=0.5, nodes=("a",), by_ms=-2000.0)])
    do(world, A, lambda context: context.set_timer("t", 1 * S))
    do(world, A, lambda context: dates.append(context.wall_us()))
    world.run(3 * S)
    assert fired(world) == [(1 * S, "t")]
    assert dates == [EPOCH_US]
    assert node.wall_us() == EPOCH_US + 3 * S - 2 * S


def test_monotonic_time_means_nothing_to_another_node_or_life() -> None:
    world = make_world()
    first, second = world.nodes[A], world.nodes[B]
    assert first.now_us != second.now_us
    before_us, date_us = first.now_us, first.wall_us()
    first.crash(random.Random(1))
    first.restart()
    assert first.now_us != before_us and first.wall_us() == date_us


def test_a_fast_clock_fires_timers_early() -> None:
    world = make_world()
    FaultRunner(world).schedule([ClockDrift(nodes=("a",), ppm=100_000)])
    do(world, A, lambda context: context.set_timer("t", 1_100 * MS), at_us=1 * MS)
    do(world, A, casts(B, 7), at_us=1 * S + 1 * MS)
    world.run(1 * S + 1 * MS)
    assert [name for _, name in fired(world)] == ["t"]
    world.run(2 * S)
    assert arrivals(world, B) == [(1 * S + 11 * MS, 7)]


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(-900_000, 900_000)), max_size=8))
def test_a_clock_never_jumps_by_drifting(changes: list[tuple[int, int]]) -> None:
    clock, now = Clock(), 0
    last = clock.monotonic(0)
    for wait, ppm in changes:
        now += wait
        before = clock.monotonic(now)
        assert before >= last
        clock.drift(now, ppm)
        assert clock.monotonic(now) == before
        last = before


# The journal


class Deliveries(Checker):
    name = "deliveries"

    def __init__(self) -> None:
        self.seen: list[tuple[int, object]] = []

    def on_deliver(self, world: World, node: SimNode, item: object) -> None:
        self.seen.append((world.now, item))


def test_nothing_after_a_persist_leaves_before_it_is_durable() -> None:
    deliveries = Deliveries()
    world = make_world(
        link=LinkSpec(latency_ms=0.0), disk=DiskSpec(sync_ms=50.0, jitter_ms=0.0), checkers=[deliveries]
    )

    def act(context: Context) -> None:
        context.cast(B, Note(1))
        context.persist(b"x")
        context.cast(B, Note(2))
        context.deliver("after x")
        context.persist(b"y")
        context.cast(B, Note(3))
        context.set_timer("local", 1 * MS)

    do(world, A, act)
    do(world, A, casts(B, 4), at_us=60 * MS)
    world.run(1 * S)
    # x and y share a group commit only if y was written before the sync began: x alone began it.
    assert arrivals(world, B) == [(0, 1), (50 * MS, 2), (100 * MS, 3), (100 * MS, 4)]
    assert deliveries.seen == [(50 * MS, "after x")]
    assert fired(world) == [(1 * MS, "local")]


def test_records_written_during_a_sync_share_the_next_one() -> None:
    world = make_world(link=LinkSpec(latency_ms=0.0), disk=DiskSpec(sync_ms=50.0, jitter_ms=0.0))

    def act(context: Context) -> None:
        for number in range(100):
            context.persist(b"r")
            context.cast(B, Note(number))

    do(world, A, act)
    world.run(1 * S)
    assert {at_us for at_us, _ in arrivals(world, B)} == {50 * MS, 100 * MS}
    assert recorder(world, B).numbers() == list(range(100))


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest(seed: int) -> None:
    world = make_world(seed, disk=DiskSpec(sync_ms=10.0, jitter_ms=0.0))
    do(world, A, lambda context: context.persist(b"0"))
    world.run(20 * MS)

    def act(context: Context) -> None:
        for number in range(1, 10):
            context.persist(b"%d" % number)
            context.cast(B, Note(number))

    do(world, A, act)
    world.run(21 * MS)
    node = world.nodes[A]
    world.crash(node)
    assert not node.up
    world.after(5 * MS, node.restart)
    world.run(1 * S)
    saved = [int(record) for record in recorder(world, A).saved]
    assert saved == list(range(len(saved)))
    assert saved[:1] == [0]
    assert recorder(world, B).numbers() == []  # none was durable, so none left


def test_prefixes_of_every_length_and_torn_records_occur() -> None:
    kept, torn = set(), 0
    for seed in range(200):
        journal = Journal(1000)
        for number in range(5):
            journal.append(b"%d" % number)
        journal.durable = 2
        lost, was_torn = journal.crash(random.Random(seed), 0.5)
        kept.add(len(journal.surviving()))
        assert journal.written == journal.durable == 5 - lost
        torn += was_torn
    assert kept == {2, 3, 4, 5}
    assert 0 < torn < 200


def test_a_journal_that_only_grows_stops_the_run() -> None:
    world = make_world(disk=DiskSpec(limit_mb=0.001))

    def act(context: Context) -> None:
        for _ in range(11):
            context.persist(bytes(100))

    do(world, A, act)
    world.run(1)
    assert "disk.limit_mb" in world.violations[0].explanation
    with pytest.raises(LocalError):
        Journal(5).append(bytes(6))


def test_a_stuck_disk_holds_everything_back_until_it_is_free() -> None:
    world = make_world(link=LinkSpec(latency_ms=0.0), disk=DiskSpec(sync_ms=1.0, jitter_ms=0.0))
    runner = FaultRunner(world)
    runner.schedule([DiskStuck(at_s=0.1, for_s=0.5, nodes=("a",))])

    def act(context: Context) -> None:
        context.persist(b"x")
        context.cast(B, Note(1))

    do(world, A, act, at_us=200 * MS)
    world.run(590 * MS)
    assert arrivals(world, B) == []
    world.run(1 * S)
    assert recorder(world, B).numbers() == [1]


def test_a_restart_forgets_timers_and_old_messages_of_channels() -> None:
    world = make_world()
    do(world, A, lambda context: context.set_timer("t", 100 * MS))
    world.run(10 * MS)
    world.crash(world.nodes[A])
    world.after(0, world.nodes[A].restart)
    world.run(1 * S)
    assert fired(world) == []
    assert world.nodes[A].life == 3  # booted, crashed, booted


def test_a_node_that_is_down_gets_nothing() -> None:
    world = make_world()
    world.crash(world.nodes[B])
    do(world, A, casts(B, 1))
    world.run(1 * S)
    assert world.network.dropped == {"down": 1}
    assert world.nodes[B].request(casts(A, 2)) is False


# Pauses


def test_a_paused_node_gets_everything_later_and_in_order() -> None:
    world = make_world(link=LinkSpec(latency_ms=1.0))
    FaultRunner(world).schedule([Pause(at_s=0.1, for_s=0.4, nodes=("b",))])
    do(world, B, lambda context: context.set_timer("t", 205 * MS))
    for number in range(10):
        do(world, A, casts(B, number), at_us=(100 + 20 * number) * MS)
    do(world, A, casts(B, 99), at_us=499 * MS)  # arrives at the instant of the resume
    world.run(1 * S)
    log = [(entry[0], entry[-1]) for entry in recorder(world, B).log]
    assert log == [
        *(("message", n) for n in range(6)),
        ("timer", "t"),
        *(("message", n) for n in (6, 7, 8, 9, 99)),
    ]
    base_us = world.nodes[B].clock.base_us
    assert {entry[1] - base_us for entry in recorder(world, B).log} == {500 * MS}


def test_a_cut_does_not_put_newer_messages_before_those_a_paused_node_has_received() -> None:
    """Pause b, send 1, cut, send 2, heal, resume: 1 waits in b's sockets, 2 on the link; the channel is
    FIFO."""
    world = make_world(link=LinkSpec(latency_ms=1.0, detect_ms=1000.0))
    FaultRunner(world).schedule(
        [Pause(at_s=0.1, for_s=0.6, nodes=("b",)), Cut(at_s=0.2, for_s=0.3, between=(("a",), ("b",)))]
    )
    do(world, A, sends(B, 0), at_us=50 * MS)
    do(world, A, sends(B, 1), at_us=150 * MS)
    do(world, A, sends(B, 2), at_us=250 * MS)
    do(world, A, sends(B, 3), at_us=600 * MS)
    world.run(2 * S)
    assert recorder(world, B).numbers() == [0, 1, 2, 3]


def test_a_resume_in_the_middle_of_a_cut_keeps_the_order() -> None:
    world = make_world(link=LinkSpec(latency_ms=1.0, detect_ms=1000.0))
    FaultRunner(world).schedule(
        [Pause(at_s=0.1, for_s=0.2, nodes=("b",)), Cut(at_s=0.2, for_s=0.3, between=(("a",), ("b",)))]
    )
    do(world, A, sends(B, 0), at_us=50 * MS)
    do(world, A, sends(B, 1), at_us=150 * MS)
    do(world, A, sends(B, 2), at_us=250 * MS)
    world.run(2 * S)
    assert recorder(world, B).numbers() == [0, 1, 2]


def test_a_full_inbox_drops_datagrams_and_breaks_channels() -> None:
    world = make_world(link=LinkSpec(latency_ms=1.0), inbox_messages=5)
    FaultRunner(world).schedule([Pause(at_s=0.1, for_s=0.4, nodes=("b",))])
    do(world, A, casts(B, *range(8)), at_us=150 * MS)
    world.run(600 * MS)
    assert recorder(world, B).numbers() == [0, 1, 2, 3, 4]
    assert world.network.dropped == {"full inbox": 3}
    FaultRunner(world).schedule([Pause(at_s=1.0, for_s=0.4, nodes=("b",))])
    do(world, A, sends(B, *range(10, 18)), at_us=1150 * MS)
    world.run(3 * S)
    assert recorder(world, A).downs() == [B]
    assert recorder(world, B).downs() == [A]


def test_requests_to_a_paused_node_wait() -> None:
    world = make_world()
    FaultRunner(world).schedule([Pause(at_s=0.1, for_s=0.4, nodes=("a",))])
    do(world, A, casts(B, 1), at_us=200 * MS)
    world.run(1 * S)
    assert arrivals(world, B) == [(510 * MS, 1)]

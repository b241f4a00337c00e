"""Policies of caravans against what a naive search finds."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.position import Position
from qanat.protocols.caravans.policy import (
    LeastWaiting,
    Place,
    Plan,
    Policy,
    Threshold,
    distance,
    waiting,
)

places = st.dictionaries(st.integers(0, 60), st.integers(1, 5), min_size=1, max_size=9).map(
    lambda found: [Place(Position(at), found[at]) for at in sorted(found)]
)
most = st.integers(1, 5)


def check(plan: Plan, places: list[Place], most: int) -> None:
    assert plan.starts[0] == 0
    assert len(plan.starts) <= most
    assert all(a < b for a, b in pairwise(plan.starts))
    assert plan.starts[-1] < len(places)
    assert plan.why


def every_cut(places: list[Place], most: int) -> list[tuple[int, ...]]:
    cuts = range(1, len(places))
    return [(0, *chosen) for count in range(min(most, len(places))) for chosen in combinations(cuts, count)]


def least(places: list[Place], most: int) -> int:
    return min(waiting(places, starts) for starts in every_cut(places, most))


@pytest.mark.paper("W7")
@given(places, most)
def test_least_waiting_waits_least(places: list[Place], most: int) -> None:
    plan = LeastWaiting(0).plan(places, most)
    check(plan, places, most)
    assert waiting(places, plan.starts) == least(places, most)


@given(places, most)
def test_with_no_more_caravans_than_it_takes(places: list[Place], most: int) -> None:
    plan = LeastWaiting(0).plan(places, most)
    if len(plan.starts) > 1:
        assert least(places, len(plan.starts) - 1) > least(places, most)


@given(places, most, st.integers(0, 20))
def test_near_costs_each_flow_no_more_than_that(places: list[Place], most: int, near: int) -> None:
    plan = LeastWaiting(near).plan(places, most)
    check(plan, places, most)
    waits, best = waiting(places, plan.starts), least(places, most)
    assert waits <= best + near * sum(place.weight for place in places)


@given(places, most)
def test_of_those_that_wait_the_same_it_takes_who_reads_least(places: list[Place], most: int) -> None:
    def read(starts: tuple[int, ...]) -> int:
        return sum(distance(places[start].position, places[-1].position) for start in starts)

    plan = LeastWaiting(0).plan(places, most)
    waits = waiting(places, plan.starts)
    same = [starts for starts in every_cut(places, most) if waiting(places, starts) == waits]
    assert read(plan.starts) == min(map(read, same))


@given(places, st.integers(2, 5), st.integers(0, 20))
def test_least_waiting_never_sets_back_a_live_lead(places: list[Place], most: int, near: int) -> None:
    live = [*places[:-1], places[-1]._replace(live=True)]
    plan = LeastWaiting(near).plan(live, most)
    check(plan, live, most)
    assert plan.starts[-1] == len(live) - 1
    if len(live) > 1:
        assert plan.starts[:-1] == LeastWaiting(near).plan(live[:-1], most - 1).starts


@pytest.mark.paper("W7")
@given(places, st.integers(2, 5), st.integers(0, 20))
def test_threshold_joins_what_is_near_and_leaves_the_lead_alone(
    places: list[Place], most: int, near: int
) -> None:
    plan = Threshold(near).plan(places, most)
    check(plan, places, most)
    assert plan.starts[-1] == len(places) - 1
    if "joined" not in plan.why:
        for start, stop in pairwise(plan.starts):
            ends = places[start].position.sequence, places[stop - 1].position.sequence
            assert ends[1] - ends[0] <= near


@given(places)
def test_one_caravan_serves_all(places: list[Place]) -> None:
    for policy in (Threshold(5), LeastWaiting(5)):
        assert policy.plan(places, 1).starts == (0,)


@given(places, most)
def test_the_policy_of_the_house_never_waits_longer_than_the_papers(places: list[Place], most: int) -> None:
    ours, theirs = (
        waiting(places, policy.plan(places, most).starts) for policy in (LeastWaiting(0), Threshold(0))
    )
    assert ours <= theirs


def test_nobody_to_plan_for() -> None:
    policies: list[Policy] = [Threshold(1), LeastWaiting(1)]
    assert [policy.plan([], 3).starts for policy in policies] == [(), ()]


# The paper's Fig. 7 in steps: an application at each eighth of a log, and so many readers, each of which goes
# on by an eighth in a step.

STEPS = 8
Places = tuple[int, ...]
"""How far each application is."""


def late(places: Places) -> float:
    """What one step costs: of each application the part of its updates that it does not have."""
    return sum((STEPS - place) / (STEPS - start) for start, place in enumerate(places))


def go_on(places: Places, readers: Places) -> Places:
    return tuple(place + (place in readers) for place in places)


@cache
def best(places: Places, readers: int) -> float:
    """Of all schedules, foresight and all."""
    there = sorted({place for place in places if place < STEPS})
    if not there:
        return 0.0
    choices = combinations(there, min(readers, len(there)))
    return late(places) + min(best(go_on(places, chosen), readers) for chosen in choices)


def planned(policy: Policy, readers: int) -> float:
    places, cost = tuple(range(STEPS)), 0.0
    while min(places) < STEPS:
        there = sorted(set(places))
        plan = policy.plan([Place(Position(at), places.count(at), at == STEPS) for at in there], readers)
        cost += late(places)
        places = go_on(places, tuple(there[start] for start in plan.starts if there[start] < STEPS))
    return cost


@pytest.mark.paper("W7")
@pytest.mark.parametrize("readers", [2, 3, 4, 8])
def test_no_schedule_of_readers_makes_applications_all_over_the_log_less_late(readers: int) -> None:
    ours, theirs = planned(LeastWaiting(0), readers), planned(Threshold(0), readers)
    assert ours == pytest.approx(best(tuple(range(STEPS)), readers))
    assert ours < theirs or readers == STEPS

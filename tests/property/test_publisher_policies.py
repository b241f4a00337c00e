"""Policies of caravans against what a naive search finds."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.position import Position
from qanat.protocols.caravans.policy import LeastWaiting, Place, Plan, Policy, Threshold, waiting

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


def least(places: list[Place], most: int) -> int:
    """Every way to cut."""
    cuts = range(1, len(places))
    return min(
        waiting(places, (0, *chosen))
        for count in range(min(most, len(places)))
        for chosen in combinations(cuts, count)
    )


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
    assert waiting(places, plan.starts) <= least(places, most) + near * sum(place.flows for place in places)


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

"""The order in which several processes take tests: none is lost, and only one process has those of Spark."""

from __future__ import annotations

import random

import pytest
from tests.order import Kind, arranged


def of(spark: int, long: int, short: int) -> list[Kind]:
    """So many of each, in the order of their folders."""
    first: list[Kind] = ["long"]
    then: list[Kind] = ["spark"]
    last: list[Kind] = ["short"]
    return first * long + then * spark + last * short


def handed_out(order: list[int], processes: int) -> list[list[int]]:
    """As `worksteal` does at first."""
    left, shares = list(order), []
    for remaining in range(processes, 0, -1):
        count = len(left) // remaining
        shares.append(left[:count])
        left = left[count:]
    return shares


def test_every_test_has_its_place() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        kinds: list[Kind] = [rng.choice(("spark", "jobs", "long", "short")) for _ in range(rng.randrange(60))]
        assert sorted(arranged(kinds, seed % 6)) == list(range(len(kinds))), seed


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_each_begins_with_long_ones_and_ends_with_short_ones(processes: int) -> None:
    kinds = of(spark=20, long=31, short=150)
    shares = [[kinds[i] for i in share] for share in handed_out(arranged(kinds, processes), processes)]
    assert [set(share) for share in shares] == [{"spark", "short"}] + [{"long", "short"}] * (processes - 1)
    for share in shares:
        assert share == sorted(share, key="short".__eq__)


def test_the_longest_come_first_and_are_dealt_out_to_all_but_who_has_spark() -> None:
    kinds: list[Kind] = [*of(spark=5, long=9, short=40), "jobs", "jobs", "jobs", "jobs"]
    shares = [[kinds[i] for i in share] for share in handed_out(arranged(kinds, 4), 4)]
    assert ["jobs" in share for share in shares] == [False, True, True, True]
    assert [share.count("jobs") for share in shares] == [0, 2, 1, 1]
    for share in shares:
        assert share == sorted(share, key=("spark", "jobs", "long", "short").index)


def test_the_longer_of_the_short_ones_do_not_wait_for_spark() -> None:
    assert arranged(of(spark=3, long=3, short=6), 2) == [3, 4, 5, 9, 10, 11, 0, 1, 2, 6, 7, 8]


@pytest.mark.parametrize("kinds", [of(5, 0, 0), of(0, 5, 0), of(3, 1, 0), of(0, 0, 5), []])
def test_where_there_is_nothing_to_mix_the_order_is_as_it_was(kinds: list[Kind]) -> None:
    assert arranged(kinds, 2) == list(range(len(kinds)))

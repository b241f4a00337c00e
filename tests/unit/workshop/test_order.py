"""The order in which several processes take tests: none is lost, groups stay together, the longest come
first."""

from __future__ import annotations

import random

import pytest
from tests.order import Timed, arranged


def of(shorts: int, **groups: tuple[int, float]) -> list[Timed]:
    """So many tests of each group, that take so long each."""
    longs = [Timed(name, seconds) for name, (count, seconds) in groups.items() for _ in range(count)]
    return longs + [Timed("", 0.0)] * shorts


def handed_out(tests: list[Timed], processes: int) -> list[list[Timed]]:
    """As `worksteal` does at first."""
    left, shares = [tests[i] for i in arranged(tests, processes)], []
    for remaining in range(processes, 0, -1):
        count = len(left) // remaining
        shares.append(left[:count])
        left = left[count:]
    return shares


def test_every_test_has_its_place() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        tests = [
            Timed(rng.choice(["spark", "a", "b", "", "", ""]), rng.random()) for _ in range(rng.randrange(60))
        ]
        assert sorted(arranged(tests, seed % 6)) == list(range(len(tests))), seed


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_each_begins_with_long_ones_and_ends_with_short_ones(processes: int) -> None:
    groups = dict.fromkeys("abcdefgh", (3, 2.0))
    for share in handed_out(of(150, **groups), processes):
        assert share[0].group and not share[-1].group
        assert share == sorted(share, key=lambda test: not test.group)


def test_groups_stay_together_and_all_processes_have_as_much_to_do() -> None:
    shares = handed_out(of(90, spark=(20, 5.0), a=(2, 40.0), b=(4, 20.0), c=(1, 60.0), d=(3, 5.0)), 4)
    assert [sorted({test.group for test in share} - {""}) for share in shares] == [
        ["spark"],
        ["a"],
        ["b"],
        ["c", "d"],
    ]


def test_the_longest_group_comes_first() -> None:
    (share, _) = handed_out(of(90, a=(1, 1.0), b=(1, 3.0), c=(1, 9.0), d=(1, 2.0)), 2)
    assert share[0].group == "c"
    (_, share) = handed_out(of(90, a=(1, 1.0), b=(1, 3.0), c=(1, 9.0), d=(1, 2.0)), 2)
    assert [test.group for test in share[:3]] == ["b", "d", "a"]


@pytest.mark.parametrize("tests", [of(0, spark=(5, 1.0)), of(0, a=(3, 1.0), b=(1, 1.0)), of(5), []])
def test_where_groups_do_not_fit_the_order_is_as_it_was(tests: list[Timed]) -> None:
    assert arranged(tests, 4) == list(range(len(tests)))

"""The workload of section 5.4 against what is known of its distributions, and against a line walked key by
key."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.errors import LocalError
from qanat.studies.s14.popularity import RANK_LIMIT, Popularity
from qanat.studies.s14.workload import Model, Ranks, events

pytestmark = pytest.mark.paper("S14")

SIZE = 40


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Runs of insertions, and lookups (rank, insertions before it) in each."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        inserted = draw(st.lists(st.integers(1, SIZE), max_size=20))
        lookups = st.tuples(st.integers(1, SIZE), st.integers(0, len(inserted)))
        made.append((inserted, draw(st.lists(lookups, max_size=20))))
    return made


@given(steps())
def test_the_line_is_what_walking_it_key_by_key_gives(
    runs: list[tuple[list[int], list[tuple[int, int]]]],
) -> None:
    line, popularity, made = list(range(1, 4 * SIZE)), Popularity(), 0
    for inserted, lookups in runs:
        states = [list(line)]
        for rank in inserted:
            made += 1
            line.insert(rank - 1, -made)
            states.append(list(line))
        ranks, after = np.array(lookups, np.int64).reshape(-1, 2).T
        found = popularity.step(np.array(inserted, np.int64), ranks, after)
        assert found.tolist() == [states[count][rank - 1] for rank, count in lookups]
    assert popularity.inserted == made


def test_keys_far_down_the_line_move_nobody() -> None:
    popularity = Popularity()
    found = popularity.step(
        np.array([RANK_LIMIT, RANK_LIMIT + 5, RANK_LIMIT]), np.array([1, RANK_LIMIT - 1]), np.array([3, 3])
    )
    assert found.tolist() == [1, RANK_LIMIT - 1]


@pytest.mark.parametrize("skew", [1.1, 1.5, 2.0])
def test_the_sum_of_the_series_is_zeta(skew: float) -> None:
    known = {1.1: 10.584448464950803, 1.5: 2.612375348685488, 2.0: np.pi**2 / 6}
    assert Ranks(skew).zeta == pytest.approx(known[skew], rel=1e-9)


def test_probabilities_go_on_smoothly_where_the_table_ends() -> None:
    at_least = Ranks(1.1).at_least(np.arange(65_530, 65_545))
    steps = -np.diff(at_least) * Ranks(1.1).zeta
    assert steps == pytest.approx(np.arange(65_530, 65_544, dtype=float) ** -1.1, rel=1e-4)


@pytest.mark.parametrize("skew", [1.1, 1.2, 1.5])
@pytest.mark.parametrize("limit", [None, 50, 200_000])
def test_ranks_are_drawn_as_often_as_the_distribution_says(skew: float, limit: int | None) -> None:
    """Chi-square over ten cells; 9 degrees of freedom exceed 28 once in a thousand, and the seed is fixed."""
    count, ranks = 200_000, Ranks(skew)
    drawn = ranks.draw(np.random.default_rng(3), count, limit)
    assert drawn.min() >= 1
    assert limit is None or drawn.max() <= limit
    edges = np.array([1, 2, 3, 4, 6, 9, 14, 20, 28, 40])
    above = 0.0 if limit is None else float(ranks.at_least(np.array(limit + 1)))
    expected = -np.diff(np.append((ranks.at_least(edges) - above) / (1 - above), 0.0)) * count
    seen = np.histogram(drawn, np.append(edges, np.inf))[0]
    assert seen.sum() == count
    assert ((seen - expected) ** 2 / expected).sum() < 28


@pytest.mark.parametrize("skew", [1.1, 1.5])
def test_distinct_keys_of_a_fixed_set_are_as_many_as_theory_says(skew: float) -> None:
    keys, count = 2_000, 30_000
    share = np.arange(1.0, keys + 1) ** -skew
    share /= share.sum()
    expected = float((1 - (1 - share) ** count).sum())
    runs = [next(events(Model(skew=skew, keys=keys), seed, chunk=count)) for seed in range(10)]
    assert np.mean([len(np.unique(run.keys)) for run in runs]) == pytest.approx(expected, rel=0.015)


def test_the_same_seed_gives_the_same_stream() -> None:
    model = Model(skew=1.1, new_rate=10)
    first, again, other = (list(islice(events(model, seed, chunk=5_000), 3)) for seed in (1, 1, 2))
    for one, two, three in zip(first, again, other, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
        assert not np.array_equal(one.keys[:100], three.keys[:100])


def test_both_kinds_of_arrivals_come_at_their_rates() -> None:
    run = next(events(Model(skew=1.2, rate=200, new_rate=20, announced=True), 7, chunk=110_000))
    new = run.ticks == run.born
    assert new.mean() == pytest.approx(1 / 11, rel=0.05)
    assert run.ticks[-1] == pytest.approx(110_000 / 220, rel=0.02)
    gaps = np.diff(run.ticks)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # exponential: a Poisson process
    told = next(events(Model(skew=1.2, rate=200, new_rate=20), 7, chunk=110_000))
    assert np.array_equal(told.keys, run.keys[~new])


def test_nobody_is_invalidated_before_it_came() -> None:
    for run in islice(events(Model(skew=1.1, keys=100, new_rate=20), 1, chunk=4_000), 4):
        assert (run.ticks > run.born).all()
        old = run.keys[run.keys > 0]
        assert old.max() <= 100
        assert (np.isfinite(run.born) == (run.keys < 0)).all()


def test_ranks_can_be_bounded() -> None:
    run = next(events(Model(skew=1.1, rank_max=1_000), 1, chunk=20_000))
    assert run.keys.max() == 1_000
    unbounded = next(events(Model(skew=1.1), 1, chunk=20_000))
    assert (unbounded.keys > RANK_LIMIT).mean() == pytest.approx(0.0631, abs=0.01)


@pytest.mark.parametrize(
    "wrong",
    [{"skew": 1.0}, {"skew": 1.1, "rate": 0}, {"skew": 1.1, "new_rate": -1}, {"skew": 1.1, "keys": 0}],
)
def test_a_model_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LocalError):
        Model(**wrong)  # type: ignore[arg-type]

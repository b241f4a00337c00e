"""The index: many filters at once, added and removed while it runs, and inputs that would trouble a naive
one."""

import random
from typing import Any

import numpy as np
import pytest

from qanat.bench.filter import market_batch, subscriptions
from qanat.events.batch import Batch
from qanat.events.filters import Filter, FilterError, FilterIndex, Matches, evaluate, parse, plan
from qanat.events.filters.numbers import Numbers
from qanat.events.filters.stabbing import Stabbing


def one_by_one(some: dict[int, Filter], batch: Batch) -> list[list[int]]:
    answers = {id: evaluate(f, batch) for id, f in some.items()}
    return [[id for id, answer in answers.items() if answer[i]] for i in range(batch.count)]


def listed(matches: Matches) -> list[list[int]]:
    return [matches.of(i).tolist() for i in range(len(matches.offsets) - 1)]


@pytest.mark.paper("W8")
def test_a_market_feed_with_filters_that_come_and_go() -> None:
    rng = random.Random(5)
    some = subscriptions(3000, rng)
    index, living = FilterIndex(), dict[int, Filter]()
    for step in range(6):
        for i in range(step * 500, (step + 1) * 500):
            index.add(i, some[i])
            living[i] = some[i]
        for id in rng.sample(sorted(living), 200):
            index.remove(id)
            del living[id]
        batch = market_batch(np.random.default_rng(step), 100)
        assert listed(index.match(batch)) == one_by_one(living, batch)
    assert len(index) == len(living)


def test_one_filter_at_a_time_with_a_batch_after_each() -> None:
    batch = market_batch(np.random.default_rng(1), 20)
    some = subscriptions(400, random.Random(2))
    index = FilterIndex()
    for i, f in enumerate(some):
        index.add(i, f)
        index.match(batch)
    assert listed(index.match(batch)) == one_by_one(dict(enumerate(some)), batch)


def test_most_filters_removed() -> None:
    batch = market_batch(np.random.default_rng(1), 50)
    some = dict(enumerate(subscriptions(4000, random.Random(3))))
    index = FilterIndex()
    for id, f in some.items():
        index.add(id, f)
    index.match(batch)
    for id in range(3900):
        index.remove(id)
        del some[id]
    assert listed(index.match(batch)) == one_by_one(some, batch)
    index.add(7, parse("all"))
    some[7] = parse("all")
    assert listed(index.match(batch)) == one_by_one(some, batch)


def test_ids() -> None:
    index = FilterIndex()
    index.add(-5, parse("all"))
    assert -5 in index
    assert 5 not in index
    with pytest.raises(FilterError, match="has a filter -5 already"):
        index.add(-5, parse("all"))
    with pytest.raises(FilterError, match="fits int64"):
        index.add(1 << 63, parse("all"))
    with pytest.raises(FilterError, match="has no filter 6"):
        index.remove(6)
    index.remove(-5)
    assert len(index) == 0
    assert listed(index.match(Batch.build(1, [b""], first=1))) == [[]]
    index.add(-5, parse("not all"))
    assert listed(index.match(Batch.build(1, [b""], first=1))) == [[]]


def test_equal_filters_and_overlapping_alternatives_answer_once_each() -> None:
    batch = Batch.build(1, [b""] * 2, first=1, attributes=[{"k": "5", "n": 3}, {"k": 5}])
    index = FilterIndex()
    for id, text in enumerate(["k = 5", "k = 5", "k in (5, '5')", "k = 5 or n in 1..5 or exists n or all"]):
        index.add(id, parse(text))
    matches = index.match(batch)
    assert listed(matches) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert matches.rows.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_many_candidates_are_verified_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PAIRS_LIMIT", 100)
    batch = market_batch(np.random.default_rng(1), 64)
    some = {i: parse(f"not price in {i}..{i + 900} and not symbol = 'S0001'") for i in range(50)}
    index = FilterIndex()
    for id, f in some.items():
        index.add(id, f)
    assert listed(index.match(batch)) == one_by_one(some, batch)


def test_many_attributes_and_many_patterns() -> None:
    rng = random.Random(4)
    some = {
        i: parse(
            f"a{i % 300} = {i % 7} and b{i % 11} in 1..{i + 2} or c ~ '^{i % 40}.' or exists a{i % 300} and"
            f" @seq in {i}.."
        )
        for i in range(2000)
    }
    rows: list[dict[str, Any]] = [
        {f"a{rng.randrange(300)}": rng.randrange(7), f"b{rng.randrange(11)}": rng.random() * 99, "c": str(i)}
        for i in range(60)
    ]
    batch = Batch.build(1, [b""] * 60, first=1900, attributes=rows)
    index = FilterIndex()
    for id, f in some.items():
        index.add(id, f)
    assert listed(index.match(batch)) == one_by_one(some, batch)


def test_crowded_literals_are_told_apart_by_a_second_equality_or_an_interval() -> None:
    rng = random.Random(6)
    values = ["1", "x", "y", "true", "2.5"]
    literals = ["1", "'1'", "x", "y", "true", "'true'", "2.5"]
    some = {
        i: parse(
            rng.choice(
                [
                    f"a = {rng.choice(literals)} and b = {rng.choice(literals)}",
                    (
                        f"a in (x, 1, {rng.choice(literals)}) and b in ('1', {rng.choice(literals)}) and n in"
                        f" {i}..{i + 9}"
                    ),
                    (
                        f"b in ({', '.join(literals)}) and a in ({', '.join(literals[:5])}) and c ="
                        f" {rng.choice(literals)}"
                    ),
                    f"a = {rng.choice(literals)} and n in ..{i}",
                    f"a = x and a in (x, y) and not b = {rng.choice(literals)}",
                ]
            )
        )
        for i in range(1500)
    }
    rows: list[dict[str, Any]] = [
        {
            "a": rng.choice([*values, 1, True]),
            "b": rng.choice([*values, 2.5]),
            "c": rng.choice(values),
            "n": rng.randrange(1500),
        }
        for _ in range(80)
    ]
    batch = Batch.build(1, [b""] * 80, first=1, attributes=rows)
    index = FilterIndex()
    for id, f in some.items():
        index.add(id, f)
    matches = index.match(batch)
    assert len(matches.ids) > 1000
    assert listed(matches) == one_by_one(some, batch)


def test_stabbing_many_wide_intervals_takes_little_memory() -> None:
    count = 20_000
    low = Numbers(np.arange(count, dtype=np.float64))
    high = Numbers(np.arange(count, dtype=np.float64) + count)
    stabbing = Stabbing(np.zeros(count, np.int64), low, high, np.arange(count))
    assert len(stabbing.tree.items) < 32 * count  # a table of every place's intervals would hold count² / 2
    point, start, stop = stabbing.ranges(np.zeros(3, np.int64), Numbers(np.array([0.0, count / 2, -1.0])))
    found = [
        np.concatenate(
            [
                np.zeros(0, int),
                *(stabbing.tree.items[a:b] for p, a, b in zip(point, start, stop, strict=True) if p == i),
            ]
        )
        for i in range(3)
    ]
    assert [sorted(f.tolist()) for f in found] == [[0], list(range(count // 2 + 1)), []]

"""The study of Wormhole's evaluation: the rules of its claims on made-up numbers, and its pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from qanat.studies.publishing import Came, Counters
from qanat.studies.registry import STUDIES, Claim, load
from qanat.studies.w15 import claims as rules
from qanat.studies.w15 import figures
from qanat.studies.w15 import study as w15_study
from qanat.studies.w15.balance import distribute
from qanat.studies.w15.caravans import Hiccup, Sample, Tradeoff, mean_s, samples
from qanat.studies.w15.failover import PRIMARY, SECONDARY, Failover, Plan
from qanat.studies.w15.replay import Replayed
from qanat.studies.w15.study import FULL, QUICK, notes
from qanat.studies.w15.subscriber import Pace, Step

pytestmark = pytest.mark.paper("W15")


def replayed(count: int, seconds: float, rate: float) -> Replayed:
    return Replayed(count, seconds, rate, 1.7 * rate, 1.0, 1.0)


def held(claims: list[Claim]) -> list[bool]:
    return [claim.holds for claim in claims]


def test_the_publisher_rises_and_levels_off_and_times_grow_linearly() -> None:
    good = [replayed(1, 1, 100), replayed(5, 2, 300), replayed(10, 4.1, 400), replayed(20, 8, 390)]
    assert held(rules.figure_4(good)) == [True, True, True]
    bad = [replayed(1, 1, 300), replayed(5, 9, 300), replayed(10, 2, 310), replayed(20, 1, 100)]
    assert held(rules.figure_4(bad)) == [False, False, False]


def test_a_subscriber_is_late_only_beyond_its_limit() -> None:
    good = [Step(100, 100, 5), Step(500, 500, 6), Step(1500, 1000, 400)]
    assert held(rules.figure_5(1000, good)) == [False, True, True]
    assert held(rules.figure_5(700_000, [Step(1e5, 1e5, 500), Step(1e6, 7e5, 600)])) == [True, False, False]


def test_more_readers_save_latency_and_another_policy_saves_more() -> None:
    points = [
        Tradeoff("threshold", 10, 5.5, 1.0),
        Tradeoff("threshold", 3, 2.2, 1.8),
        Tradeoff("threshold", 1, 1.0, 2.0),
    ]
    good, bad = Tradeoff("least-waiting", 3, 2.0, 1.5), Tradeoff("least-waiting", 3, 2.0, 1.9)
    assert held(rules.figure_7([*points, good], [*points, good])) == [True, True, True]
    assert held(rules.figure_7([*points[1:], bad], [*points, bad])) == [False, False, False]
    worse = Tradeoff("least-waiting", 10, 5.5, 1.1)
    assert held(rules.figure_7([*points, good, worse], [*points, good, worse])) == [True, False, False]


def test_six_applications_cost_one_read_until_one_is_held_up() -> None:
    hiccup = Hiccup(10, 4, 2)
    found = [Sample(at, 1, 6, 1) for at in (1.5, 2, 3)] + [Sample(7, 4, 6, 2), Sample(9, 1, 6, 1)]
    assert held(rules.figure_8(found, 6, hiccup)) == [True, True, True]
    assert held(rules.figure_8([Sample(2, 6, 6, 1), Sample(9, 6, 6, 2)], 6, hiccup)) == [False, False, False]
    counted = [Counters(10.0, 0, 0, 0, 1), Counters(12.0, 2_000_000, 12_000_000, 9, 2)]
    assert samples(counted, 10.0) == [Sample(2.0, 1.0, 6.0, 2)]


def test_the_share_of_updates_in_time() -> None:
    assert held(rules.figure_9(np.array([5.0] * 996 + [500.0] * 4))) == [True]
    assert held(rules.figure_9(np.array([5.0] * 99 + [500.0]))) == [False]


def failover(
    plan: Plan, many: list[tuple[float, str, int]], single: list[tuple[float, str, int]]
) -> Failover:
    rows = plan.rows + 100
    return Failover(plan, 0.0, 2.0, 4.0, Came(0.0, many, rows), Came(0.0, single, rows))


def test_a_second_copy_takes_over_and_the_first_one_gets_it_back(tmp_path: Path) -> None:
    plan = Plan(8, 2, 4)
    good = failover(
        plan,
        [(1.0, PRIMARY, 2000), (3.5, SECONDARY, 2000), (7.0, PRIMARY, 4100)],
        [(1.0, PRIMARY, 2000), (4.6, PRIMARY, 2600), (7.9, PRIMARY, 3500)],
    )
    assert held(rules.figure_10(good)) == [True] * 5
    bad = failover(plan, [(1.0, PRIMARY, 2000)], [(1.0, PRIMARY, 2000), (3.0, PRIMARY, 100)])
    assert held(rules.figure_10(bad)) == [False, False, False, False, True]
    figures.draw_10(tmp_path / "10.png", good)
    assert (tmp_path / "10.png").stat().st_size > 10_000


def test_flows_lie_evenly_where_publishers_tell_each_other() -> None:
    chance, coordinated = distribute("weighted-random", 20, 50), distribute("coordinated", 20, 50)
    assert sum(chance.loads) == sum(coordinated.loads)
    assert held(rules.figure_11(chance, coordinated)) == [True, True]
    assert held(rules.figure_11(coordinated, chance)) == [False, False]


def test_latency_and_pace_are_counted_as_they_are_defined() -> None:
    assert mean_s(Came(0.0, [(11.0, "p", 1), (13.0, "p", 3)]), 10.0) == 2.5
    pace = Pace((100.0, 200.0), 2.0)
    assert pace.total == 600
    assert [pace.due_s(100), pace.due_s(300), pace.due_s(900)] == [1.0, 2.5, 4.0]


def test_the_pictures_and_the_notes(tmp_path: Path) -> None:
    figures.draw_4(tmp_path / "4.png", [replayed(1, 1, 100), replayed(5, 2, 300)])
    figures.draw_5(tmp_path / "5.png", 1000, [Step(100, 100, 5), Step(1500, 1000, 400)])
    figures.draw_7(tmp_path / "7.png", [Tradeoff("threshold", 1, 1, 2), Tradeoff("least-waiting", 1, 1, 2)])
    figures.draw_8(tmp_path / "8.png", [Sample(1, 1, 6, 1), Sample(2, 1, 6, 2)], QUICK.hiccup)
    figures.draw_9(tmp_path / "9.png", np.array([1.0, 2.0, 30.0]))
    figures.draw_11(tmp_path / "11.png", [distribute("coordinated", 2, 5)])
    assert len(list(tmp_path.glob("*.png"))) == 6
    for sizes in (QUICK, FULL):
        assert any("of the paper's" in note for note in notes(sizes))
    assert "W15" in STUDIES and callable(load("W15").run)


def test_the_whole_study_on_parts_that_answer_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its parts are run for real by tests/integration/test_publisher_bench.py."""
    asked: list[str] = []

    @contextmanager
    def there(*args: object) -> Iterator[object]:
        yield list(range(20)) if callable(args[-1] if args else None) else Mock(urls=["rocksdb:///log"])

    def spread(log: str, rows: int, sinks: list[int], policy: str, count: int, rate: float) -> Tradeoff:
        asked.append(f"{policy} {count}")
        assert (log, rows, len(sinks)) == ("rocksdb:///log", QUICK.spread_rows, 10)
        return Tradeoff(
            policy, count, 1.0 + count / 2, (1 if policy == "threshold" else 0.9) * (3 - count / 10)
        )

    deliveries = [(1.0, PRIMARY, 100), (4.0, SECONDARY, 100), (8.0, PRIMARY, 100)]
    came = Came(0.0, deliveries, QUICK.plan.rows + 100)
    for name, stub in {
        "workers": there,
        "stored": there,
        "database": there,
        "replay": lambda log, rows, sinks: replayed(len(sinks), len(sinks), 90 * min(len(sinks), 5)),
        "take_all": lambda log, rows, sink, count: 1e6,
        "climb": lambda log, rows, sink, pace: [Step(rate, rate, 5) for rate in pace.steps],
        "spread": spread,
        "hold_up": lambda sinks, hiccup: [Sample(2, 1, 6, 1), Sample(6, 3, 6, 2), Sample(8, 1, 6, 1)],
        "latencies_ms": lambda server, count, per_s: np.full(count, 5.0),
        "fail_over": lambda plan: Failover(plan, 0.0, 3.0, 5.0, came, came),
        "modelled": lambda policy, count: Tradeoff(policy, count, 1, 1 if policy == "threshold" else 0.8),
    }.items():
        monkeypatch.setattr(w15_study, name, stub)
    said: list[str] = []
    report = w15_study.run(quick=True, out=tmp_path, say=said.append)
    assert {claim.claim.split(":")[0].split(",")[0].rstrip("ab") for claim in report.claims} == {
        f"Fig. {number}" for number in (4, 5, 7, 8, 9, 10, 11)
    }
    assert [Path(figure).name for figure in report.figures] == sorted(
        (path.name for path in tmp_path.iterdir()), key=lambda name: int(name[7:-4])
    )
    assert asked == [
        "threshold 10",
        "threshold 3",
        "threshold 2",
        "threshold 1",
        "least-waiting 3",
        "least-waiting 2",
    ]
    assert {claim.claim.partition(":")[0]: claim.holds for claim in report.claims}["Fig. 4b"]
    assert report.notes == notes(QUICK) and any("1,000,000 updates/s" in line for line in said)

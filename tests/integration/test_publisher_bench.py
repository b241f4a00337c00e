"""The processes of the publisher's benchmark and of its study, with little to do: what they count is what was
written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qanat.bench import publisher as bench
from qanat.operate.processes import Worker, workers
from qanat.studies.publishing import RocksWriter, apply
from qanat.studies.w15.caravans import Hiccup, hold_up, spread
from qanat.studies.w15.failover import PRIMARY, SECONDARY, Plan, fail_over
from qanat.studies.w15.latency import WARM, database, latencies_ms
from qanat.studies.w15.replay import plain_fan_out, replay, stored
from qanat.studies.w15.subscriber import Pace, climb, take_all

pytestmark = pytest.mark.paper("W15")
ROWS = 3_000


@pytest.fixture(scope="module")
def log() -> Iterator[RocksWriter]:
    with stored(ROWS) as writer:
        yield writer


@pytest.fixture(scope="module")
def sinks() -> Iterator[list[Worker]]:
    with workers(2, apply) as children:
        yield children


def test_all_applications_get_all_from_one_read_beside_one_that_stalls(
    log: RocksWriter, sinks: list[Worker]
) -> None:
    found = replay(log.urls[0], ROWS, sinks, stalled=1)
    assert found.applications == 2 and found.mb_per_s > 0
    assert 2 * ROWS * 1000 / 1e6 < found.sent_mb < 2 * ROWS * 2500 / 1e6
    assert found.read_mb < 1.1 * found.sent_mb, "once for both, and at most once more for the one that stalls"


def test_one_subscriber_takes_what_is_sent_again_and_again(log: RocksWriter, sinks: list[Worker]) -> None:
    assert take_all(log.urls[0], ROWS, sinks[0], 10 * ROWS) > 0
    steps = climb(log.urls[0], ROWS, sinks[0], Pace((10_000.0, 20_000.0), 0.5))
    assert [step.offered for step in steps] == [10_000, 20_000]
    assert all(step.latency_ms > -1 for step in steps)


def test_plain_sockets_carry_to_all() -> None:
    with plain_fan_out(2, 3 << 20) as measure:
        assert measure() > 0 and measure() > 0


@pytest.mark.parametrize(("caravans", "logs"), [(1, 1.0), (2, 1.5)])
def test_applications_all_over_a_log_are_served_by_so_many_readers(
    log: RocksWriter, sinks: list[Worker], caravans: int, logs: float
) -> None:
    """One has had half of the log. Alone it is ahead of its reader, which goes through the log once; with a
    second reader half of it is read twice."""
    found = spread(log.urls[0], ROWS, sinks, "least-waiting", caravans, 2e6)
    assert (found.policy, found.caravans) == ("least-waiting", caravans)
    assert found.amplification == pytest.approx(logs, abs=0.1)
    assert found.latency_s > 0


def test_one_that_is_held_up_is_seen_in_what_is_read(sinks: list[Worker]) -> None:
    """Two applications: all that is sent was read once for both, and what one missed once more for it."""
    hiccup = Hiccup(5.0, 1.0, 1.0, rows_per_s=2_000, window_bytes=1 << 18)
    samples = hold_up(sinks, hiccup)
    assert len(samples) > 5 and {sample.caravans for sample in samples} >= {1, 2}
    behind = [sample.ratio for sample in samples if sample.at_s > hiccup.from_s and sample.sent_mb_s]
    assert max(behind) > 0.6


@pytest.mark.slow
def test_a_copy_takes_over_and_gives_back_and_nothing_is_missing() -> None:
    plan = Plan(6.0, 1.0, 1.5, rows_per_s=300)
    found = fail_over(plan)
    assert found.many.distinct == found.single.distinct == plan.rows + 100
    assert not found.many.lost + found.single.lost
    assert {who for _, who, _ in found.many.deliveries} == {PRIMARY, SECONDARY}
    assert {who for _, who, _ in found.single.deliveries} == {PRIMARY}
    assert found.delivered(found.single, PRIMARY, found.failed_s + 0.5, found.returned_s) == 0


@pytest.mark.server("mariadb")
def test_each_commit_is_timed_once() -> None:
    with database() as server:
        for first in (0, 10**6):
            taken = latencies_ms(server, 50, 500.0, first)
            assert taken.shape == (50,) and (taken > 0).all()
        assert list(server.run("SELECT COUNT(*) FROM shop.rows")) == [(2 * (50 + WARM),)]


@pytest.mark.slow
@pytest.mark.server("mariadb")
def test_every_part_of_the_benchmark_gives_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "REPLAYED": ROWS, "APPLICATIONS": (1, 2), "PREPARED": ROWS, "TAKEN": 10 * ROWS, "LOGGED": ROWS,
        "COMMITS": 50, "FAST": 2,
    }  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(bench, name, value)
    said: list[str] = []
    figures = bench.run(1, said.append)
    assert [line for line in said if not line.startswith(" ")] == [
        "replay", "subscriber", "latency", "isolation",
    ]  # fmt: skip
    assert len(said) == 8 and all("round 1 of 1" in line for line in said[1::2])
    assert set(figures) >= {
        *(f"{name}_{count}" for name in ("replay_mb_per_s", "replay_brought_mb_per_s", "plain_mb_per_s",
        "replay_ratio") for count in (1, 2)), "subscriber_updates_per_s", "subscriber_log_updates_per_s",
        "latency_ms_p50", "latency_ms_p99", "latency_share_under_100_ms", "nine_mb_per_s",
        "nine_beside_stalled_mb_per_s", "isolation_ratio",
    }  # fmt: skip
    assert all(value > 0 for value in figures.values())


def test_a_part_that_is_not_there_is_said() -> None:
    with pytest.raises(
        bench.NoPart, match="no part 'nothing'; there are replay, subscriber, latency, isolation"
    ):
        bench.run_only("nothing", 1, print)

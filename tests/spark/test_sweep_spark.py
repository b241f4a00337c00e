"""Sweeps of the simulator over Spark's executors: every seed once, the same outcomes, and no failure
hidden."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from qanat.checks import scenarios
from qanat.checks.scenarios import load_scenario
from qanat.cli.main import main
from qanat.kernel import Address, Factory
from qanat.protocols.push_sum import Account, Portion, PushSum, PushSumConfig
from qanat.sim import Place, run
from qanat.studies.spark_progress import JobFailed
from qanat.studies.spark_sweep import outcomes, task_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.paper("D8"), pytest.mark.slow]

LOSSY = "scenarios/push_sum_lossy.toml"


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Machines that this makes take the place of push-sum's own, here and on the executors."""

    def planted(build: Callable[..., Any]) -> None:
        kit = dataclasses.replace(scenarios.KITS["push-sum"], build=build)
        monkeypatch.setitem(scenarios.KITS, "push-sum", kit)

    return planted


def adds_duplicates() -> Callable[[PushSumConfig, Sequence[Place]], Factory]:
    class AddsDuplicates(PushSum):
        """An old portion is added again. The class is local, so that executors get it by value."""

        def _on_portion(self, sender: Address, message: Portion) -> None:
            account = self.taken.get(sender, Account())
            if message.number <= account.number:
                self.portion += message.value // 10
            super()._on_portion(sender, message)

    def build(config: PushSumConfig, places: Sequence[Place]) -> Factory:
        everyone = [place.address for place in places]
        return lambda context: AddsDuplicates(context, config, everyone)

    return build


def test_every_seed_is_run_once_with_the_outcome_that_it_has_here(spark: SparkSession) -> None:
    scenario = load_scenario(LOSSY)
    found = list(outcomes(spark.sparkContext, scenario, 3, 15))
    assert sorted(found, key=lambda outcome: outcome.seed) == [run(scenario, seed) for seed in range(3, 16)]


def test_a_planted_bug_is_told_in_the_same_lines_as_without_spark(
    spark: SparkSession, plant: Callable[[Callable[..., Any]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    plant(adds_duplicates())
    printed = []
    for words in (["--workers", "1"], ["--spark"]):
        assert main(["simulate", LOSSY, "--seeds", "0..9", "--json", *words]) == 1
        printed.append(capsys.readouterr())
    summary = json.loads(printed[0].out)
    assert summary["failures"]
    assert summary["runs"] == 10
    assert json.loads(printed[1].out) == summary
    assert sorted(printed[1].err.splitlines()) == sorted(printed[0].err.splitlines())
    for failure in summary["failures"]:
        assert failure["replay"] == f"./qanat simulate {LOSSY} --seed {failure['seed']}"
        assert f"replay: {failure['replay']}\n" in printed[1].err


def test_fail_fast_ends_the_job(
    spark: SparkSession, plant: Callable[[Callable[..., Any]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    plant(adds_duplicates())
    assert main(["simulate", LOSSY, "--seeds", "0..20000", "--json", "--spark", "--fail-fast"]) == 1
    summary = json.loads(capsys.readouterr().out)
    assert len(summary["failures"]) == 1
    assert summary["runs"] < 20_000
    assert spark.range(3).count() == 3


def test_a_run_that_breaks_is_told_in_a_sentence(
    spark: SparkSession, plant: Callable[[Callable[..., Any]], None]
) -> None:
    def build(config: PushSumConfig, places: Sequence[Place]) -> Factory:
        raise RuntimeError("this machine cannot be built")

    plant(build)
    with pytest.raises(JobFailed, match=r"the Spark job 'seeds' failed: .*this machine cannot be built"):
        list(outcomes(spark.sparkContext, load_scenario(LOSSY), 0, 0))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--spark"], "--spark needs --seeds"),
        (["--seeds", "0..1", "--spark", "--workers", "2"], "excludes --workers"),
        (["--seeds", "0..1", "--master", "local[1]"], "--master needs --spark"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", LOSSY, *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seeds", "cores", "tasks"), [(1, 2, 1), (10, 2, 8), (100_000, 2, 3_125), (100_000, 1_000, 4_000)]
)
def test_tasks_are_many_enough_for_all_cores_and_not_too_many(seeds: int, cores: int, tasks: int) -> None:
    assert task_count(seeds, cores) == tasks

"""S14 as Spark jobs: the same numbers as in one process, however the work is spread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from qanat.cli.main import main
from qanat.events.errors import InvariantError
from qanat.studies.s14 import study as s14_study
from qanat.studies.s14.curves import logged, points, storage_curve
from qanat.studies.s14.spark import OnSpark
from qanat.studies.s14.study import Here, Sizes, study
from qanat.studies.s14.workload import Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.paper("D8"), pytest.mark.slow]

TINY = Sizes(
    log_upto=10_000,
    upto=40_000,
    ticks=300,
    age_max=30,
    keys=500,
    skews=(1.1, 1.5),
    rates=(50.0, 200.0),
    age_skews=(1.1, 1.5),
)
CHUNK = 6_000


def quiet(_line: str) -> None: ...


def test_the_whole_study_is_equal_on_spark_and_here(spark: SparkSession, tmp_path: Path) -> None:
    lines: list[str] = []
    here = study(TINY, out=tmp_path / "here", say=quiet, measuring=Here(CHUNK))
    there = study(
        TINY, out=tmp_path / "there", say=lines.append, measuring=OnSpark(spark, chunk=CHUNK, span_chunks=3)
    )
    assert there.claims == here.claims
    assert there.notes == here.notes
    for one, two in zip(here.figures, there.figures, strict=True):
        assert Path(one).read_bytes() == Path(two).read_bytes()
    assert any("40,000 events" in line for line in lines)


@pytest.mark.parametrize("span_chunks", [1, 50])
def test_it_does_not_matter_how_the_work_is_cut(spark: SparkSession, span_chunks: int) -> None:
    model = Model(skew=1.1, keys=500, new_rate=20)
    here = storage_curve(model, 2, upto=30_000, log_upto=0, say=quiet, chunk=CHUNK)
    there = OnSpark(spark, chunk=CHUNK, span_chunks=span_chunks)
    curve = there.storage(model, 2, upto=30_000, log_upto=0, say=quiet)
    assert curve.stored.tolist() == here.stored.tolist()
    assert curve.generated.tolist() == here.generated.tolist()


@pytest.mark.parametrize(("keys", "counts"), [(20, 1), (100_000, 2)])
def test_a_fixed_set_is_drawn_no_further_once_all_of_it_was_seen(
    spark: SparkSession, keys: int, counts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    count = OnSpark._count

    def noting(self: OnSpark, work: Any, parts: Any, *rest: Any) -> Any:
        counted.append(len(parts))
        return count(self, work, parts, *rest)

    monkeypatch.setattr(OnSpark, "_count", noting)
    model = Model(skew=1.1, keys=keys)
    here = storage_curve(model, 2, upto=40_000, log_upto=0, say=quiet, chunk=CHUNK)
    there = OnSpark(spark, chunk=CHUNK, span_chunks=1).storage(model, 2, upto=40_000, log_upto=0, say=quiet)
    assert there.stored.tolist() == here.stored.tolist()
    assert len(counted) == counts and counted[0] < 7


def test_a_log_that_keeps_another_number_fails_the_study(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(skew=1.5, keys=50)
    monkeypatch.setattr(OnSpark, "_count", lambda *_: np.zeros(len(points(5_000)), np.int64))
    assert logged(model, 1, points(5_000), chunk=CHUNK)[1] == 50
    with pytest.raises(InvariantError, match="with 0 distinct keys the log holds"):
        OnSpark(spark, chunk=CHUNK).storage(model, 1, upto=5_000, log_upto=5_000, say=quiet)


def test_the_command_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the session that is there; its output has the same shape as without Spark."""
    asked: list[int] = []

    def sizes(events: int) -> Sizes:
        asked.append(events)
        return Sizes(log_upto=0, upto=events, ticks=100, age_max=10, keys=100, skews=(1.1,), rates=(50.0,))

    monkeypatch.setattr(s14_study, "of_events", sizes)
    words = ["study", "S14", "--spark", "--events", "2000", "--json", "--out", str(tmp_path)]
    assert main(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"study", "claims", "figures"}
    assert asked == [2_000]
    assert spark.range(3).count() == 3  # the session was left as it was


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["S12", "--spark"], "S12 does not run on Spark (S14 does)"),
        (["S14", "--events", "1000"], "--events and --master need --spark"),
        (["S14", "--master", "local[1]"], "--events and --master need --spark"),
        (["S14", "--spark", "--events", "0"], "at least 1"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *words]) == 2
    assert sentence in capsys.readouterr().err

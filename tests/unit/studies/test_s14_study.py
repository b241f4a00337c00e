"""The study of section 5.4 at small sizes: the log against the count, the rules of the claims, the
pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.cli.main import main
from qanat.events.errors import InvariantError
from qanat.studies.s14 import curves as s14_curves
from qanat.studies.s14 import study as s14_study
from qanat.studies.s14.claims import falls, lies_below, saves_roughly, stays_within, zeta_claims
from qanat.studies.s14.curves import Ages, Curve, age_curve, points, storage_curve
from qanat.studies.s14.storage import CountedStorage, LogStorage
from qanat.studies.s14.study import Sizes, study
from qanat.studies.s14.workload import Events, Model

pytestmark = pytest.mark.paper("S14")

TINY = Sizes(log_upto=20_000, upto=40_000, ticks=300, age_max=30, keys=500, rates=(50.0, 200.0))


def quiet(_line: str) -> None: ...


def curve(kept: list[float], skew: float = 1.1) -> Curve:
    generated = np.array([1_000 * 10**i for i in range(len(kept))])
    stored = np.rint(np.array(kept) * generated).astype(np.int64)
    return Curve(Model(skew=skew), generated, stored, 0)


# --- what is stored -------------------------------------------------------------------------------------


@settings(max_examples=examples(25))
@given(st.lists(st.lists(st.integers(-9, 9), max_size=40), max_size=6))
def test_the_log_keeps_one_event_for_each_key(pieces: list[list[int]]) -> None:
    log, counted = LogStorage(1_000), CountedStorage()
    for piece in pieces:
        keys = np.array(piece, np.int64)
        log.add(keys)
        counted.add(keys)
        assert log.kept() == counted.kept()
    expected = len({key for piece in pieces for key in piece})
    assert (counted.kept(), log.read_back()) == (expected, expected)
    log.close()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "model",
    [
        Model(skew=1.1, new_rate=10),
        Model(skew=1.5, keys=1_000),
        Model(skew=1.1, keys=1_000, new_rate=20, announced=True),
    ],
)
def test_log_and_count_agree_along_a_curve(model: Model, seed: int) -> None:
    whole = storage_curve(model, seed, upto=100_000, log_upto=100_000, say=quiet)
    counted = storage_curve(model, seed, upto=100_000, log_upto=0, say=quiet)
    assert whole.log_upto == 100_000
    assert counted.log_upto == 0
    assert np.array_equal(whole.stored, counted.stored)
    assert whole.generated.tolist() == points(100_000).tolist()


def test_a_log_that_keeps_another_number_fails_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogStorage, "kept", lambda _self: 7)
    with pytest.raises(InvariantError, match=r"the log holds 7 live events"):
        storage_curve(Model(skew=1.1), 1, upto=2_000, log_upto=2_000, say=quiet)


def test_a_log_that_gives_a_reader_another_number_fails_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogStorage, "read_back", lambda _self: 7)
    with pytest.raises(InvariantError, match=r"the log holds 7 live events"):
        storage_curve(Model(skew=1.1), 1, upto=2_000, log_upto=2_000, say=quiet)


def test_a_log_that_forgets_keys_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault for real: an index with too little room keeps the last event of every key that it forgot."""
    monkeypatch.setattr(s14_curves, "LogStorage", lambda _events_max: LogStorage(50))
    with pytest.raises(InvariantError, match=r"distinct keys the log holds"):
        storage_curve(Model(skew=1.1), 1, upto=100_000, log_upto=100_000, say=quiet)


def test_points_end_where_they_should() -> None:
    assert points(1_000_000)[[0, -1]].tolist() == [1_000, 1_000_000]
    assert points(500).tolist() == [500]
    assert 10_000_000 in points(100_000_000)


def test_a_curve_is_read_between_its_points() -> None:
    falling = curve([0.4, 0.2, 0.1])
    assert falling.kept_at(10_000) == pytest.approx(0.2)
    assert falling.generated_at(0.2) == pytest.approx(10_000)
    assert falling.kept_at(10**3.5) == pytest.approx(0.4 / 2**0.5, rel=1e-3)
    assert falling.generated_at(0.05) is None


def test_ages_count_every_invalidation_of_a_new_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Events(
        np.array([5, -1, -1, -2, -1]),
        np.array([0.1, 1.5, 2.4, 2.5, 90.0]),
        np.array([-np.inf, 1.0, 1.0, 2.4, 1.0]),
    )
    monkeypatch.setattr(s14_curves, "events", lambda _model, _seed, chunk: iter([one]))
    ages = age_curve(Model(skew=1.1, new_rate=10), 1, ticks=50, age_max=10)
    assert dict(zip(ages.age, ages.invalidations, strict=True)) == {1.0: 2.0, 2.0: 1.0}


# --- rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "paper", "holds"),
    [
        (0.25, 0.25, True),
        (0.304, 0.25, True),
        (0.33, 0.25, False),
        (0.17, 0.25, False),
        (0.01, 0.15, False),
        (0.2, 0.15, True),
    ],
)
def test_roughly_is_a_tenth_of_what_is_saved(kept: float, paper: float, holds: bool) -> None:
    assert saves_roughly(kept, paper) is holds


def test_rules_of_order() -> None:
    assert falls([3.0, 2.0, 1.0])
    assert not falls([3.0, 3.0])
    assert lies_below(curve([0.3, 0.2]), curve([0.4, 0.3]))
    assert not lies_below(curve([0.3, 0.3]), curve([0.4, 0.3]))
    model = Model(skew=1.1, keys=500)
    seen_all = Curve(model, np.array([1_000, 10_000]), np.array([400, 500]), 0)
    assert lies_below(seen_all._replace(stored=np.array([300, 500])), seen_all)
    assert not lies_below(seen_all, seen_all)
    assert stays_within(1.5, 0.2, 0.15)
    assert not stays_within(1.5, 0.1, 0.01)


def test_a_claim_that_does_not_hold_is_said_to_not_hold() -> None:
    share, skew = zeta_claims([curve([0.6, 0.5]), curve([0.7, 0.6], skew=1.5)])
    assert (share.measured, share.holds, skew.holds) == (0.5, False, False)
    share, skew = zeta_claims([curve([0.6, 0.26]), curve([0.5, 0.2], skew=1.5)])
    assert (share.holds, skew.holds) == (True, True)


def test_a_power_law_is_a_line() -> None:
    age = np.geomspace(1, 100, 20)
    ages = Ages(Model(skew=1.1), age, 1e4 * age**-1.3)
    assert ages.slope == pytest.approx(-1.3)
    assert ages.straightness == pytest.approx(1.0)


# --- the whole ------------------------------------------------------------------------------------------


def test_the_study_at_a_tiny_size(tmp_path: Path) -> None:
    lines: list[str] = []
    report = study(TINY, out=tmp_path / "made" / "here", say=lines.append)
    assert report.study == "S14"
    assert len(report.claims) >= 9
    assert [claim.holds for claim in report.claims if claim.claim.startswith("Fig. 9")] == [True] * 4
    kept = [
        claim
        for claim in report.claims
        if claim.claim.startswith("Fig. 10b: Zipf model, skew 1.1: about 15 %")
    ]
    assert [(claim.paper, claim.measured, claim.holds) for claim in kept] == [(0.15, 0.0125, False)]
    assert any("agree at all" in note for note in report.notes)
    for figure in report.figures:
        assert Path(figure).read_bytes().startswith(b"\x89PNG")
    assert any("Zeta" in line for line in lines)


def test_the_study_is_the_same_each_time_and_its_json_has_its_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(s14_study, "QUICK", TINY)
    printed = []
    for name in ("a", "b"):
        assert main(["study", "S14", "--quick", "--json", "--out", str(tmp_path / name)]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert [set(line) for line in printed] == [{"study", "claims", "figures"}] * 2
    assert printed[0]["claims"] == printed[1]["claims"]
    assert all(set(claim) == {"claim", "paper", "measured", "holds"} for claim in printed[0]["claims"])
    for one, two in zip(printed[0]["figures"], printed[1]["figures"], strict=True):
        assert Path(one).read_bytes() == Path(two).read_bytes()

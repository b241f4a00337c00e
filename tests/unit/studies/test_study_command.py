"""`qanat study`: the list, one run, and the line of JSON that other programs read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from qanat.cli.commands.study import verdicts
from qanat.cli.main import main
from qanat.events.errors import InvariantError
from qanat.studies import registry
from qanat.studies.registry import Claim, Report, Say, Study

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("a_study_of_tests")

    def run(*, quick: bool, out: Path, say: Say) -> Report:
        if not quick:
            raise InvariantError("two counts differ")
        say("half of it is done")
        claims = [Claim("it is small", 0.25, 0.3, True), Claim("it is “round”", "round", "square", False)]
        return Report("T1", claims, [str(out / "T1.png")], ["mind the step"])

    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(registry, "STUDIES", {})
    monkeypatch.setitem(registry.STUDIES, "T1", Study("whether it is small", module.__name__))
    monkeypatch.setattr("qanat.cli.commands.study.STUDIES", registry.STUDIES)
    return "T1"


def test_the_list_has_a_sentence_for_each(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study"]) == 0
    assert capsys.readouterr().out == f"{sample}  whether it is small\n"
    assert main(["study", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"studies": {sample: "whether it is small"}}


def test_words_show_progress_claims_notes_and_pictures(
    sample: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", sample.lower(), "--quick", "--out", "there"]) == 0
    out = capsys.readouterr().out
    assert "half of it is done" in out
    assert "- mind the step" in out
    assert f"picture: {Path('there') / 'T1.png'}" in out
    assert "it is “round”  round  square    NO" in out


def test_json_is_the_only_line_on_stdout_and_a_false_claim_is_no_failure(
    sample: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", sample, "--quick", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "study": "T1",
        "claims": [
            {"claim": "it is small", "paper": 0.25, "measured": 0.3, "holds": True},
            {"claim": "it is “round”", "paper": "round", "measured": "square", "holds": False},
        ],
        "figures": [str(Path("studies") / "T1.png")],
    }
    assert captured.out.count("\n") == 1
    assert "half of it is done" in captured.err


def test_a_study_that_fails_is_a_failure(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", sample]) == 1
    assert "two counts differ" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_said_before_the_work(
    sample: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main(["study", sample, "--quick", "--out", "file/pictures"]) == 2
    captured = capsys.readouterr()
    assert "cannot make the folder file/pictures: Not a directory" in captured.err
    assert captured.out == ""


@pytest.mark.usefixtures("sample")
def test_an_unknown_study_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "S99"]) == 2
    assert "there is no study 'S99'; there are T1" in capsys.readouterr().err


def test_numbers_are_shown_with_the_digits_that_count() -> None:
    assert verdicts([Claim("a", 0.25, 0.30401, True)]).splitlines()[1].split() == [
        "a",
        "0.25",
        "0.304",
        "yes",
    ]


def test_every_study_is_a_row_of_the_ledger_with_a_page_and_a_module() -> None:
    from qanat_workshop.papers import IDS

    for identifier, study in registry.STUDIES.items():
        assert identifier in IDS
        assert len(study.about) > 20
        assert (CHECKOUT / "docs" / "studies" / f"{identifier}.md").is_file()
        assert callable(registry.load(identifier).run)

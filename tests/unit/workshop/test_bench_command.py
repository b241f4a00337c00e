"""`qanat bench`: the list, one run, and the line of JSON that other programs read."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import qanat.bench
from qanat.bench.broadcast_table import cells
from qanat.bench.figures import medians
from qanat.bench.ways import VARIABLE
from qanat.cli.commands.bench import available, describe, table
from qanat.cli.main import main

SAMPLE = '''
"""A sample."""
DESCRIPTION = "counts its rounds"

def run(rounds, say):
    for number in range(rounds):
        say(f"round {number + 1}")
    return {"rounds": float(rounds), "ratio": 0.51234}
'''


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "sample_of_tests.py").write_text(SAMPLE)
    (tmp_path / "shared_helper.py").write_text("SIZE = 1\n")
    monkeypatch.setattr(qanat.bench, "__path__", [str(tmp_path)])
    return "sample_of_tests"


def test_the_list_has_names_and_descriptions(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 0
    assert capsys.readouterr().out == f"{sample}  counts its rounds\n"
    assert main(["bench", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"benches": {sample: "counts its rounds"}}


def test_a_run_prints_its_progress_and_its_figures(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", sample, "--rounds", "2"]) == 0
    out = capsys.readouterr().out
    assert "round 2" in out
    assert out.endswith("  rounds      2\n  ratio   0.512\n")


def test_json_is_the_only_line_on_stdout(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", sample, "--json", "--rounds", "1"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "bench": sample, "tcp": False, "figures": {"rounds": 1.0, "ratio": 0.51234}, "spread": {},
    }  # fmt: skip
    assert "round 1" in captured.err


def test_tcp_and_short_ways_are_measured_in_turns(
    sample: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / f"{sample}.py").write_text(
        'import os\nDESCRIPTION = "says its way"\ndef run(rounds, say):\n   '
        f' say(os.environ.get("{VARIABLE}", "unset"))\n    return {{"short": float(os.environ["{VARIABLE}"]'
        ' == "true")}\n'
    )
    monkeypatch.delitem(sys.modules, f"qanat.bench.{sample}", raising=False)
    assert main(["bench", sample, "--markdown", "--rounds", "2"]) == 0
    captured = capsys.readouterr()
    assert [line.strip() for line in captured.err.splitlines() if "=" not in line and len(line) < 8] == [
        "false", "true", "true", "false",
    ]  # fmt: skip
    assert captured.out.splitlines() == [
        "|  | TCP, as between machines | one machine, by short ways |",
        "| --- | --- | --- |",
        "| `short` | 0 | 1 |",
    ]
    assert VARIABLE not in os.environ
    assert main(["bench", sample, "--tcp", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tcp"] is True
    assert main(["bench", sample, "--tcp", "--markdown"]) == 2
    assert "measures both ways" in capsys.readouterr().err


@pytest.mark.usefixtures("sample")
def test_wrong_usage_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nothing"]) == 2
    assert "there is no benchmark 'nothing'; there are sample_of_tests" in capsys.readouterr().err
    assert main(["bench", "sample_of_tests", "--rounds", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    assert main(["bench", "sample_of_tests", "--clients", "3"]) == 2
    assert "takes no --clients" in capsys.readouterr().err


def test_a_simulated_system_can_be_of_any_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sim", "--clients", "30", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert figures["clients"] == 30
    assert figures["least_delivered"] > 0.8 * figures["published"]


def test_the_real_ones_describe_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed and describe(name) for name in available())


@pytest.mark.parametrize(
    ("value", "shown"), [(12_345_678.9, "12,345,679"), (0.123456, "0.123"), (3.0, "3"), (15.27, "15.3")]
)
def test_figures_are_shown_with_the_digits_that_count(value: float, shown: str) -> None:
    assert table({"x": value}).split() == ["x", shown]


def test_a_table_has_the_spread_of_its_rounds() -> None:
    assert table(medians([{"x": 1.0}, {"x": 4.0}, {"x": 2.0}])).split() == ["x", "2", "(1", "…", "4)"]


def test_the_rows_of_the_readme_are_those_of_the_benchmark() -> None:
    """What `qanat bench broadcast --markdown` prints can be put there as it is."""
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    rows = cells(defaultdict(float))
    assert [row for row in rows if f"\n| {row} | " not in readme] == []


def test_an_empty_table_is_empty() -> None:
    assert table({}) == ""
    check: Callable[[str], str | None] = describe
    assert check("no_such_module") is None

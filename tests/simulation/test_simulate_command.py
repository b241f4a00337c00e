"""`qanat simulate` as a person or a script meets it."""

import json
from pathlib import Path

import pytest

from qanat.cli.main import main

LOSSY = "scenarios/push_sum_lossy.toml"

FAILING = """
protocol = "push-sum"
about = "a crash without a journal"
[[nodes]]
name = "n"
count = 4
[config]
durable = false
[workload]
kind = "values"
until_s = 1.0
[[faults]]
kind = "crash"
at_s = 1.0
for_s = 0.1
pick = 1
[time]
safety_s = 2.0
[check]
checkers = ["mass"]
"""


@pytest.fixture
def failing(tmp_path: Path) -> str:
    path = tmp_path / "fail ing.toml"
    path.write_text(FAILING)
    return str(path)


def test_one_seed_in_words_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", LOSSY, "--seed", "7"]) == 0
    words = capsys.readouterr().out
    for part in (
        "10 nodes, seed 7",
        "s of virtual time",
        "messages delivered",
        "faults:",
        "every promise was kept",
    ):
        assert part in words
    assert main(["simulate", LOSSY, "--seed", "7", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert set(line) == {"seed", "trace", "violations"}
    assert (line["seed"], line["violations"]) == (7, [])
    assert f"trace {line['trace']}" in words


def test_a_violation_is_exit_code_one_and_tells_its_story(
    failing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", failing, "--seed", "1", "--json"]) == 1
    printed = capsys.readouterr()
    (violation,) = json.loads(printed.out)["violations"]
    assert set(violation) == {"checker", "time_us", "node", "explanation", "story"}
    assert "VIOLATION of 'mass'" in printed.err
    assert "what led there:" in printed.err


def test_a_range_of_seeds_prints_one_replay_command_per_failure(
    failing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", failing, "--seeds", "0..5", "--json", "--workers", "2"]) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["seeds"], summary["runs"]) == ([0, 5], 6)
    assert [failure["seed"] for failure in summary["failures"]] == list(range(6))
    for failure in summary["failures"]:
        assert failure["replay"] == f"./qanat simulate '{failing}' --seed {failure['seed']}"
        assert printed.err.count(f"replay: {failure['replay']}\n") == 1
        assert failure["violations"]


def test_fail_fast_stops_early(failing: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", failing, "--seeds", "0..50", "--json", "--workers", "1", "--fail-fast"]) == 1
    assert json.loads(capsys.readouterr().out)["runs"] == 1


def test_good_seeds_over_two_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", LOSSY, "--seeds", "0..9", "--workers", "2"]) == 0
    words = capsys.readouterr().out
    assert "10 of 10" in words
    assert "every promise was kept" in words


def test_a_trace_can_be_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.txt"
    assert main(["simulate", LOSSY, "--seed", "7", "--trace", str(path)]) == 0
    lines = path.read_text().splitlines()
    assert len(lines) > 1000
    assert any("message  from" in line and "Portion(" in line for line in lines)
    assert main(["simulate", LOSSY, "--trace", str(tmp_path / "no" / "folder")]) == 2
    assert "cannot write the trace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.toml"], "there is no scenario file"),
        ([LOSSY, "--seeds", "5..1"], "must look like 0..99"),
        ([LOSSY, "--seeds", "0..1", "--seed", "1"], "not allowed with"),
        ([LOSSY, "--seeds", "0..1", "--trace", "x"], "--trace goes with one --seed"),
        ([LOSSY, "--workers", "0"], "at least 1"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0
    assert "--seeds 0..999" in capsys.readouterr().out

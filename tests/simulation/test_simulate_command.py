"""`qanat simulate` as a person or a script meets it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import DEADLINE_S, wait_until

from qanat.cli.main import main
from qanat.events.errors import LocalError

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
    assert "the events before it:" in printed.err


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


def on_a_terminal(*words: str) -> tuple[str, str]:
    """(stdout, what the terminal was sent on stderr) of `qanat simulate` as a person runs it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "qanat", "simulate", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # how a terminal ends when nobody has its other side open
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    out, _ = process.communicate(timeout=300)
    return out, shown.decode()


def test_progress_on_a_terminal_is_a_bar(failing: str) -> None:
    out, shown = on_a_terminal(LOSSY, "--seeds", "0..7", "--workers", "1")
    assert "seeds" in shown and "━" in shown and "8/8" in shown
    assert "every promise was kept" in out and "━" not in out and " of 8" not in out + shown
    out, shown = on_a_terminal(failing, "--seeds", "0..1", "--workers", "1", "--json")
    assert json.loads(out)["runs"] == 2
    for seed in (0, 1):  # in one piece, to be copied, however narrow the terminal is
        assert f"replay: ./qanat simulate '{failing}' --seed {seed}" in shown


def test_seeds_run_in_as_many_processes_as_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pool(workers: int, *_rest: Any) -> Any:
        raise LocalError(f"{workers} processes would be started")

    monkeypatch.setattr(sys.modules["qanat.sim.sweep"], "pool", pool)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert main(["simulate", LOSSY, "--seeds", "0..1"]) != 0
    assert main(["simulate", LOSSY, "--seeds", "0..1", "--workers", "3"]) != 0
    started = re.findall(r"(\d+) processes would be started", capsys.readouterr().err)
    assert started == ["7", "3"]


def in_group(group: int) -> list[int]:
    """The processes of a group that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _parent, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def _hears_interruptions() -> None:
    """A process that is started in the background inherits that they are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ending_it_in_the_middle_ends_its_workers_in_the_middle_of_theirs(number: signal.Signals) -> None:
    """A seed of this scenario takes seconds, and each worker has been given several."""
    command = [sys.executable, "-m", "qanat", "simulate", "scenarios/region_swarm.toml"]
    process = subprocess.Popen(
        [*command, "--seeds", "0..4000", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=_hears_interruptions,  # noqa: PLW1509
    )
    try:
        # Itself, the two helpers of multiprocessing, and the two workers.
        wait_until(lambda: len(in_group(process.pid)) >= 5, say=lambda: in_group(process.pid))
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.kill()
        out, _ = process.communicate(timeout=DEADLINE_S)
        wait_until(lambda: not in_group(process.pid), 20, say=lambda: in_group(process.pid))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted after" in out and "of 4,001 runs" in out


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
        ([LOSSY, "--seeds", "0..1", "--trace", "x"], "--trace needs one --seed"),
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

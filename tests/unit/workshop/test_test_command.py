"""`qanat test`: which commands it runs, what it forwards, what it returns."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.main import main
from qanat.runtime import workshop
from qanat_workshop import run_tests as runner
from qanat_workshop import servers
from qanat_workshop.servers import Server, install_missing, missing, why_missing


class Recorder:
    """Stands in for `subprocess.run`; the steps whose words contain `failing` fail."""

    def __init__(self, failing: str = "\0") -> None:
        self.failing = failing
        self.commands: list[str] = []
        self.environments: list[dict[str, str]] = []

    def __call__(self, words: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        line = " ".join(words[1:])
        self.commands.append(line)
        self.environments.append(env)
        return subprocess.CompletedProcess(words, int(self.failing in line))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(subprocess, "run", recorder)
    return recorder


def test_everything_runs_in_order(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test"]) == 0
    assert recorder.commands == [
        "-m ruff check",
        "-m ruff format --check",
        "-m mypy",
        "-m pytest -n 4 --dist worksteal",
    ]
    out = capsys.readouterr().out
    assert out.splitlines()[-1].strip() == "all is well"


def test_other_words_go_to_pytest(recorder: Recorder) -> None:
    assert main(["test", "tests/unit", "-k", "crash and not disk", "-x", "-n", "2", "--maxfail=1"]) == 0
    assert (
        recorder.commands[-1]
        == "-m pytest -n 2 --dist worksteal tests/unit -k crash and not disk -x --maxfail=1"
    )


def test_fast_leaves_out_what_is_slow(recorder: Recorder) -> None:
    assert main(["test", "--fast"]) == 0
    assert (
        recorder.commands[-1]
        == "-m pytest -n 4 --dist worksteal -m not slow --ignore=tests/integration --ignore=tests/spark"
    )


def test_soak_runs_the_long_proofs_and_nothing_else(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test", "--soak", "tests/unit"]) == 0
    assert recorder.commands == ["-m pytest -n 4 --dist worksteal --soak --timeout=3600 tests/unit"]
    assert main(["test", "--soak", "--fast"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_one_step_alone(recorder: Recorder) -> None:
    assert main(["test", "--only", "types"]) == 0
    assert recorder.commands == ["-m mypy"]


def test_the_debugger_needs_one_process(recorder: Recorder) -> None:
    main(["test", "--pdb", "--only", "tests"])
    assert recorder.commands == ["-m pytest -n 0 --dist worksteal --pdb"]


def test_a_failing_step_does_not_hide_the_next(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder.failing = "ruff check"
    assert main(["test"]) == 1
    assert len(recorder.commands) == 4
    out = capsys.readouterr().out
    assert "lint     FAILED" in out
    assert out.splitlines()[-1].strip() == "failed: lint"


class Unsteady(Recorder):
    """Tests that fail beside the others, and pass (or not) when they are named."""

    def __init__(self, root: Path, names: list[str], alone: int) -> None:
        super().__init__()
        self._root, self._names, self._alone = root, names, alone

    def __call__(self, words: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        super().__call__(words, env)
        if "pytest" not in words:
            return subprocess.CompletedProcess(words, 0)
        if words[-1] in self._names:
            return subprocess.CompletedProcess(words, self._alone)
        cache = self._root / ".pytest_cache" / "v" / "cache"
        cache.mkdir(parents=True)
        (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(self._names, True)))
        return subprocess.CompletedProcess(words, 1)


@pytest.mark.parametrize(
    ("ci", "names", "alone", "code", "runs"),
    [
        ("true", ["a.py::one", "a.py::two"], 0, 0, 2),
        ("true", ["a.py::one"], 1, 1, 2),
        ("true", ["a.py::1", "a.py::2", "a.py::3", "a.py::4"], 0, 1, 1),
        ("", ["a.py::one"], 0, 1, 1),
    ],
)
def test_a_build_server_runs_a_few_failures_once_more(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str,
    names: list[str],
    alone: int,
    code: int,
    runs: int,
) -> None:
    recorder = Unsteady(tmp_path, names, alone)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(subprocess, "run", recorder)
    monkeypatch.setattr(runner, "checkout", lambda: tmp_path)
    monkeypatch.setattr(servers, "install_missing", lambda _say: [])
    assert main(["test"]) == code
    assert len([line for line in recorder.commands if "pytest" in line]) == runs
    assert ("UNSTEADY a.py::one" in capsys.readouterr().out) == (code == 0)


def test_children_may_write_bytecode(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    main(["test"])
    assert all("PYTHONDONTWRITEBYTECODE" not in environment for environment in recorder.environments)


def test_outside_a_checkout_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workshop, "PACKAGE", "no_such_package")
    assert main(["test"]) == 3
    assert "only in a checkout" in capsys.readouterr().err


def test_the_steps_are_the_tools_of_this_interpreter() -> None:
    args = argparse.Namespace(fast=False, soak=False, jobs="2", extra=[])
    assert all(runner.command(step, args)[0] == sys.executable for step in runner.STEPS)


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `apt-get` alone on PATH, that writes down its words; its second `install` brings the program."""
    script = tmp_path / "apt-get"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >>"{tmp_path}/words"\n'
        'case "$*" in *update*) : >"' + str(tmp_path) + '/updated"; exit 0 ;; esac\n'
        f'[ -e "{tmp_path}/updated" ] || exit 100\n'
        f'printf "#!/bin/sh\\n" >"{tmp_path}/thingd"\n/bin/chmod +x "{tmp_path}/thingd"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


THING = {"thing": Server(packages=("thing-server",), programs=("thingd",))}


def test_a_missing_server_is_installed_by_root(apt: Path) -> None:
    said: list[str] = []
    assert missing(THING) == ["thing"]
    assert install_missing(said.append, THING, is_root=lambda: True) == []
    assert said == ["installing thing-server"]
    words = (apt / "words").read_text().splitlines()
    assert ["update" in line for line in words] == [False, True, False]
    assert why_missing("thing", THING) is None


def test_a_server_that_stays_missing_is_said(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert install_missing(said.append, THING, is_root=lambda: False) == ["thing"]
    assert said == [
        "the server 'thing' is not installed: apt-get install thing-server; its tests will be skipped"
    ]
    monkeypatch.setenv("CI", "true")
    install_missing(said.append, THING, is_root=lambda: False)
    assert said[-1].endswith("its tests will fail")
    assert not (apt / "words").exists()


def run_marked_tests(tmp_path: Path, *marks: str, words: Sequence[str] = (), **environment: str) -> str:
    """Tests with a mark each, in a pytest of their own with our conftest; returns what it says."""
    added = (
        "\nservers.SERVERS['thing'] = servers.Server(('thing-server',), ('no-such-thingd',))"
        "\nservers.SERVERS['shell'] = servers.Server((), ('sh',))\n"
    )
    ours = Path(__file__).parents[2] / "conftest.py"
    environment["PYTHONPATH"] = str(ours.parents[1])  # it uses what lies beside it
    (tmp_path / "conftest.py").write_text(ours.read_text() + added)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        + "".join(
            f"\n@pytest.mark.{mark}\ndef test_{number}() -> None:\n    pass\n"
            for number, mark in enumerate(marks)
        )
    )
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    server(name): needs it\n    soak: long\naddopts = -ra -p no:cacheprovider\n"
    )
    clean = {key: value for key, value in runner.child_environment().items() if key != "CI"}
    words = [sys.executable, "-m", "pytest", "-q", *words, str(tmp_path)]
    ran = subprocess.run(
        words, capture_output=True, text=True, env=clean | environment, cwd=tmp_path, check=False
    )
    return ran.stdout


def test_a_test_without_its_server_is_skipped_loudly_and_failed_in_ci(tmp_path: Path) -> None:
    out = run_marked_tests(tmp_path, "server('thing')", "server('unheard')")
    assert "1 skipped, 1 error" in out
    assert "apt-get install thing-server" in out
    assert "there is no server 'unheard'" in out
    out = run_marked_tests(tmp_path, "server('thing')", "server('shell')", CI="true")
    assert "1 passed, 1 error" in out
    assert "ERROR test_it.py::test_0" in out


def test_a_soak_test_runs_in_soak_alone(tmp_path: Path) -> None:
    marks = ("soak", "server('shell')")
    assert "1 passed, 1 deselected" in run_marked_tests(tmp_path, *marks)
    assert "test_it.py::test_1 PASSED" in run_marked_tests(tmp_path, *marks, words=["-vv"])
    assert "test_it.py::test_0 PASSED" in run_marked_tests(tmp_path, *marks, words=["-vv", "--soak"])


def test_the_table_names_packages_and_programs() -> None:
    assert all(server.packages and server.programs for server in servers.SERVERS.values())

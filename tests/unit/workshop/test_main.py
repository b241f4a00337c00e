"""The command line's entry point: what it prints, what it imports, what it returns."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from qanat import __version__
from qanat.cli import main as cli
from qanat.events.errors import InvariantError, LocalError, RemoteError
from qanat.log.errors import DiskFull

Install = Callable[[Callable[[], int]], None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a command `probe` in place that does what the test says."""

    def install(action: Callable[[], int]) -> None:
        module = types.ModuleType("qanat.cli.commands.probe")
        module.__dict__.update(
            EXAMPLES="examples:\n  qanat probe", add_arguments=lambda _: None, run=lambda _: action()
        )
        monkeypatch.setitem(sys.modules, "qanat.cli.commands.probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", "probe the errors")

    return install


def raising(error: BaseException) -> Callable[[], int]:
    def action() -> int:
        raise error

    return action


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"qanat {__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in cli.COMMANDS)
    assert "examples:" in out


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(cli.COMMANDS))
@pytest.mark.parametrize("words", [("{}", "--help"), ("help", "{}")])
def test_every_command_has_help_with_examples(
    name: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([word.format(name) for word in words]) == 0
    out = capsys.readouterr().out
    assert f"usage: qanat {name}" in out
    assert f"  qanat {name}" in out.split("examples:")[1]


def test_every_command_module_is_listed() -> None:
    folder = Path(cli.__file__).parent / "commands"
    modules = {path.stem.replace("_", "-") for path in folder.glob("*.py")} - {"--init--"}
    assert modules == set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("typed", "meant"), [("tset", "test"), ("simulat", "simulate"), ("strems", "streams")]
)
def test_a_near_miss_is_answered_with_the_near_command(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([typed]) == 2
    err = capsys.readouterr().err
    assert err == f"qanat: there is no command {typed!r}; did you mean `qanat {meant}`?\n"


def test_a_far_miss_is_answered_with_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["xyzzy"]) == 2
    assert "there are demo, up" in capsys.readouterr().err


def test_an_unknown_option_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--frobnicate"]) == 2
    assert "--frobnicate" in capsys.readouterr().err
    assert cli.main(["bench", "--frobnicate"]) == 2
    assert "--frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (LocalError("the filter ends too early"), 2, "the filter ends too early"),
        (RemoteError("no server answers at host:1"), 3, "no server answers at host:1"),
        (DiskFull("cannot write /data/x: free some space"), 3, "cannot write /data/x: free some space"),
        (InvariantError("history has a hole"), 1, "history has a hole (this is a fault in Qanat"),
        (FileNotFoundError(2, "No such file or directory", "x.toml"), 3, "No such file or directory: x.toml"),
        (ConnectionRefusedError(111, "Connection refused"), 3, "Connection refused"),
        (ModuleNotFoundError("No module named 'pyspark'", name="pyspark"), 3, "'pyspark' is not installed"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(
    command: Install, capsys: pytest.CaptureFixture[str], error: Exception, code: int, sentence: str
) -> None:
    command(raising(error))
    assert cli.main(["probe"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("qanat: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


def test_an_error_may_choose_its_code(command: Install) -> None:
    class Missing(LocalError):
        exit_code = 3

    command(raising(Missing("there is no Java")))
    assert cli.main(["probe"]) == 3


def test_a_fault_of_ours_shows_where(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    command(raising(ZeroDivisionError("division by zero")))
    assert cli.main(["probe"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("qanat: unexpected ZeroDivisionError")


def test_a_traceback_can_be_asked_for(
    command: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QANAT_DEBUG", "1")
    command(raising(LocalError("wrong")))
    assert cli.main(["probe"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_is_130_and_silent(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    command(raising(KeyboardInterrupt()))
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("stop", "code"), [(SystemExit(), 0), (SystemExit(4), 4), (SystemExit("no"), 1)])
def test_a_command_may_leave_by_itself(command: Install, stop: SystemExit, code: int) -> None:
    command(raising(stop))
    assert cli.main(["probe"]) == code


def test_a_reader_that_goes_away_is_no_error() -> None:
    """More than a pipe holds, into one whose other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    program = (
        "import sys, qanat.cli.main as m; m._overview = lambda: 'x' * 200_000; sys.exit(m.main(['--help']))"
    )
    ran = subprocess.run([sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_the_start_is_light() -> None:
    """`--version` and `--help` answer at once since nothing heavy is imported for them."""
    program = (
        "import sys, qanat.cli.main as m; m.main(['--version']); m.main(['--help'])\n"
        "heavy = {'numpy', 'pyarrow', 'msgspec', 'rich', 'asyncio', 'uvloop', 'pyspark', 'subprocess'}\n"
        "print(sorted(heavy & set(sys.modules)), [n for n in sys.modules if n.startswith('qanat.events')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[] []"

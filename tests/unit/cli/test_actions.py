"""The actions of commands that have some: what their help shows, and what they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.cli.main import OK, USAGE, main
from qanat.demonstration.engine import MASTER

ACTIONS = {
    "archive": ("run", "ls", "show", "check", "tidy"),
    "pipeline": ("run", "status", "stop", "dead-letters"),
    "publisher": ("run", "limits", "keep"),
}


@pytest.mark.parametrize(
    ("command", "name"), [(one, each) for one, names in ACTIONS.items() for each in names]
)
def test_an_action_shows_its_own_examples(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name, "--help"]) == OK
    shown = capsys.readouterr().out.split("examples:\n")[1].splitlines()
    assert shown
    assert all(line.startswith(f"  qanat {command} {name} ") for line in shown), shown


def test_no_more_is_asked_for_than_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "ls"]) == USAGE
    assert capsys.readouterr().err.endswith("the following arguments are required: path\n")


def test_the_help_says_what_is_so_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["archive", "ls"], "only these streams (default: all)"),
        (["archive", "show"], "only this stream (default: all)"),
        (["replay"], "else all cores of this machine)"),
        (["demo"], f"else {MASTER}, four threads of this machine)"),
    ):
        assert main([*words, "--help"]) == OK
        assert said in " ".join(capsys.readouterr().out.split())


def test_that_there_is_no_archive_is_told_before_what_is_wanted_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compact", str(tmp_path / "nowhere"), "--policy", "orders=same key"]) == USAGE
    assert "there is no archive at" in capsys.readouterr().err
    assert main(["compact", str(tmp_path), "clicks", "--policy", "orders=same key"]) == USAGE
    assert "--policy names 'orders', which is not among the streams clicks" in capsys.readouterr().err

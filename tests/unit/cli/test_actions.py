"""The actions of commands that have some: what their help shows, and what they ask for."""

from __future__ import annotations

import pytest

from qanat.cli.main import OK, USAGE, main

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

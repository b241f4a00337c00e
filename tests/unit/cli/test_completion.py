"""`qanat completion`: what each shell offers, asked of the shell itself."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qanat.cli.commands.completion import SHELLS
from qanat.cli.completion.quoting import of_fish, single
from qanat.cli.completion.words import Values, place_of
from qanat.cli.main import COMMANDS, command_parser, main

# `_describe` and its like work within a real line alone; here they print what they are given.
ZSH = """
typeset -ga words; words=({words}); CURRENT=$#words
compset() {{ }}
compadd() {{ shift; print -l -- $@ }}
_files() {{ print files $@ }}
_message() {{ }}
_describe() {{ local name=${{@[-1]}}; print -l -- ${{${{(P)name}}%%:*}} }}
source {script}
_qanat
"""
BASH = """
source <(cat {script})
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_qanat
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

Offered = Callable[..., set[str]]


@pytest.fixture(scope="module", params=SHELLS)
def offered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Offered:
    """What a shell offers for the last of these words, `qanat` left out."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    script = tmp_path_factory.mktemp("completion") / shell
    words = [sys.executable, "-m", "qanat", "completion", shell]
    script.write_text(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    def ask(*typed: str) -> set[str]:
        quoted = " ".join(shlex.quote(word) for word in ("qanat", *typed))
        match shell:
            case "bash":
                program = BASH.format(script=script, words=quoted)
                said = _said(["bash", "--norc", "-c", program])
            case "zsh":
                said = _said(["zsh", "-f", "-c", ZSH.format(script=script, words=quoted)])
            case _:
                line = " ".join(("qanat", *typed))
                said = _said(["fish", "-N", "-c", f"source {script}; complete -C {of_fish(line)}"])
        found = {line.partition("\t")[0] for line in said.splitlines() if line}
        return {word for word in found if word.startswith(typed[-1])}

    return ask


def _said(words: list[str]) -> str:
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr == ""
    return ran.stdout


def test_commands_are_offered(offered: Offered) -> None:
    assert set(COMMANDS) <= offered("")
    assert offered("stre") == {"stream", "streams"}
    assert offered("--v") == {"--version"}
    assert offered("help", "comp") == {"compact", "completion"}


def test_actions_of_a_command_are_offered_and_then_their_options(offered: Offered) -> None:
    assert offered("stream", "") >= {"create", "info", "set", "rm"}
    assert "--max-age" in offered("stream", "create", "weather", "--ma")
    assert offered("stream", "info", "--max") == set()
    assert offered("coordinator", "") >= {"rebuild", "begin"}


def test_choices_of_an_option_are_offered(offered: Offered) -> None:
    assert offered("serve", "--durability", "") == {"always", "interval", "memory"}
    assert offered("serve", "--data", "x", "--durability", "in") == {"interval"}
    assert offered("completion", "") >= set(SHELLS)


@pytest.mark.parametrize("name", ["serve", "sub", "bench", "simulate"])
def test_all_long_options_of_a_command_are_offered(offered: Offered, name: str) -> None:
    parser, _ = command_parser(name)
    flags = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    assert offered(name, "--") == flags


def test_a_value_that_is_the_name_of_a_command_is_no_command(offered: Offered) -> None:
    assert "--durability" in offered("pub", "stream", "--dur")


def test_bash_knows_a_value_behind_an_equals_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "bash"
    script.write_text(capsys.readouterr().out)
    for words in ("serve --durability =", "serve --durability = ''"):
        said = _said(["bash", "--norc", "-c", BASH.format(script=script, words=f"qanat {words}")])
        assert said.split() == ["always", "interval", "memory"]
    said = _said(["bash", "--norc", "-c", BASH.format(script=script, words="qanat serve --durability = mem")])
    assert said.split() == ["memory"]


def test_a_real_line_of_bash_is_completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files where files are wanted: readline asks for them itself, when nothing is offered."""
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    said = _said(["bash", "--norc", "-c", f"source {tmp_path}/script; complete -p qanat"])
    assert said == "complete -o default -F _qanat qanat\n"


def test_the_words_of_a_parser() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, metavar="FILE", help="in %% of it's\nwhole")
    parser.add_argument("folder", metavar="FOLDER")
    actions = parser.add_subparsers()
    actions.add_parser("go", help="go on").add_argument("--fast", action="store_true")
    place = place_of(parser, ("x",), "about")
    assert place.flags() == ["-h", "--help", "--share"]
    share = place.options[-1]
    assert (share.about, share.takes_value, share.values) == ("in % of it's whole", True, Values.FILES)
    assert place.values is Values.FOLDERS
    assert [(child.slashed, child.about, child.flags()) for child in place.children] == [
        ("/x/go", "go on", ["-h", "--help", "--fast"])
    ]


def test_quotes() -> None:
    assert single("it's") == "'it'\\''s'"
    assert of_fish("it's \\") == "'it\\'s \\\\'"


def test_an_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err

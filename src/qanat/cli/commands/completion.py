"""`qanat completion`: print what makes a shell complete the words of `qanat`."""

from __future__ import annotations

import argparse
from importlib import import_module

from qanat.cli.main import COMMANDS, OK, command_parser

EXAMPLES = """\
examples:
  qanat completion bash > ~/.local/share/bash-completion/completions/qanat
  qanat completion zsh > ~/.zfunc/_qanat           with ~/.zfunc in fpath before compinit
  qanat completion fish > ~/.config/fish/completions/qanat.fish
  source <(qanat completion bash)                   in this shell alone
"""

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="whose script is printed")


def run(args: argparse.Namespace) -> int:
    from qanat.cli.completion.words import Option, Place, place_of

    commands = [place_of(command_parser(name)[0], (name,), about) for name, about in COMMANDS.items()]
    commands.append(Place(("help",), "show options and examples of a command", choices=tuple(COMMANDS)))
    options = [
        Option(("-h", "--help"), "list the commands"),
        Option(("-V", "--version"), "say which version"),
    ]
    module = import_module(f"qanat.cli.completion.{args.shell}")
    print(module.script(Place((), "", options, commands)), end="")
    return OK

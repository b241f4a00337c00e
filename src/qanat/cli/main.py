"""The entry point of the command line: find the command, run it, turn whatever happens into an exit code.

Exit codes: 0 done · 1 the work found something wrong · 2 wrong usage · 3 a server, or a part of this machine,
that is needed is not there · 130 interrupted · 141 the reader of our output went away (as for any program).

Nothing heavy is imported here: `qanat --version` and `qanat --help` must answer at once, so each command's
module is imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from qanat import __version__

if TYPE_CHECKING:
    from qanat.events.errors import QanatError

OK, FOUND_WRONG, USAGE, UNAVAILABLE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141

COMMANDS: dict[str, str] = {
    "demo": "watch events flow from a database through Spark to three regions while things break",
    "up": "start a deployment: regions, replicas, streams",
    "down": "stop a deployment",
    "apply": "change a running deployment to what its file says",
    "link": "cut or heal the link between two regions, for drills",
    "kill": "kill a node of a deployment, for drills",
    "start": "start a node of a deployment that was killed",
    "replica": "make a region's chain of replicas longer or shorter",
    "coordinator": ("show what replicas know of their chain; rebuild what a coordinator has lost"),
    "serve": "run a stream server",
    "node": "run one process of a region: a replica of its proxy, its coordinator",
    "publisher": "run a publisher of a datastore's log, and change its limits",
    "applications": "list, add, change and remove a publisher's applications while it runs",
    "flows": "show the flows of a publisher: shard by shard, who has it and how far it is",
    "caravans": "show the readers of a publisher's log, and why they are as they are",
    "monitor": "watch publishers: lag, rates, owners, caravans, losses",
    "move": "move flows to another subscriber, another caravan or another position",
    "pub": "publish lines from standard input to a stream",
    "sub": "print the events of a stream",
    "changes": "print what is committed to a datastore, or feed it into a stream",
    "archive": "keep streams as Parquet files, and see what is kept",
    "compact": "collect the garbage of archived streams",
    "replay": "publish archived events again, into another stream",
    "pipeline": "run datastores' logs into streams and an archive, on Spark",
    "audit": "prove from records that every subscriber got every event once, in order",
    "stream": "create, describe, change and remove streams",
    "streams": "list a server's streams",
    "status": "show how a deployment or a server is doing",
    "simulate": "run a scenario on the deterministic simulator",
    "study": "repeat an experiment of a paper and judge its claims",
    "bench": "measure, beside something to compare with",
    "completion": "print what makes bash, zsh or fish complete the words of qanat",
    "test": "check everything: lint, types, tests",
}

EXAMPLES = """\
examples:
  qanat demo                       see it run for a few seconds
  qanat up                         start three regions on this machine
  qanat status                     how they are doing
  qanat down                       stop them
  qanat serve &                    start a single server
  echo hello | qanat pub greetings
  qanat sub greetings --from earliest --count 1
  qanat COMMAND --help             options and examples of one command
"""


class Command(Protocol):
    """What a module in `qanat.cli.commands` provides.

    With `FORWARDS = True` in it, words it does not know are kept in `args.extra` instead of being refused.
    """

    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; never raises, whatever the command does."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # here, so that a reader who went away is noticed inside the `try`
    except SystemExit as stop:  # argparse's way out: 0 after --help, 2 after a wrong option
        code = stop.code if isinstance(stop.code, int) else OK if stop.code is None else FOUND_WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more on its way out: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        return _report(error)
    return code


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1 and words[0] == "help":
            return _dispatch([words[1], "--help"])
        print(_overview())
        return OK if words else USAGE
    if words[0] in ("-V", "--version"):
        print(f"qanat {__version__}")
        return OK
    name = words[0]
    if name not in COMMANDS:
        print(f"qanat: {_unknown(name)}", file=sys.stderr)
        return USAGE
    parser, command = command_parser(name, words)
    if getattr(command, "FORWARDS", False):
        args, extra = parser.parse_known_args(words[1:])
        args.extra = extra
    else:
        args = parser.parse_args(words[1:])
    return command.run(args)


def command_parser(name: str, words: Sequence[str] = ()) -> tuple[argparse.ArgumentParser, Command]:
    """A command and what reads its words; only now its module is imported."""
    command = cast(Command, importlib.import_module(f"qanat.cli.commands.{name.replace('-', '_')}"))
    parser = _parser(words)(
        prog=f"qanat {name}",
        description=f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.",
        epilog=command.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser, command


def _parser(words: Sequence[str]) -> type[argparse.ArgumentParser]:
    """Of parsers that quote no password of a URL among these words."""
    from qanat.events.passwords import words_without_password

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            super().error(words_without_password(message, words))

    return Parser


def _overview() -> str:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return f"usage: qanat [--version] [--help] COMMAND ...\n\ncommands:\n{listing}\n\n{EXAMPLES}".rstrip()


def _unknown(name: str) -> str:
    import difflib

    if name.startswith("-"):
        return f"unknown option {name!r}; `qanat --help` shows what there is"
    near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean `qanat {near[0]}`?" if near else f"there are {', '.join(COMMANDS)}"
    return f"there is no command {name!r}; {hint}"


def _report(error: Exception) -> int:
    """Print one sentence, and a traceback too for what is our own fault; return the exit code."""
    from qanat.events.errors import InvariantError, QanatError
    from qanat.events.ranges import printable
    from qanat.runtime.named_errors import sentence as system_sentence

    if os.environ.get("QANAT_DEBUG"):
        traceback.print_exception(error)
    match error:
        case InvariantError():
            sentence, code = f"{error} (this is a fault in Qanat; please report it)", FOUND_WRONG
        case QanatError():
            sentence, code = str(error), _exit_code(error)
        case ModuleNotFoundError() if not (error.name or "").startswith("qanat"):
            sentence = f"the Python package {error.name!r} is not installed; install Qanat with its extras"
            code = UNAVAILABLE
        case OSError():
            sentence, code = system_sentence(error), UNAVAILABLE
        case _:
            traceback.print_exception(error)
            sentence = f"unexpected {type(error).__name__} (this is a fault in Qanat; please report it)"
            code = FOUND_WRONG
    print(f"qanat: {printable(sentence, keep=chr(10))}", file=sys.stderr)
    return code


def _exit_code(error: QanatError) -> int:
    """An error may name its own `exit_code`; else a peer's failing means that we have no server, and a local
    one that we were asked for something that cannot be."""
    from qanat.events.errors import RemoteError

    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    return UNAVAILABLE if isinstance(error, RemoteError) else USAGE

"""Programs of others that a benchmark starts: they end with it, however it ends."""

import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from qanat.events.errors import LocalError

_TOLD = 400
"""Characters of what a program said last."""


class NotThere(LocalError):
    """A program of others that cannot be installed or started here; its figures are left out."""

    exit_code = 3


def _words(command: Sequence[str]) -> list[str]:
    """The kernel kills it when we are killed, where there is a program that asks for this."""
    guard = shutil.which("setpriv")
    return [*([guard, "--pdeathsig", "KILL", "--"] if guard else []), *command]


def free_port() -> int:
    """A port of this machine that nobody has now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def program(command: Sequence[str], log: Path, *, piped: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Runs while the context lasts, in a group of its own: of a Ctrl-C it hears through us alone. What it
    says goes to `log`;
    `piped`: we talk with it by its standard input and output."""
    pipe = subprocess.PIPE if piped else None
    with log.open("ab") as said:
        process = subprocess.Popen(
            _words(command),
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or said,
            stderr=said,
            text=True,
            bufsize=1,
            cwd=log.parent,
            process_group=0,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for end in (process.stdin, process.stdout):
            if end is not None:
                with suppress(OSError):  # an order that it never read
                    end.close()


def last_words(log: Path) -> str:
    """The end of what a program said, on one line."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return " ".join(text.split())[-_TOLD:] or "it said nothing"

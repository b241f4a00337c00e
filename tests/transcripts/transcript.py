"""Transcripts: an interleaving goes in, and what the machines say to it comes out, in a file that is read as
a diff.

A file has blocks. Each begins with commands, a line each; then `----`, and what happened. Lines that begin
with `#` say why. `--update-transcripts` writes anew what happens now; whoever changes a protocol reads the
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from qanat.events.batch import Batch
from qanat.protocols.chain.configuration import Member

BAR = "----"


class Room(Protocol):
    """Machines, and what connects them."""

    def do(self, words: list[str]) -> None:
        """One command."""

    def said(self) -> list[str]:
        """What the machines did since it was asked last, a line each."""


def played(text: str, room: Room) -> str:
    """The same file, with what happens now."""
    out: list[str] = []
    for heading, commands in blocks(text):
        for command in commands:
            room.do(command.split())
        out += [*heading, *commands, BAR, *(room.said() or ["nothing"]), ""]
    return "\n".join(out)


def blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The reasons and the commands of each block."""
    heading: list[str] = []
    commands: list[str] = []
    answers = False
    for line in text.splitlines():
        if line == BAR:
            yield heading, commands
            heading, commands, answers = [], [], True
        elif answers:
            answers = bool(line.strip())
        elif line.startswith("#") or not line.strip():
            heading.append(line)
        else:
            commands.append(line)


def check(path: Path, room: Callable[[], Room], *, update: bool) -> None:
    text = path.read_text(encoding="utf-8")
    now = played(text, room())
    if update:
        path.write_text(now, encoding="utf-8")
        return
    assert now == text, f"{path.name} differs: run with --update-transcripts and read the difference"


def shown(value: Any) -> str:
    """A message or an item in one line: what is empty is left out."""
    if isinstance(value, Batch):
        return f"{value.first}..{value.last}" if value.first else f"{value.count} rows"
    if isinstance(value, Member):
        return f"{value.address}@{value.incarnation}"
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        named = (f"{name}={shown(each)}" for name, each in fields if each not in ("", (), None, False))
        return f"{type(value).__name__}({' '.join(named)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)

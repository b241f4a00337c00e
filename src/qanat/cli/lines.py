"""Lines of standard input, many at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from qanat.events.errors import LocalError

_READ_BYTES = 1 << 20
_LINE_BYTES = 8 << 20


def pieces(descriptor: int) -> Iterator[list[bytes]]:
    """All whole lines that one read gave; never waits for more before it hands out what is there."""
    rest = b""
    while data := os.read(descriptor, _READ_BYTES):
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if len(rest) > _LINE_BYTES:
            raise LocalError(
                "a line is longer than 8 MiB; events of that size are published with the client library"
            )
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if rest:
        yield [rest.removesuffix(b"\r")]


def first(source: Iterator[list[bytes]], limit: int) -> Iterator[list[bytes]]:
    """At most `limit` lines of the pieces."""
    for piece in source:
        yield piece[:limit]
        limit -= len(piece)
        if limit <= 0:
            return


def nobody_writes(descriptor: int) -> bool:
    """Whether this is a terminal or /dev/null: no program or file has lines for us there."""
    return stat.S_ISCHR(os.fstat(descriptor).st_mode)

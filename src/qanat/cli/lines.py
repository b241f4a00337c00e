"""Lines of standard input, many at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from qanat.events.errors import LocalError

_READ_BYTES = 1 << 20
_LINE_BYTES = 8 << 20


def pieces(descriptor: int) -> Iterator[list[bytes]]:
    """Yields the whole lines of each read at once, without waiting for more."""
    rest = b""
    while data := os.read(descriptor, _READ_BYTES):
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if len(rest) > _LINE_BYTES:
            raise LocalError("a line is longer than 8 MiB; publish such events with the client library")
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
    """Whether this is a terminal or /dev/null, so that no program or file sends lines."""
    return stat.S_ISCHR(os.fstat(descriptor).st_mode)

"""Descriptors of this process: files come before sockets.

A stream that cannot open its next segment stops; a connection that is refused comes again. So some
descriptors are kept from sockets. The kernel gives the lowest number that is free: a socket with a number in
the reserve is one too many, whatever has the others, and no count has to be kept.
"""

import os
import resource
from contextlib import suppress

_UNLIMITED = 1 << 20
_RESERVE_MIN, _RESERVE_MAX = 32, 1024
"""A replica's journals, segments, manifests and what is mapped for a moment take some tens; each stream has a
file open."""


def limit() -> int:
    """How many files and sockets may be open; asked anew each time, since an operator may change it
    (`prlimit`)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def reserve() -> int:
    """A quarter of them are for files alone, within bounds."""
    return min(max(_RESERVE_MIN, limit() // 4), _RESERVE_MAX)


def for_socket(number: int) -> bool:
    """Whether a peer's connection may have it."""
    return number < limit() - reserve()


def for_stream(number: int) -> bool:
    """Whether a new stream, or an operator's connection, may have it: the other half of the reserve is for
    what is there already."""
    return number < limit() - reserve() // 2


def lowest_free() -> int:
    """The number that the next file would get; the limit if it would get none."""
    try:
        number = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return limit()
    os.close(number)
    return number


def shortage() -> str | None:
    """What to tell people while connections are refused for want of descriptors."""
    number = lowest_free()
    if for_socket(number):
        return None
    return (
        f"new connections are refused: {number} of {limit()} descriptors are in use, and the other"
        f" {limit() - number} are kept for files; raise the limit of open files (ulimit -n), or lower"
        " transport.max_connections"
    )


def raise_limit() -> None:
    """As far as the process may by itself: the usual soft limit of 1,024 is there for programs that use
    `select`, which we do not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

"""Ports that a deployment's nodes keep for good: their addresses outlive every restart."""

import random
import socket
from collections.abc import Iterable

from qanat.events.errors import LocalError
from qanat.operate.layout import HOST

_SPAN = (15_000, 32_000)
"""Where to begin when it does not matter: below the ports that systems lend to outgoing connections, one of
which could otherwise sit on a node's port while the node is down."""


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def assign(
    known: dict[str, int], wanted: Iterable[str], first: int, *, keep: Iterable[str] = ()
) -> tuple[dict[str, int], list[str]]:
    """A port for each wanted name, and the names whose old port was taken by a stranger, so that they got
    another.

    `keep` names nodes that run now: their port is in use, by themselves.
    """
    ports, moved = dict(known), []
    running = set(keep)
    for name in wanted:
        port = ports.get(name)
        if port is not None and (name in running or is_free(port)):
            continue
        if port is not None:
            moved.append(name)
        ports[name] = _next_free(first, set(ports.values()))
    return ports, moved


def _next_free(first: int, taken: set[int]) -> int:
    start = first or random.SystemRandom().randrange(*_SPAN)
    for port in range(start, 65_536):
        if port not in taken and is_free(port):
            return port
    raise LocalError(f"there is no free port from {start} on; set first_port to a lower one")

"""`qanat bench NAME --beside PEER`: installs a peer's programs, and names what it cannot install."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qanat.runtime.workshop import workshop

if TYPE_CHECKING:
    from qanat_workshop.servers import Server

NAMES = ("kafka", "redis")
_TERMINATED = 128 + signal.SIGTERM


def add_beside(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beside",
        action="append",
        choices=NAMES,
        default=[],
        help=(
            "for broadcast: measure a real Kafka or Redis in the same rounds, in turns with Qanat;"
            " you may give it twice. It implies --tcp. As root on Debian it installs redis-server"
            " and maven by apt-get, and Maven fetches Kafka's jars once. A peer that cannot be"
            " installed is named and left out"
        ),
    )


def ready(names: Sequence[str], say: Callable[[str], None]) -> dict[str, str | None]:
    """For each name None, or why it cannot be measured. Starts each peer once, so that no round fails after
    minutes."""
    workshop("servers", "other systems are measured")
    found: dict[str, str | None] = {}
    for name in dict.fromkeys(names):
        found[name] = why = _why_not(name, say)
        say(_description(name) if why is None else f"without {name}: {why}")
    return found


def _description(name: str) -> str:
    from qanat.bench.beside import PEERS

    return f"beside {name}: {PEERS[name].what}"


def _why_not(name: str, say: Callable[[str], None]) -> str | None:
    from qanat.bench.beside import PEERS
    from qanat.bench.programs import NotThere

    servers = workshop("servers", "other systems are measured")
    for program, server in _needed(name).items():
        if servers.install(say, {program: server}):
            return str(servers.why_missing(program, {program: server}))
    try:
        with PEERS[name].running():
            return None
    except NotThere as error:
        return str(error)


def _needed(name: str) -> dict[str, Server]:
    """Programs of the Debian archive; for Kafka, Maven, which fetches its jars and brings a Java."""
    from qanat.bench import kafka_jars

    servers = workshop("servers", "other systems are measured")
    if name == "redis":
        return {name: servers.SERVERS[name]}
    return {} if kafka_jars.folder().is_dir() else {"maven": servers.Server(("maven",), ("mvn",))}


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Handles SIGTERM as Ctrl-C: stops the servers and removes their folders."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

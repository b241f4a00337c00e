"""`qanat bench NAME --beside PEER`: what a peer needs is installed, what cannot be had is said in a
sentence."""

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
            "of broadcast: measure a real Kafka or Redis in the same rounds, in turns with ours (may be given"
            " twice). All is measured over TCP then, as with --tcp. Root on a Debian gets redis-server and"
            " maven by apt-get; Kafka's jars are fetched once by Maven. What cannot be had is said, and its"
            " figures are left out"
        ),
    )


def ready(names: Sequence[str], say: Callable[[str], None]) -> dict[str, str | None]:
    """By name None, if it can be measured, else why not. Each is started once: the rounds shall not find out
    after minutes."""
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
    """Programs of the Debian archive. Of Kafka what fetches its jars, which brings a Java along."""
    from qanat.bench import kafka_jars

    servers = workshop("servers", "other systems are measured")
    if name == "redis":
        return {name: servers.SERVERS[name]}
    return {} if kafka_jars.folder().is_dir() else {"maven": servers.Server(("maven",), ("mvn",))}


@contextmanager
def ending_in_order() -> Iterator[None]:
    """A SIGTERM ends as Ctrl-C does: servers are stopped, and their folders removed."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""The server programs that integration tests start for real, and how to get the missing ones.

A test says `@pytest.mark.server("name")`; the name is a key of `SERVERS`. Where the program is missing its
tests are skipped with a reason, and failed where `CI=true`, since there nobody reads a skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Server:
    """A server of the Debian archive: `programs` are all needed, on PATH or by absolute path."""

    packages: tuple[str, ...]
    programs: tuple[str, ...]

    def is_here(self) -> bool:
        return all(shutil.which(program) is not None for program in self.programs)


SERVERS: dict[str, Server] = {
    "mariadb": Server(("mariadb-server",), ("mariadbd", "mariadb-install-db")),
    "memcached": Server(("memcached",), ("memcached",)),
    "postgres": Server(
        ("postgresql-15",), ("/usr/lib/postgresql/15/bin/postgres", "/usr/lib/postgresql/15/bin/initdb")
    ),
    "redis": Server(("redis-server",), ("redis-server",)),
    "strace": Server(("strace",), ("strace",)),  # no server, but started for real as well
    "faketime": Server(("faketime",), ("faketime",)),  # no server either: it sets the clock of one process
    # Hadoop's own programs are in jars, which its tests fetch once.
    "hdfs": Server(("default-jre-headless",), ("java",)),
}


def missing(servers: Mapping[str, Server] = SERVERS) -> list[str]:
    return [name for name, server in servers.items() if not server.is_here()]


def why_missing(name: str, servers: Mapping[str, Server] = SERVERS) -> str | None:
    """None when the server can be used, else a sentence for the test's report."""
    if servers[name].is_here():
        return None
    return f"the server {name!r} is not installed: apt-get install {' '.join(servers[name].packages)}"


def install_missing(
    say: Callable[[str], None],
    servers: Mapping[str, Server] = SERVERS,
    is_root: Callable[[], bool] = lambda: os.geteuid() == 0,
) -> list[str]:
    """For tests: install what is missing, and say what will become of those whose server is missing still;
    return its names."""
    absent = install(say, servers, is_root)
    for name in absent:
        say(f"{why_missing(name, servers)}; its tests will {'fail' if in_ci() else 'be skipped'}")
    return absent


def install(
    say: Callable[[str], None],
    servers: Mapping[str, Server],
    is_root: Callable[[], bool] = lambda: os.geteuid() == 0,
) -> list[str]:
    """Install what is missing, if this is root on a Debian; return the names still missing."""
    absent = missing(servers)
    if absent and is_root() and shutil.which("apt-get") is not None:
        packages = [package for name in absent for package in servers[name].packages]
        say(f"installing {' '.join(packages)}")
        if not _apt_get(["install", *packages]):  # the package lists may be old, or not there at all
            _apt_get(["update"])
            _apt_get(["install", *packages])
        absent = missing(servers)
    return absent


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def _apt_get(words: Iterable[str]) -> bool:
    # RUNLEVEL=1 keeps Debian's scripts from starting the installed service: tests start their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "-y", "-q", "--no-install-recommends", *words]
    # What it says is progress: the last line of standard output may be JSON.
    return subprocess.run(command, env=environment, check=False, stdout=2).returncode == 0

"""A real memcached for tests."""

from __future__ import annotations

import getpass
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.mariadb import free_port
from tests.waiting import wait_until


class MemcachedServer:
    def __init__(self) -> None:
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        command = ["memcached", "-u", getpass.getuser(), "-l", "127.0.0.1", "-p", str(self._port), "-m", "16"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 5).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def again(self) -> None:
        """Killed, and started anew: it has forgotten everything."""
        self.kill()
        self.start()


@contextmanager
def memcached_server() -> Iterator[MemcachedServer]:
    server = MemcachedServer()
    try:
        server.start()
        yield server
    finally:
        server.kill()

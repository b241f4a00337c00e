"""A cache that is never wrong: memcached in each region, kept coherent with MariaDB by its publisher. See
docs/cache.md.

.venv/bin/python examples/coherent_cache.py qanat://127.0.0.1:7421 127.0.0.1:11211
"""

import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from qanat.applications import Callbacks, DataLoss, Update, run
from qanat.capture.updates import Op
from qanat.events.errors import LocalError


class Coherent(Callbacks):
    """The subscriber: whatever changes is forgotten."""

    def __init__(self, cache: "Memcached") -> None:
        self.cache = cache

    def on_update(self, update: Update) -> None:
        if update.op is Op.TRUNCATE:
            self.cache.forget_all()
        for row in (update.before, update.after):  # both, for its key may have changed
            if row is not None:
                self.cache.forget(f"{update.table.path}:{_id(update.table.path, row)}")

    def on_data_loss(self, loss: DataLoss) -> None:
        self.cache.forget_all()


def _id(table: str, row: Mapping[str, object]) -> object:
    if "id" not in row:
        raise LocalError(
            f"{table} has no column id, by which rows are cached: give the application a where on tables that"
            " have one"
        )
    return row["id"]


class Lease(NamedTuple):
    """The right to fill a key, until somebody forgets it; good for one connection, since a memcached that is
    started again counts anew."""

    key: str
    number: str
    connection: object


class Memcached:
    """A connection to one memcached, made again when it breaks; for one thread. Keys lie in a generation: to
    change that is to forget all."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._socket: socket.socket | None = None
        self._input = b""
        self._generation = "none"

    def read(self, key: str, load: Callable[[], bytes | None]) -> bytes | None:
        """What is cached, or else what `load` gives. That is cached only if nobody forgot the key since
        before it was loaded."""
        value, lease = None, None
        with suppress(OSError):  # who cannot reach the cache asks the database
            value, lease = self.get(key)
        if value is None:
            value = load()
            if value is not None and lease is not None:
                with suppress(OSError):
                    self.fill(lease, value)
        return value

    def get(self, key: str) -> tuple[bytes | None, Lease | None]:
        """The value; if there is none, a lease, unless another has it."""
        while True:
            name = f"{self._generation}:{key}"
            (_, now), (flags, value) = self._ask(
                b"mg generation v\r\n", f"mg {name} v c N30\r\n".encode()
            )  # in this order, at once
            if now.decode() == self._generation:
                break
            if not now:
                fresh = secrets.token_hex(8)
                self._ask(f"ms generation {len(fresh)} ME\r\n{fresh}\r\n".encode())
            self._generation = now.decode() or "none"
        if "W" in flags:
            number = next(flag[1:] for flag in flags if flag.startswith("c"))
            return None, Lease(name, number, self._socket)
        return (None if "Z" in flags else value), None

    def fill(self, lease: Lease, value: bytes) -> bool:
        if lease.connection is not self._socket:
            return False
        ((answer, _),) = self._ask(
            f"ms {lease.key} {len(value)} C{lease.number} T0\r\n".encode() + value + b"\r\n"
        )
        return answer[0] == "HD"

    def forget(self, key: str) -> None:
        """Returns when it is forgotten, however long the cache cannot be reached."""
        self._surely(lambda: self._forget(key))

    def forget_all(self) -> None:
        """memcached's own flush_all leaves what was read in the same second."""
        fresh = secrets.token_hex(8)
        self._surely(lambda: self._ask(f"ms generation {len(fresh)}\r\n{fresh}\r\n".encode()))

    def _forget(self, key: str) -> None:
        while True:
            (_, now), _ = self._ask(b"mg generation v\r\n", f"md {self._generation}:{key}\r\n".encode())
            if now.decode() in ("", self._generation):  # without a generation nothing is cached
                return
            self._generation = now.decode()

    def _surely(self, work: Callable[[], object]) -> None:
        while True:
            try:
                work()
                return
            except OSError:
                time.sleep(0.05)

    def _ask(self, *requests: bytes) -> list[tuple[list[str], bytes]]:
        """For each, the words of its answer, and the value if there is one."""
        try:
            if self._socket is None:
                self._socket, self._input = socket.create_connection(self._address, 2), b""
            self._socket.sendall(b"".join(requests))
            return [self._answer() for _ in requests]
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _answer(self) -> tuple[list[str], bytes]:
        words = self._take(self._upto(b"\r\n")).decode().split()
        if not words or words[0] in ("ERROR", "CLIENT_ERROR", "SERVER_ERROR"):
            raise OSError(f"memcached says {' '.join(words)}")
        if words[0] != "VA":
            return words, b""
        size = int(words[1])
        while len(self._input) < size + 2:
            self._receive()
        return words, self._take(size + 2)

    def _upto(self, end: bytes) -> int:
        while end not in self._input:
            self._receive()
        return self._input.index(end) + len(end)

    def _take(self, size: int) -> bytes:
        found, self._input = self._input[: size - 2], self._input[size:]
        return found

    def _receive(self) -> None:
        assert self._socket is not None
        chunk = self._socket.recv(1 << 16)
        if not chunk:
            raise OSError("memcached ended the connection")
        self._input += chunk


if __name__ == "__main__":
    publisher, memcached = sys.argv[1:]
    run(Coherent(Memcached(memcached)), application="cache", publishers=publisher)

"""Threads and sockets as kazoo is to use them: everything it tells is told to the loop, and its connections
are encrypted if they are to be."""

import random
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import kazoo.protocol.connection
import kazoo.retry
from kazoo.handlers.threading import SequentialThreadingHandler

# Its thread draws its pauses from the generator that all of a program shares, and then what the program draws
# is not the same twice, whatever its seed.
kazoo.protocol.connection.random = kazoo.retry.random = random.Random()

Post: TypeAlias = Callable[[Callable[[], None]], object]
"""Has something called by the loop, from whatever thread."""


class _LoopQueue:
    def __init__(self, post: Post) -> None:
        self._post = post

    def put(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._post(work)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Everything is called by the loop; there are no threads but the connection's."""

    def __init__(self, post: Post, connect_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _LoopQueue(post)
        self._running, self._connect_s, self._tls = True, connect_s, tls

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """And goes on, for what is still to be told."""

    def create_connection(
        self, address: Any, hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> Any:
        """A server that does not answer must not cost the session that another could carry on. kazoo's own
        TLS reads all files again for each connection, and does not ask for the server's name."""
        within_s = min(timeout or self._connect_s, self._connect_s)
        until = time.monotonic() + within_s
        plain = super().create_connection(address, timeout=within_s)
        if self._tls is None:
            return plain
        plain.settimeout(max(0.05, until - time.monotonic()))
        try:
            return self._tls.wrap_socket(plain, server_hostname=hostname)
        except ConnectionError as error:
            raise ssl.SSLEOFError(error.errno, error.strerror) from error

    def select(self, reads: Any, writes: Any, errors: Any, timeout: float | None = None) -> Any:
        """What is decrypted and not yet read is seen by no system call."""
        decrypted = [each for each in reads if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not decrypted:
            return super().select(reads, writes, errors, timeout)
        found, *others = super().select(reads, writes, errors, 0)
        return [*decrypted, *(each for each in found if each not in decrypted)], *others

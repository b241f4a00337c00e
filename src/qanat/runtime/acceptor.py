"""Taking connections from a listening socket, as many as there are descriptors for beside files.

An event loop's own server takes whatever waits before anybody is asked, up to the last descriptor; and where
the kernel then has none for it, uvloop closes the listening socket for good.
"""

import asyncio
import errno
import logging
import socket
import ssl as ssl_module
import time
from collections.abc import Callable

from qanat.runtime import descriptors

log = logging.getLogger("qanat.transport")

_AT_ONCE = 64
"""Taken before others have their turn."""
_PAUSE_S = 0.1
"""Before it is tried again where the kernel has no descriptor or no memory."""
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_OVER_S = 5.0
"""Nothing was turned away for so long, and something taken: the shortage is over."""


async def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host, on one port; port 0 is any free one. Raises
    `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port, *address[2:]))
            port = sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


class Acceptor:
    """One listening socket. `make` gives the protocol of a connection; `full` says whether one more is too
    many."""

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        backlog: int,
        full: Callable[[], bool] = lambda: False,
        may_have: Callable[[int], bool] = descriptors.for_socket,
        refused: Callable[[], None] = lambda: None,
        ssl: ssl_module.SSLContext | None = None,
        ssl_timeout_s: float | None = None,
    ) -> None:
        """`may_have` says whether a connection may have a descriptor of that number; `refused` is told of
        each that was turned away."""
        self._sock, self._make = sock, make
        self._full, self._may_have, self._refused = full, may_have, refused
        self._ssl, self._ssl_timeout_s = ssl, ssl_timeout_s
        self._loop = asyncio.get_running_loop()
        self._taking: dict[asyncio.Task[None], socket.socket] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._short_s: float | None = None
        """When a connection was last turned away for want of descriptors, while that lasts."""
        sock.setblocking(False)
        sock.listen(backlog)
        self._loop.add_reader(sock.fileno(), self._ready)

    def close(self) -> None:
        """Takes no more; connections that are there stay. One that is just being made still comes, and its
        protocol closes it: uvloop never tells the protocol of a connection whose making was cancelled that it
        has ended."""
        if self._sock.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def _ready(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                taken, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SHORT:
                    self._turned_away(f"the system says: {error.strerror}")
                    self._wait()
                    return
                continue  # it broke off while it waited
            if not self._may_have(taken.fileno()):
                taken.close()
                self._turned_away(descriptors.shortage() or "")
            elif self._full():
                taken.close()
                self._refused()
            else:
                self._take(taken)

    def _take(self, taken: socket.socket) -> None:
        if self._short_s is not None and time.monotonic() - self._short_s > _OVER_S:
            self._short_s = None
            log.info("there are descriptors for connections again")
        taken.setblocking(False)
        task = self._loop.create_task(self._connect(taken))
        self._taking[task] = taken
        task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[None]) -> None:
        """A task that the end of the loop cancelled before it began closes nothing itself."""
        taken = self._taking.pop(task)
        if task.cancelled():
            taken.close()

    async def _connect(self, taken: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, taken, ssl=self._ssl, ssl_handshake_timeout=self._ssl_timeout_s
            )
        except (OSError, ssl_module.SSLError) as error:
            taken.close()
            log.debug("a connection broke before it was one", extra={"reason": str(error)})

    def _turned_away(self, why: str) -> None:
        self._refused()
        if self._short_s is None:
            log.error("connections are refused", extra={"reason": why})
        self._short_s = time.monotonic()

    def _wait(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._pause = self._loop.call_later(_PAUSE_S, self._again)

    def _again(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock.fileno(), self._ready)

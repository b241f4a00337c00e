"""Accepting connections."""

import asyncio
import secrets
import socket
import ssl as ssl_module
import sys
from collections.abc import Mapping
from contextlib import suppress

from qanat.events.errors import LocalError, code_of
from qanat.runtime import descriptors
from qanat.runtime.acceptor import Acceptor, bound
from qanat.runtime.budget import OutOfMemory
from qanat.runtime.connection import Connection
from qanat.runtime.handshake import Accepting, Admit
from qanat.runtime.peers import Peers
from qanat.runtime.service import Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import LOOPBACK, Url, format_address
from qanat.wire.control import Identity, Refused

_BACKLOG = 4096  # thousands of clients come back together after a restart
_TOLD = 64
"""Connections above the limit that are told so at a time; more are closed without a word."""
_SILENT_MIN = 16
"""So many may be silent however few there may be in all."""


class CannotListen(LocalError):
    """The address is taken, or not one of this machine's."""


class Listener:
    """A listening socket with its connections. Made by `listen`."""

    def __init__(
        self,
        identity: Identity,
        services: Mapping[int, Service],
        settings: TransportSettings,
        traffic: Traffic,
        *,
        admit: Admit | None,
        peers: Peers | None,
        capabilities: tuple[str, ...],
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.connections: set[Connection] = set()
        self.url = Url("", 0)
        self._services = services
        self._traffic = traffic
        self._admit = admit
        self._peers = peers
        # Not before the socket (and TLS, where it is used) is up: what fails earlier is never heard of again.
        self._handshake = Accepting(identity, self._admit_one, capabilities, self._begun)
        self._silent: dict[Connection, None] = {}
        """Connections that have not said who they are, oldest first."""
        self._acceptors: list[Acceptor] = []
        self._empty = asyncio.Event()
        self._closed = False

    @property
    def port(self) -> int:
        """The port it listens on: the one given, or the one the kernel chose for 0."""
        return self.url.port

    def reload(self, settings: TransportSettings) -> None:
        """Takes new settings over, for the connections that are up as well; limits of buffers stay theirs."""
        self.settings = settings
        for connection in self.connections:
            connection.settings = settings

    async def start(self, host: str, port: int, ssl: ssl_module.SSLContext | None) -> None:
        try:
            sockets = await bound(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotListen(
                f"cannot listen on {format_address(host, port)}: {reason}; is another process there?"
            ) from None
        self.url = Url(host, sockets[0].getsockname()[1])
        for sock in sockets:
            self._accept(sock, ssl)
        if self.settings.short_ways and ssl is None and sys.platform == "linux":
            self._open_short_way()

    def _accept(self, sock: socket.socket, ssl: ssl_module.SSLContext | None = None) -> None:
        acceptor = Acceptor(
            sock,
            self._make,
            backlog=_BACKLOG,
            full=self._full,
            refused=self._refused,
            ssl=ssl,
            ssl_timeout_s=self.settings.handshake_ms / 1000 if ssl else None,
        )
        self._acceptors.append(acceptor)

    def _open_short_way(self) -> None:
        """A Unix socket of a name that cannot be guessed, told to those who dial our very address at the
        loopback."""
        name = f"qanat-{self.port}-{secrets.token_hex(16)}"
        with suppress(OSError):  # then everyone comes by TCP
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(f"\0{name}")
            self._accept(sock)
            self._handshake.short_way = (format_address(LOOPBACK, self.port), name)

    async def close(self, code: str = "shutdown", detail: str = "", deadline_s: float | None = None) -> None:
        """Stops accepting, says goodbye to everyone, and waits until what was queued for them is sent.

        Connections that have not ended at the deadline (by default `close_ms` and a little) are cut off.
        """
        self._closed = True
        for acceptor in self._acceptors:
            acceptor.close()
        for connection in list(self.connections):
            connection.close(code, detail)
        if deadline_s is None:
            deadline_s = self.settings.close_ms / 1000 + 0.5
        self._empty.clear()
        if self.connections:
            try:
                async with asyncio.timeout(
                    deadline_s
                ):  # `wait_for` of Python 3.11 may swallow a cancellation
                    await self._empty.wait()
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort(code, detail)

    def _make(self) -> Connection:
        return Connection(
            self._handshake, self._services, self.settings, self._traffic, dialled=False, on_end=self._ended
        )

    def _full(self) -> bool:
        """Some above the limit are let in, to be told."""
        return len(self.connections) >= self.settings.max_connections + _TOLD

    def _refused(self) -> None:
        self._traffic.closes.labels("full").value += 1

    def _begun(self, connection: Connection) -> None:
        """Who says nothing keeps out nobody: where many are silent, the one that was so for longest goes."""
        self.connections.add(connection)
        if self._closed:  # it was being made when the others were told
            connection.abort("shutdown", "this node stops")
            return
        self._silent[connection] = None
        if len(self._silent) > max(_SILENT_MIN, self._room() // 4):
            next(iter(self._silent)).abort("handshake_timeout", "it said nothing while many others came")

    def _room(self) -> int:
        return min(self.settings.max_connections, descriptors.limit() - descriptors.reserve())

    def _admit_one(self, connection: Connection, peer: Identity) -> None:
        self._silent.pop(connection, None)
        if self._closed:  # it was on its way when the others were told
            raise Refused("shutdown", "this node stops")
        if len(self.connections) > self.settings.max_connections:
            raise Refused("full", f"{self.settings.max_connections} connections are open here already")
        try:  # the nodes of a deployment need each other most when memory is short
            budget = self._traffic.budget
            (budget.refuse_more if peer.role == "node" else budget.refuse_new)("connection")
        except OutOfMemory as error:
            raise Refused(code_of(error), str(error)) from None
        if self._admit is not None:
            self._admit(connection, peer)
        if self._peers is not None:
            self._peers.admit(connection, peer)

    def _ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._silent.pop(connection, None)
        if not self.connections:
            self._empty.set()


async def listen(
    host: str,
    port: int,
    identity: Identity,
    services: Mapping[int, Service],
    *,
    settings: TransportSettings | None = None,
    traffic: Traffic | None = None,
    ssl: ssl_module.SSLContext | None = None,
    admit: Admit | None = None,
    peers: Peers | None = None,
    capabilities: tuple[str, ...] = (),
) -> Listener:
    """Listens at an address (port 0: any free one) and serves `services`, by channel, on each connection."""
    listener = Listener(
        identity,
        services,
        settings or TransportSettings(),
        traffic or Traffic(),
        admit=admit,
        peers=peers,
        capabilities=capabilities,
    )
    await listener.start(host, port, ssl)
    return listener

"""Making connections."""

import asyncio
import logging
import socket
import ssl as ssl_module
from collections.abc import Callable, Mapping
from typing import NamedTuple

from qanat.runtime.connection import Connection
from qanat.runtime.handshake import Admit, CannotConnect, Dialling
from qanat.runtime.peers import Peers
from qanat.runtime.service import Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import LOOPBACK, LOOPBACKS, Url, format_address, parse_url
from qanat.wire.control import Identity, Refused

__all__ = ["CannotConnect", "dial"]

log = logging.getLogger("qanat.transport")


async def dial(
    url: Url | str,
    identity: Identity,
    services: Mapping[int, Service],
    *,
    settings: TransportSettings | None = None,
    traffic: Traffic | None = None,
    ssl: ssl_module.SSLContext | None = None,
    peers: Peers | None = None,
    capabilities: tuple[str, ...] = (),
    credentials: bytes = b"",
    on_end: Callable[[Connection], None] | None = None,
    short_way: bool = False,
) -> Connection:
    """Connects once and shakes hands; raises `CannotConnect` or `Refused`.

    A client that dials the loopback is told of the server's Unix socket, and goes on there: it costs half of
    what TCP does. So is a node that says that it would take the `short_way`; it must be the one of the two
    who always dials.
    """
    where = parse_url(url) if isinstance(url, str) else url
    settings = settings or TransportSettings()
    call = _Call(
        identity,
        services,
        settings,
        traffic or Traffic(),
        ssl,
        peers.admit if peers is not None else None,
        capabilities,
        credentials,
        on_end,
    )
    wants_local = settings.short_ways and ssl is None and (short_way or identity.role == "client")
    dialled = format_address(LOOPBACK, where.port) if wants_local and where.host in LOOPBACKS else ""
    connection, local = await call.make(where, dialled=dialled)
    if local:
        try:
            connection, _ = await call.make(where, local=local)
        except CannotConnect:  # another network namespace behind one loopback address
            connection, _ = await call.make(where)
    return connection


class _Call(NamedTuple):
    """One dial and what it is made with."""

    identity: Identity
    services: Mapping[int, Service]
    settings: TransportSettings
    traffic: Traffic
    ssl: ssl_module.SSLContext | None
    admit: Admit | None
    capabilities: tuple[str, ...]
    credentials: bytes
    on_end: Callable[[Connection], None] | None

    async def make(self, where: Url, *, dialled: str = "", local: str = "") -> tuple[Connection, str]:
        """The connection, and the short way that was offered instead of it."""
        traffic, settings = self.traffic, self.settings
        handshake = Dialling(
            self.identity,
            admit=self.admit,
            capabilities=self.capabilities,
            credentials=self.credentials,
            dialled=dialled,
        )
        connection = Connection(handshake, self.services, settings, traffic, dialled=True, on_end=self.on_end)
        try:
            await self._connect(where, local, handshake, connection)
        except BaseException as error:
            handshake.done.cancel()  # nobody waits for it any more
            if isinstance(error, asyncio.CancelledError):
                connection.abort("closed", "the dial was cancelled")
            raise
        try:
            return connection, await handshake.done
        except (Refused, CannotConnect) as error:
            traffic.dial_failures.labels(error.code).value += 1
            raise
        except asyncio.CancelledError:
            connection.abort("closed", "the dial was cancelled")
            raise

    async def _connect(self, where: Url, local: str, handshake: Dialling, connection: Connection) -> None:
        loop, traffic, settings = asyncio.get_running_loop(), self.traffic, self.settings
        try:
            async with asyncio.timeout(settings.handshake_ms / 1000):
                if local:
                    sock = _unix_socket(local)
                    try:
                        await loop.create_unix_connection(lambda: connection, sock=sock)
                    except BaseException:
                        sock.close()  # nobody else does, if it was not taken over yet
                        raise
                else:
                    await loop.create_connection(lambda: connection, *where, ssl=self.ssl)
        except TimeoutError:
            connection.abort("handshake_timeout")
            handshake.done.cancel()
            traffic.dial_failures.labels("timeout").value += 1
            raise CannotConnect(
                "timeout", f"{where} did not answer within {settings.handshake_ms} ms"
            ) from None
        except ssl_module.SSLError as error:
            traffic.dial_failures.labels("tls").value += 1
            raise CannotConnect("tls", f"no TLS with {where}: {error.reason or error}") from None
        except OSError as error:
            reason = error.strerror or str(error)
            traffic.dial_failures.labels("unreachable").value += 1
            raise CannotConnect(
                "unreachable",
                f"cannot reach {where}: {reason}; is the server running?",
                refused=isinstance(error, ConnectionRefusedError),
            ) from None


def _unix_socket(name: str) -> socket.socket:
    """Connected at once, or an OSError: nothing is waited for inside one machine."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.connect(f"\0{name}")
    except BaseException:
        sock.close()
        raise
    return sock

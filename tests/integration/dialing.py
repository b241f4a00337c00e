"""A peer that keeps dialling one address, for tests of what two ends make of that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress

from qanat.events.errors import RemoteError
from qanat.runtime.backoff import Backoff
from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.runtime.peers import Peers
from qanat.runtime.service import Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url, parse_url
from qanat.wire.control import Identity


class Dialer:
    """Keeps a connection to one address: dials, and after each loss dials again with growing pauses.

    With `peers`, it does not dial while there is a connection with `peer_name` that the other side made.
    Between two connections nothing is queued here: a service that must resend does so in `on_connect`.
    """

    def __init__(
        self,
        url: Url | str,
        identity: Identity,
        services: Mapping[int, Service],
        *,
        settings: TransportSettings | None = None,
        traffic: Traffic | None = None,
        peers: Peers | None = None,
        peer_name: str = "",
        rng: random.Random | None = None,
    ) -> None:
        self.url = parse_url(url) if isinstance(url, str) else url
        self.connection: Connection | None = None
        self.last_error: RemoteError | None = None
        self._identity = identity
        self._services = services
        self._settings = settings or TransportSettings()
        self._traffic = traffic or Traffic()
        self._peers = peers
        self._peer_name = peer_name
        self._backoff = Backoff(
            self._settings.backoff_ms, self._settings.backoff_limit_ms, rng or random.Random()
        )
        self._up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep(), name=f"dial {self.url}")

    async def connected(self) -> Connection:
        """The connection, once it is up."""
        while self.connection is None or self.connection.closing:
            self._up.clear()
            await self._up.wait()
        return self.connection

    async def stop(self, code: str = "shutdown") -> None:
        """Closes the connection, sending what is queued, and dials no more."""
        task, self._task = self._task, None
        connection = self.connection
        if connection is not None and connection.closed is None:
            connection.close(code)
            await connection.wait_closed()
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _keep(self) -> None:
        while True:
            existing = self._peers.get(self._peer_name) if self._peers and self._peer_name else None
            if existing is not None:
                self._up_with(existing)
                await existing.wait_closed()
                continue
            try:
                connection = await dial(
                    self.url,
                    self._identity,
                    self._services,
                    settings=self._settings,
                    traffic=self._traffic,
                    peers=self._peers,
                )
            except RemoteError as error:
                if error.args and getattr(error, "code", "") != "duplicate":
                    self.last_error = error
            else:
                self._backoff.reset()
                self._up_with(connection)
                await connection.wait_closed()
                self.connection = None
            await asyncio.sleep(self._backoff.next_ms() / 1000)

    def _up_with(self, connection: Connection) -> None:
        self.connection = connection
        self.last_error = None
        self._up.set()

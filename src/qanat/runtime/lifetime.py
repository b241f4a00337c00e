"""The life of a connection: when its socket is there, why and when it ended."""

import asyncio
from collections.abc import Callable
from typing import cast

from qanat.runtime.service import Closed
from qanat.runtime.settings import TransportSettings


class Lifetime(asyncio.BufferedProtocol):
    """What every layer of a connection stands on: the transport, one deadline, and the reason of the end."""

    def __init__(self, settings: TransportSettings) -> None:
        self.settings = settings
        self.opened = False
        self.closed: Closed | None = None
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._made = False
        self._reason: Closed | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def closing(self) -> bool:
        """Ended, or about to be: nothing more will be sent or handed over."""
        return self._reason is not None

    async def wait_closed(self) -> Closed:
        """Waits for the end and tells why."""
        if self.closed is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        return self.closed or Closed("closed")

    def abort(self, code: str, detail: str = "") -> None:
        """Closes now; what is queued is lost."""
        if self._reason is None:
            self._reason = Closed(code, detail)
        if self._made:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._made = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(0, None)
        if self._reason is None:
            self._reason = Closed("reset", str(exc)) if exc is not None else Closed("eof")
        self.closed = self._reason
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _set_deadline(self, after_ms: int, call: Callable[[], object] | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if call is not None:
            self._deadline = self._loop.call_later(after_ms / 1000, call)

"""One question to one server, over a connection of its own."""

import asyncio
from typing import Any

import msgspec

from qanat.events.errors import RemoteError
from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.runtime.service import STREAMS_CHANNEL, Closed, Service
from qanat.runtime.settings import TransportSettings
from qanat.wire.control import Identity
from qanat.wire.frame import Frame
from qanat.wire.streams import ASK, Ask, Told, decode_control, encode_control


class _Answer(Service):
    def __init__(self) -> None:
        self.told: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        message = decode_control(frame.type, frame.control)
        if not self.told.done():
            if isinstance(message, Told):
                self.told.set_result(message.answer)
            else:
                self.told.set_exception(RemoteError(f"it answered a question with {message!r}"))

    def on_close(self, connection: Connection, reason: Closed) -> None:
        if not self.told.done():
            self.told.set_exception(RemoteError(f"it did not answer: {reason}"))


async def ask(
    url: str, asker: Identity, what: str, settings: TransportSettings, patience_s: float
) -> dict[str, Any]:
    """What the server says; raises `RemoteError` or `TimeoutError`."""
    async with asyncio.timeout(patience_s):
        answer = _Answer()
        connection = await dial(url, asker, {STREAMS_CHANNEL: answer}, settings=settings)
        try:
            connection.send(ASK, STREAMS_CHANNEL, encode_control(Ask(1, what)))
            found: dict[str, Any] = msgspec.json.decode(await answer.told)
            return found
        finally:
            connection.close()
            await connection.wait_closed()

"""What people order of a server's streams: to make one, to keep it in another way, to remove it. One order at
a time is carried out."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from qanat.events.errors import LocalError
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.serving.refusals import refuse
from qanat.serving.served_stream import ServedStream
from qanat.wire.streams import TOLD, Ask, Told, encode_control

log = logging.getLogger("qanat.streams")

_MOST = 100
"""Orders that wait for their turn, of all connections."""


class Ordered(Protocol):
    """Who carries them out."""

    @property
    def streams(self) -> Mapping[str, ServedStream]: ...

    async def order(self, what: str, name: str, settings: bytes) -> None: ...


class Orders:
    """Each is answered by the description of its stream: as it is then, or as it was before it was
    removed."""

    def __init__(self, registry: Ordered, describe: Callable[[ServedStream, int], dict[str, object]]) -> None:
        self._registry, self._describe = registry, describe
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, connection: Connection, message: Ask) -> None:
        if len(self._tasks) >= _MOST:
            raise LocalError(f"{_MOST} orders for streams wait already; try again in a moment")
        task = asyncio.get_running_loop().create_task(self._carry_out(connection, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, connection: Connection, message: Ask) -> None:
        what, name = message.what, message.stream
        said = {"order": what, "stream": name, "client": connection.label}
        try:
            async with self._turn:
                before = self._registry.streams.get(name)
                told = {} if before is None or what != "remove" else self._describe(before, 1)
                await self._registry.order(what, name, message.settings)
                told = told or self._describe(self._registry.streams[name], 1)
        except LocalError as error:
            log.info("an order was refused", extra={**said, "reason": str(error)})
            refuse(connection, message.request, error)
            return
        except Exception as error:
            log.exception("an order failed", extra=said)
            refuse(connection, message.request, LocalError(f"the server failed at it: {error!r}"))
            return
        log.info("an order was carried out", extra=said)
        connection.send(
            TOLD, STREAMS_CHANNEL, encode_control(Told(message.request, msgspec.json.encode(told)))
        )

"""The publishing side of a task: events of many streams at once, each stream in the order of the log.

One client per name of a source, all on one loop in a thread of its own, so that connections stay alive
between micro-batches.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from qanat.capture.events import Events
from qanat.client import AsyncClient, ClientSettings, PositionsLost
from qanat.client.ahead import Ahead
from qanat.client.flight import Receipts
from qanat.events.errors import MalformedBatch
from qanat.events.position import Position
from qanat.pipeline.ingest.dead_letters import Letter
from qanat.pipeline.ingest.routes import Routes
from qanat.pipeline.ingest.routing import letter_of, taken
from qanat.runtime.loop import new_loop

_T = TypeVar("_T")
_CLOSE_S = 2.0
_PATIENCE_MS = 3_000
"""A server that is away for longer is a failure of the task: the driver then says so, and tries again for as
long as it may."""

_BATCH_BYTES = 4 * 1024 * 1024
"""Payload of one publish: what is read at once is then one sync of the server's disk instead of several, and
fits a frame with its attributes."""
_WINDOW_BYTES = 32 * 1024 * 1024
"""Under way to one stream: three times what is read at once."""


class SetBack(Exception):
    """Streams have less than they had acknowledged: how far each is now."""

    def __init__(self, positions: dict[str, Position]) -> None:
        super().__init__(positions)
        self.positions = positions


class Publisher:
    """Publishes under the names that `routes` give; `source` is the log's own name."""

    def __init__(
        self, url: str, source: str, routes: Routes, put_aside: Callable[[list[Letter]], None]
    ) -> None:
        """`put_aside` is given events that fit into no batch, before anything behind them is published."""
        self._url, self._source, self._routes, self._put_aside = url, source, routes, put_aside
        self._clients: dict[str, asyncio.Task[AsyncClient]] = {}
        self._names: dict[str, str] = {}
        self._ahead: dict[str, Ahead] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._stored: dict[str, Position] = {}
        self._handed: dict[str, deque[float]] = {}
        """When what a stream has not stored yet was handed over."""
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qanat-publisher", daemon=True)
        self._thread.start()

    def publish(self, parts: Mapping[str, Events]) -> "Future[None]":
        """Begins to publish, and is done when all is stored. Raises `SetBack` if streams lost what they had.

        Of several calls under way each stream gets what they bring in their order, and after a failure
        nothing of the later ones.
        """

        async def work() -> None:
            done = await asyncio.gather(
                *(self._publish(stream, events) for stream, events in parts.items()), return_exceptions=True
            )
            if lost := {one.stream: one.position for one in done if isinstance(one, PositionsLost)}:
                raise SetBack(lost)
            for one in done:
                if one is not None:
                    raise one

        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def again(self) -> None:
        """After `SetBack`, when nothing is under way any more: what comes next begins further back."""
        self._ahead.clear()
        self._handed.clear()

    def progress(self) -> "tuple[dict[str, Position], dict[str, float]]":
        """How far each stream has stored what it was given; and since when (as the clock says) the first of
        what it has not waits."""
        return dict(self._stored), {stream: times[0] for stream, times in list(self._handed.items()) if times}

    def positions(self, streams: Sequence[str]) -> dict[str, Position]:
        """How far each stream has this log. A stream that is asked for is there afterwards, where streams are
        made by using them."""

        async def one(stream: str) -> Position:
            return await (await self._client(stream)).position(stream)

        async def work() -> dict[str, Position]:
            return dict(zip(streams, await asyncio.gather(*map(one, streams)), strict=True))

        return self._call(work())

    def existing(self) -> set[str]:
        """Names of the streams that the server has."""

        async def work() -> set[str]:
            client = await self._client("")
            return {str(one["stream"]) for one in await client.ask("streams")}

        return self._call(work())

    def close(self) -> None:
        """Does not wait long for what is under way: after a failure nobody wants it any more."""

        async def work() -> None:
            for opening in self._clients.values():
                opening.cancel()
                with suppress(BaseException):
                    async with asyncio.timeout(_CLOSE_S):
                        await opening.result().close()

        try:
            self._call(work())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _client(self, stream: str) -> AsyncClient:
        name = self._names.get(stream)
        if name is None:
            name = self._names[stream] = self._routes.source_of(self._source, stream)
        opening = self._clients.get(name)
        if opening is None:
            settings = ClientSettings(
                patience_ms=_PATIENCE_MS, batch_bytes=_BATCH_BYTES, window_bytes=_WINDOW_BYTES
            )
            client = AsyncClient(self._url, name=name, settings=settings)
            opening = self._clients[name] = asyncio.ensure_future(client.ready())
        return await asyncio.shield(opening)

    async def _publish(self, stream: str, events: Events) -> None:
        """A stream's events in their order."""
        handed = self._handed.setdefault(stream, deque())
        handed.append(time.time())
        async with self._turns.setdefault(stream, asyncio.Lock()):  # those that wait get it in their order
            ahead = self._ahead.get(stream)
            if ahead is None:
                ahead = self._ahead[stream] = Ahead(await self._client(stream), stream)
            receipts = await self._put(ahead, events)
        for each in receipts:
            await ahead.stored(each)
        if handed:  # else all was set back meanwhile
            handed.popleft()
        self._stored[stream] = Position(int(events.sequences[-1]), int(events.indexes[-1]))

    async def _put(self, ahead: Ahead, events: Events) -> list[Receipts]:
        """What cannot be laid out together is published in halves."""
        try:
            places = events.sequences, events.indexes
            return [await ahead.put(events.payloads, places, events.keys, events.attributes or None)]
        except MalformedBatch as error:
            if len(events) == 1:
                self._put_aside([letter_of(events, 0, "publish", str(error))])
                return []
        receipts = []
        for rows in np.array_split(np.arange(len(events)), 2):
            receipts += await self._put(ahead, taken(events, rows))
        return receipts

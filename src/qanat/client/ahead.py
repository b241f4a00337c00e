"""Publishing under positions of a log, some batches ahead of the answers."""

import time
from typing import TYPE_CHECKING, Any

from qanat.client.errors import PositionsLost
from qanat.client.flight import Receipts
from qanat.client.positioned import Positions
from qanat.client.rows import Rows
from qanat.events import arguments
from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient


class Ahead:
    """What is put follows what was put before it: once something of it was refused, everything later fails
    too, and nothing of that is stored.

    To go on after a failure make another one, and begin behind `client.position(stream)`. One `put` at a
    time.
    """

    def __init__(self, client: "AsyncClient", stream: str) -> None:
        untold = client._set_back(arguments.name("stream", stream))
        self._batch_bytes = client.settings.batch_bytes
        self._outbox = client._positioned(stream)
        if untold is not None:
            raise untold

    async def put(
        self, payloads: Any, positions: tuple[Any, Any], keys: Any = None, attributes: Any = None
    ) -> Receipts:
        """Returns once all is on its way; holds back while the window is full. What comes of it `stored`
        says."""
        return await self.put_rows(Rows.of(payloads, keys, attributes), arguments.rising_positions(positions))

    async def put_rows(self, rows: Rows, positions: Positions) -> Receipts:
        """The same, of columns that were looked at."""
        outbox = self._outbox
        sequences, indexes = positions
        if not len(rows) == len(sequences) == len(indexes):
            raise LocalError(f"{len(rows)} events have {len(sequences)} sequences and {len(indexes)} indexes")
        flights, at = [], 0
        try:
            for group in rows.groups(self._batch_bytes):
                places = []
                for part in group:
                    places.append((sequences[at : at + len(part)], indexes[at : at + len(part)]))
                    at += len(part)
                if outbox.full:
                    await outbox.room()
                now_us = time.time_ns() // 1000
                if len(group) > 1 and outbox.stages:
                    flights += outbox.put_together_at(group, places, now_us)
                    continue
                for part, place in zip(group, places, strict=True):
                    if outbox.full:
                        await outbox.room()
                    flights.append(outbox.put_at(part.payloads, part.keys, part.attributes, place, now_us))
        except PositionsLost:
            outbox.told = True
            raise
        return Receipts(flights)

    async def stored(self, receipts: Receipts) -> tuple[int, int]:
        """First and last sequence number, once all is stored."""
        try:
            return await receipts
        except PositionsLost:
            self._outbox.told = True
            raise

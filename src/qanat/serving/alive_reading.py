"""Subscriptions that want only what is alive: they begin once it is known what is dead, and are read for
alone until they are at the end.

What GC events match is found in the background, so a subscriber first waits until all that are stored have
found theirs. Then it is sent what is alive as each piece is read. Something may be left out because of a
later event; then the piece waits until that one may be read too, for who is not shown an event must be able
to see why.
"""

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.events.tombstones import from_sequence
from qanat.log.errors import CorruptLog
from qanat.log.living import find_dead, living
from qanat.log.reader import Truncated
from qanat.serving.subscriber import Subscriber
from qanat.serving.syncing import AGAIN_S

if TYPE_CHECKING:
    from qanat.serving.delivery import Delivery

log = logging.getLogger("qanat.streams")

_PIECE_BYTES = 256 * 1024
"""Of one read, looked through on the loop in a millisecond or two."""
_FIND_BYTES = 64 << 20
"""Of the log, in one go of a worker thread: who waits for the same log then gets its turn."""
_SOON_S = 0.01


class _Piece(NamedTuple):
    batches: list[Batch]
    last: int
    asof: int


class LivingReading:
    """Those of one stream; lives on the event loop."""

    def __init__(self, delivery: "Delivery") -> None:
        self._delivery = delivery
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Subscriber, int] = {}
        """Until all GC events up to this number have found what they match."""
        self._search: asyncio.Task[None] | None = None
        self._held: dict[Subscriber, _Piece] = {}

    def begin(self, subscriber: Subscriber) -> None:
        self._waiting[subscriber] = subscriber.alive_upto = self._delivery.readable
        if self._search is None:
            self._search = self._loop.create_task(self._find())

    def remove(self, subscriber: Subscriber) -> None:
        self._waiting.pop(subscriber, None)
        self._held.pop(subscriber, None)

    def stop(self) -> None:
        if self._search is not None:
            self._search.cancel()
            self._search = None

    @property
    def waiting(self) -> list[Subscriber]:
        return list(self._waiting)

    async def _find(self) -> None:
        try:
            while self._waiting:
                now_us = time.time_ns() // 1000
                found = await self._loop.run_in_executor(
                    None, find_dead, self._delivery.log, _FIND_BYTES, now_us
                )
                for subscriber, upto in list(self._waiting.items()):
                    if found > upto:
                        del self._waiting[subscriber]
                        self._delivery.subscribe(subscriber)
        except CorruptLog as error:
            self._end(self._delivery.damaged(error))
        except LocalError as error:
            self._end(error)
        finally:
            self._search = None

    def _end(self, error: LocalError) -> None:
        for subscriber in list(self._waiting):
            self._delivery.end_subscription(subscriber, error)

    def serve(self, subscriber: Subscriber) -> bool:
        """It takes more and is not at the end of what was there when it began; False: it is served as all
        others from now on."""
        held = self._held.get(subscriber)
        if held is not None:
            self._show(subscriber, held)
            return True
        if subscriber.at > subscriber.alive_upto:
            subscriber.alive_upto = 0
            self._delivery.tell_now(subscriber)
            return False
        try:
            chunk = self._delivery.read_on(subscriber.at, _PIECE_BYTES)
        except CorruptLog as error:
            self._delivery.end_subscription(subscriber, self._delivery.damaged(error))
            return True
        if isinstance(chunk, Truncated):
            self._delivery.lost(subscriber, chunk)
            self._delivery.pump_soon(subscriber)
        elif not chunk.data:
            self._later(subscriber, AGAIN_S)
        elif (found := living(self._delivery.log, chunk)) is None:
            self._delivery.pump_soon(subscriber)
        else:
            self._show(subscriber, _Piece(found.batches, chunk.last, found.asof))
        return True

    def _show(self, subscriber: Subscriber, piece: _Piece) -> None:
        """Once the reason for what is left out may be read."""
        if piece.asof > self._delivery.readable:
            self._held[subscriber] = piece
            self._later(subscriber, _SOON_S)
            return
        self._held.pop(subscriber, None)
        start, where = subscriber.at, subscriber.filter
        rows = [from_sequence(batch, start) for batch in piece.batches if batch.last >= start]
        if where is None:
            self._send(subscriber, piece.last, rows)
        else:
            take = partial(self._send, subscriber, piece.last)
            self._delivery.ask(subscriber, where, rows, take, self._delivery.pump_soon)
        if not subscriber.searching:
            self._delivery.pump_soon(subscriber)

    def _send(self, subscriber: Subscriber, last: int, rows: list[Batch]) -> None:
        subscriber.send_filtered([batch for batch in rows if batch.count], last)

    def _later(self, subscriber: Subscriber, pause_s: float) -> None:
        self._loop.call_later(pause_s, self._delivery.pump_soon, subscriber)

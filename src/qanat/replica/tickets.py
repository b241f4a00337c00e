"""Publishes on their way through a chain: a number for each, who is told of its outcome, and who must
wait."""

import time
from collections.abc import Callable
from typing import TypeAlias

from qanat.events.batch import Batch
from qanat.events.errors import LocalError, code_of
from qanat.protocols.chain import Answered, Publish, Refused
from qanat.runtime.connection import Connection

Outcome: TypeAlias = Answered | Refused

_UNANSWERED_BYTES = 64 * 1024 * 1024
"""Published and not answered, over all streams; above it publishers are not read from until the chain has
caught up."""


class Tickets:
    """`request` hands a publish to the machine, and raises a `LocalError` if that takes none now;
    `tickets_max` is how many the machine lets wait. Half of them are given out before publishers are held, so
    none is refused for their number."""

    def __init__(self, request: Callable[[Publish], None], tickets_max: int) -> None:
        self._request, self._most = request, max(1, tickets_max // 2)
        self._number = 0
        self._waiting: dict[int, tuple[Callable[[Outcome], None], int, float]] = {}
        self._bytes = 0
        self._held: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def oldest_s(self) -> float:
        """For how long the first of those that wait has waited."""
        for _, _, since in self._waiting.values():
            return time.monotonic() - since
        return 0.0

    def publish(self, batch: Batch, then: Callable[[Outcome], None], *, beside: int = 0) -> None:
        """`then` is told the outcome, perhaps before this returns; so many bytes `beside` the batch wait for
        it."""
        self._number += 1
        ticket = self._number
        size = batch.size + beside
        self._waiting[ticket] = (then, size, time.monotonic())
        self._bytes += size
        try:
            self._request(Publish(ticket, batch))
        except LocalError as error:
            self.on_outcome(Refused(ticket, code_of(error), str(error), "", True))

    def on_outcome(self, outcome: Outcome) -> None:
        then, size, _ = self._waiting.pop(outcome.ticket)
        self._bytes -= size
        then(outcome)
        if self._held and not self._crowded:
            held, self._held = self._held, {}
            for connection in held:
                connection.resume_reading()

    @property
    def _crowded(self) -> bool:
        return self._bytes > _UNANSWERED_BYTES or len(self._waiting) >= self._most

    def hold(self, connection: Connection) -> None:
        """If too much waits, nothing more is read from this publisher until it does not."""
        if self._crowded and connection.reading:
            connection.pause_reading()
            self._held[connection] = None

    def forget(self, connection: Connection) -> None:
        self._held.pop(connection, None)

"""A batch (or some together) on its way to a stream, and what the publisher holds of it meanwhile."""

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from qanat.events.errors import InvariantError, QanatError
from qanat.events.layout import reposition
from qanat.events.position import Position

if TYPE_CHECKING:
    from qanat.client.gathering import Gathering


class Flight:
    """One batch on its way, or some that lie in one file, and who waits for it."""

    __slots__ = (
        "after",
        "count",
        "end",
        "error",
        "file",
        "first",
        "heads",
        "last",
        "parts",
        "position",
        "request",
        "size",
        "waiter",
        "weight",
    )

    def __init__(self, parts: "tuple[bytearray, *tuple[memoryview, ...]]", count: int) -> None:
        self.parts: tuple[bytearray | memoryview, ...] = parts
        self.heads = [(parts[0], count)]
        """The header of each batch among the parts, and the batch's events."""
        self.size = self.weight = sum(map(len, parts))
        """Bytes; and those that count against the window."""
        self.count = count
        self.file = ""
        """Where its bytes lie already, to be handed over as they are: a file in the form of a segment, of
        this flight alone. Good for once, since the log that takes it over writes to it."""
        self.request = 0
        self.position = 0
        self.end = Position(0, 0)
        """Of its last event, where events have positions of their own."""
        self.after: Position | None = None
        """Where the batch ends that was published before it, if that is known."""
        self.first = self.last = 0
        self.error: QanatError | None = None
        self.waiter: asyncio.Future[None] | None = None

    @staticmethod
    def together(flights: "list[Flight]", most: int) -> "Flight":
        """One flight of many batches, which take off and land together; it counts at most `most` bytes."""
        joined = Flight((bytearray(),), sum(flight.count for flight in flights))
        joined.parts = tuple(part for flight in flights for part in flight.parts)
        joined.heads = [head for flight in flights for head in flight.heads]
        joined.size = sum(flight.size for flight in flights)
        joined.weight = min(joined.size, most)
        joined.position, joined.end = flights[0].position, flights[-1].end
        return joined

    def reposition(self, position: int) -> None:
        """Gives its batches, whose positions are dense, their places from here on."""
        self.position = position
        for head, count in self.heads:
            reposition(head, position)
            position += count

    @property
    def landed(self) -> bool:
        return self.last != 0 or self.error is not None

    def wait(self) -> "asyncio.Future[None]":
        if self.waiter is None:
            self.waiter = asyncio.get_running_loop().create_future()
            if self.landed:
                self.waiter.set_result(None)
        return self.waiter

    def land(self, first: int, last: int, error: QanatError | None = None) -> None:
        self.first, self.last, self.error = first, last, error
        self.parts, self.heads = (bytearray(),), []
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Receipt:
    """A publish under way. Awaiting it gives the event's sequence number once it is stored.

    The number is 0 when the event was stored by an earlier attempt whose answer was lost. A refusal is
    raised to whoever awaits.
    """

    __slots__ = ("_index", "_outbox", "flight")

    def __init__(self, outbox: "Gathering") -> None:
        self._outbox = outbox
        self.flight: Flight | None = None
        self._index = 0

    def take_seat(self, flight: Flight, index: int) -> None:
        """The event travels in this batch, as its row `index`."""
        self.flight, self._index = flight, index

    def __await__(self) -> Generator[Any, None, int]:
        if self.flight is None:
            self._outbox.flush()
        flight = self.flight
        if flight is None:
            raise InvariantError("a publish was flushed and has no batch")
        if not flight.landed:
            yield from asyncio.shield(flight.wait()).__await__()
        if flight.error is not None:
            raise flight.error
        return flight.first + self._index if flight.first else 0


class Receipts:
    """Many events under way. Awaiting gives their first and last sequence number once all are stored."""

    __slots__ = ("_flights",)

    def __init__(self, flights: list[Flight]) -> None:
        self._flights = flights

    def __await__(self) -> Generator[Any, None, tuple[int, int]]:
        for flight in self._flights:
            if not flight.landed:
                yield from asyncio.shield(flight.wait()).__await__()
        for flight in self._flights:
            if flight.error is not None:
                raise flight.error
        return (self._flights[0].first, max(self._flights[-1].last, 0)) if self._flights else (0, 0)

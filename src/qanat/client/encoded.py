"""Publishing batches that are encoded already: those that someone laid down and is sure of now.

The publisher gives each batch its position when it takes off: a place in its own numbering, which has jumps
(from one of its transactions to the next) that the stream cannot tell from a loss. Inside a transaction
numbers are dense, and the stream refuses a gap; so many batches may be under way at once, but one that jumps
flies alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from qanat.client.flight import Flight
from qanat.client.rows import LARGEST_BYTES
from qanat.events import arguments
from qanat.events.batch import HEADER_BYTES, Batch, from_draft
from qanat.events.encode import Array
from qanat.events.errors import LocalError
from qanat.events.layout import reposition
from qanat.events.position import Position

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient


class Laid(NamedTuple):
    """Batches that follow each other densely, and lie end to end in a file: all of it, behind the room for a
    segment's head.

    The file is the stream's from now on, which may write heads to it: whoever may publish the batches again
    later has theirs elsewhere.
    """

    path: str
    flights: list[Flight]


def dense_flight(batch: Batch, source: str, position: int) -> Flight:
    """A batch whose rows are position, position + 1, …: only its header is made anew."""
    if not batch.positions_dense or not batch.is_whole or batch.source_names != [source]:
        raise LocalError(f"a batch to publish as {source!r} has dense positions of that source")
    data = batch.encode()
    head = bytearray(data[:HEADER_BYTES])
    reposition(head, position)
    flight = Flight((head, data[HEADER_BYTES:]), batch.count)
    flight.position = position
    flight.end = Position(position + batch.count - 1, 0)
    return flight


def jumping_flight(batch: Batch, source: str, sequences: Array) -> Flight:
    """A batch whose rows have any rising positions; it is encoded anew."""
    places = np.asarray(sequences, np.uint64)
    draft = batch.draft()._replace(
        sources=(source,),
        source_codes=None,
        position=None,
        positions=(places, np.zeros(len(places), np.uint32)),
    )
    made = from_draft(draft)
    flight = Flight((bytearray(made.encode()),), made.count)
    flight.end = Position(int(places[-1]), 0)
    return flight


async def publish_flights(
    client: "AsyncClient",
    stream: str,
    flights: Iterable[Flight | Laid],
    kept: Callable[[Flight], None] | None = None,
) -> int:
    """Publishes flights in order, a window ahead; returns how many events were new once all are stored.

    `kept` is told of each flight, in order, once the stream has it for good: not where a power cut may take
    it back.
    """
    if kept is not None and not callable(kept):
        raise arguments.wrong("kept", "a function that is told of each flight", kept)
    arguments.several("flights", "a sequence of flights", flights)
    if isinstance(flights, list | tuple):
        flights = list(map(_known, flights))
    outbox = client._positioned(stream)
    waiting: deque[tuple[Flight, list[Flight]]] = deque()
    fresh = 0

    def landed() -> int:
        flight, members = waiting.popleft()
        if flight.error is not None:
            raise flight.error
        if kept is not None and outbox.opened is not None and outbox.opened.durability == "always":
            for member in members:
                kept(member)
        return flight.count if flight.first else 0

    await outbox.known()  # and whether files may be laid down
    known = map(_known, flights)
    for members, file in _together(known) if outbox.stages else _alone(known):
        if outbox.full:
            await outbox.room()
        waiting.append((outbox.put_flight(outbox.joined(members, file)), members))
        while waiting and waiting[0][0].landed:
            fresh += landed()
    while waiting:
        await waiting[0][0].wait()
        fresh += landed()
    return fresh


def _known(flight: object) -> Flight | Laid:
    if not isinstance(flight, Flight | Laid):
        raise arguments.wrong("a flight", "a batch that is encoded already", flight)
    return flight


def _alone(flights: Iterable[Flight | Laid]) -> Iterator[tuple[list[Flight], str]]:
    for each in flights:
        for flight in each.flights if isinstance(each, Laid) else (each,):
            yield [flight], ""


def _together(flights: Iterable[Flight | Laid]) -> Iterator[tuple[list[Flight], str]]:
    """Those that follow each other densely, as many as may lie in one file; and the file in which they do."""
    held: list[Flight] = []
    size = 0
    for flight in flights:
        if isinstance(flight, Laid):
            if held:
                yield held, ""
                held, size = [], 0
            yield flight.flights, flight.path
            continue
        follows = held and held[-1].position and flight.position == held[-1].position + held[-1].count
        if held and (not follows or size + flight.size > LARGEST_BYTES):
            yield held, ""
            held, size = [], 0
        held.append(flight)
        size += flight.size
    if held:
        yield held, ""

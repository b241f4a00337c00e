"""One subscription at the server: where it is, what it may still be sent, and how a chunk becomes a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qanat.events.batch import Batch, decode_all, from_draft
from qanat.events.encode import Draft
from qanat.events.filters import Filter, evaluate
from qanat.events.filters.known import PARSED_PER_BYTE
from qanat.events.tombstones import from_sequence
from qanat.log.reader import Chunk
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.serving.filter_cost import is_heavy
from qanat.wire.frame import Bytes, encode
from qanat.wire.streams import EVENTS, PLACED, Events, Placed, encode_control

if TYPE_CHECKING:
    from qanat.serving.delivery import Delivery
    from qanat.serving.served_stream import ServedStream

_JOIN_BYTES = 16 * 1024
"""Below this a frame is made one piece: it is written to many connections, and one write is cheaper than
two."""


_SUBSCRIPTION_BYTES = 500
_PLACED_BYTES = 64 * 1024
"""From here on reading a file costs a client less than receiving."""


class ClientState:
    """What a server keeps for one connection."""

    __slots__ = ("held", "streams", "subscriptions")

    def __init__(self) -> None:
        self.held = False
        """Not read from until it has taken what it was sent."""
        self.subscriptions: dict[int, tuple[Delivery, Subscriber]] = {}
        self.streams: set[ServedStream] = set()


class Subscriber:
    """Where one subscription stands. `at` is the next sequence number it needs."""

    __slots__ = (
        "alive_upto",
        "at",
        "connection",
        "credit",
        "files",
        "filter",
        "heavy",
        "indexed",
        "number",
        "scheduled",
        "searching",
        "silent_from",
        "upto",
    )

    def __init__(
        self,
        connection: Connection,
        number: int,
        at: int,
        credit: int,
        where: Filter | None,
        *,
        files: bool = False,
        upto: int = 0,
    ) -> None:
        self.connection, self.number, self.at, self.credit, self.filter = (
            connection,
            number,
            at,
            credit,
            where,
        )
        self.silent_from = at
        """With a filter: the first sequence number that the client has not heard of; what lies between did
        not match."""
        self.scheduled = False
        self.heavy = where is not None and is_heavy(where)
        """Whether its filter is asked by itself, and never with others'."""
        self.indexed = False
        """Whether it is asked together with others'."""
        self.searching = False
        """Whether its filter is being asked, beside the loop."""
        self.files = files
        """Whether it reads large pieces of the log from the log's files itself."""
        self.upto = upto
        """The last sequence number that it wants; 0 if it wants all that come."""

        self.alive_upto = 0
        """Up to here it wants only what is alive; 0 if it wants all."""

    @property
    def kept_bytes(self) -> int:
        """What the server keeps for it, about."""
        return _SUBSCRIPTION_BYTES + (0 if self.filter is None else PARSED_PER_BYTE * len(self.filter.text))

    @property
    def done(self) -> bool:
        """Whether it has all that it wants."""
        return 0 < self.upto < self.at

    @property
    def ready(self) -> bool:
        """Whether something may be sent to it now."""
        return self.credit > 0 and self.connection.writable

    def end(self) -> None:
        """The server ended it: its number is free again on its connection."""
        client = self.connection.state.get(STREAMS_CHANNEL)
        if isinstance(client, ClientState):
            if client.subscriptions.pop(self.number, None) is not None:
                self.connection.kept_bytes -= self.kept_bytes

    def send(self, parts: list[Bytes], size: int) -> None:
        self.connection.send_parts(parts)
        self.credit -= size

    def send_filtered(self, batches: list[Batch], last: int) -> None:
        """Rows that passed; their batches also tell that what is missing before them did not match."""
        data, self.silent_from = covering(batches, self.silent_from)
        if data:
            size = sum(map(len, data))
            self.send(events_frame(self.number, data), size)
        self.at = last + 1


def covering(batches: list[Batch], silent_from: int) -> tuple[list[memoryview], int]:
    """As bytes, each covering what did not pass before it; and from where on nothing was heard after them."""
    data = []
    for batch in batches:
        data.append(_from(batch, silent_from).encode())
        silent_from = batch.last + 1
    return data, silent_from


def _from(batch: Batch, first: int) -> Batch:
    """The same rows, covering the sequence numbers from `first` on."""
    if first >= batch.first:
        return batch
    draft: Draft = batch.draft()
    return from_draft(draft._replace(first=first, span=batch.last - first + 1, seqs=batch.seqs()))


def silence(stream: int, first: int, last: int) -> Batch:
    """A batch without rows: nothing between these sequence numbers passed the filter."""
    return Batch.build(stream, [], first=first, seqs=[], span=last - first + 1)


def passing(batch: Batch, where: Filter) -> Batch | None:
    """The rows that pass. Tombstones and GC events always do: they say what became of other events."""
    mask = evaluate(where, batch)
    return chosen(batch, mask)


def all_passing(batches: list[Batch], where: Filter) -> list[Batch]:
    return [rows for rows in (passing(batch, where) for batch in batches) if rows is not None]


def chosen(batch: Batch, mask: Any) -> Batch | None:
    kinds = batch.kinds
    if kinds is not None:
        mask = mask | (kinds != 0)
    return batch.take(mask) if mask.any() else None


def events_frame(number: int, data: list[memoryview]) -> list[Bytes]:
    """An EVENTS frame, as one piece if it is small."""
    parts = encode(EVENTS, STREAMS_CHANNEL, encode_control(Events(number)), data)
    return [b"".join(parts)] if sum(map(len, data)) <= _JOIN_BYTES else parts


def chunk_frame(number: int, chunk: Chunk, *, files: bool) -> list[Bytes]:
    """All of a chunk, or, for whoever reads `files`, where it is if that is worth a look."""
    size = chunk.size
    if not files or size < _PLACED_BYTES:
        return events_frame(number, chunk.data)
    placed = Placed(number, chunk.file, chunk.offset, size, chunk.last)
    return encode(PLACED, STREAMS_CHANNEL, encode_control(placed))


def rows_of(chunk: Chunk, start: int) -> list[Batch]:
    """The chunk's batches from `start` on, for filtering."""
    result = []
    for part in chunk.data:
        for batch in decode_all(part, verify=False):
            if batch.last >= start:
                result.append(from_sequence(batch, start))
    return result

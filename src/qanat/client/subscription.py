"""One subscription: what has arrived and not been taken, in order, with nothing skipped unsaid."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from qanat.client.errors import DeliveryGap, EventsLost, request_refused
from qanat.client.log_files import LogFiles, Piece
from qanat.client.record import Recording, RecordingFailed
from qanat.events import arguments
from qanat.events.batch import Batch, decode_all
from qanat.events.errors import LocalError, QanatError, RemoteError
from qanat.events.event import Event, events
from qanat.events.tombstones import from_sequence
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.streams import (
    CREDIT,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Credit,
    Lost,
    Placed,
    Refused,
    Seen,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribe,
    encode_control,
)

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient
    from qanat.client.link import Link
    from qanat.runtime.connection import Connection

_SMALL_BYTES = 4096
"""So little is copied out of the receive buffer, which it would otherwise hold in memory."""
Item = memoryview | Piece | QanatError | Lost
"""What arrives: batches, here or in a file of the server's; or what is to be told between them."""
Where = int | str | datetime
"""Where to start: a sequence number, `earliest`, `latest`, or a time."""


def starting_point(start: Where) -> tuple[Start, int | None]:
    """A user's `start` as the wire says it: a sequence number or word, and a time if it is one."""
    match start:
        case bool():
            raise LocalError(f"start={start!r} is no place in a stream")
        case int():
            if start < 1:
                raise LocalError(f"start={start}: sequence numbers begin at 1")
            return arguments.whole("start", start), None
        case datetime():
            if start.tzinfo is None:
                raise LocalError(f"start={start}: a time needs its zone; add tzinfo (UTC, for one)")
            return "earliest", int(start.timestamp() * 1_000_000)
        case "earliest" | "latest":
            return ("earliest" if start == "earliest" else "latest"), None
    raise LocalError(f"start={start!r}: give a sequence number, 'earliest', 'latest' or a datetime")


class _Anew(Exception):
    """Something is missing before what came."""


class Subscription:
    """Events of one stream, from a starting point on. Iterate for events, or use `batches()`.

    After a broken connection it goes on where it was. Events that the stream no longer keeps are told as
    `EventsLost` with the exact range; iterating again goes on after them.
    """

    def __init__(
        self,
        client: "AsyncClient",
        stream: str,
        start: Where,
        where: str,
        window_bytes: int,
        *,
        in_place: bool = False,
        alive: bool = False,
    ) -> None:
        self.alive = arguments.instance("alive", alive, bool, "True or False")
        self.stream, self.where = arguments.name("stream", stream), arguments.text("where", where)
        self.way: Literal["server", "both", "mesh"] = "server"
        """Where events come from: the server, or by way of the mesh from other clients, or both for a
        moment."""
        self.next = 0
        """The sequence number that comes next; 0 until the server has said where it starts."""
        self.upto = 0
        """The last sequence number that is asked for; 0 if there is no end."""
        self.end = 0
        """The stream's next sequence number at the moment of subscribing: all before it was there already."""
        self.recording: Recording | None = None
        """Where it is written down what is handed over, if it is to be."""
        self._began = 0
        self._client = client
        self._link: Link | None = None
        self._number = 0
        """At the link; a new one each time."""
        self._mended = 0
        """Where a gap was last mended; if it is still there after that, it is the server's own."""
        self._start, self._start_us = starting_point(start)
        self._window_bytes = window_bytes
        self._arrived: deque[Item] = deque()
        self._files: LogFiles | None = None
        """Of the server that we are subscribed at, if it is on this machine and we may read them."""
        self._wants_files = in_place
        self._ready: deque[Batch | QanatError] = deque()
        self._taken_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()  # to ask for it each time would be a system call each time
        self._connection: Connection | None = None
        self._error: QanatError | None = None
        self._confirmed = asyncio.Event()

    # --- taking -------------------------------------------------------------------------------------

    async def take(self) -> list[Batch]:
        """All batches that are here, at least one; waits for it."""
        ready = self._ready
        while not ready:
            await self._fill()
            if self.recording is not None and not ready:
                self._record(self.recording, self.next - 1)
        taken: list[Batch] = []
        while ready:
            item = ready[0]
            if isinstance(item, Batch):
                taken.append(item)
            elif taken:
                break  # first what came before it
            else:
                ready.popleft()
                if self.recording is not None and isinstance(item, EventsLost):
                    self._record(self.recording, item)
                raise item
            ready.popleft()
        if self.recording is not None:
            self._record(self.recording, taken)
        return taken

    def _record(self, recording: Recording, what: list[Batch] | EventsLost | int) -> None:
        """Before it is handed over. What cannot be recorded is not, and nothing after it."""
        try:
            if not recording.begun:
                recording.begin(self._began, self._client.region)
            if isinstance(what, int):
                recording.silent(what)
            elif isinstance(what, EventsLost):
                recording.lost(what)
            else:
                recording.took(what)
        except RecordingFailed as error:
            self._ready.clear()
            self._arrived.clear()
            self.on_disconnect()
            self._client._forget(self)
            self.fail(error)
            raise

    async def _fill(self) -> None:
        while not self._arrived:
            if self._error is not None:
                if self.recording is not None:
                    self.recording.end()
                raise self._error
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        try:
            while self._arrived:
                self._unpack(self._arrived.popleft())
        except _Anew:
            self._resubscribe()

    def _unpack(self, item: Item) -> None:
        match item:
            case memoryview():  # first, for it is what nearly always comes
                self._unpack_bytes(item)
            case Piece():
                self._unpack_piece(item)
            case Lost():
                if item.last >= self.next:
                    self._ready.append(EventsLost(self.stream, max(item.first, self.next), item.last))
                    self.next = item.last + 1
            case QanatError():
                self._ready.append(item)

    def _unpack_piece(self, piece: Piece) -> None:
        try:
            self._unpack_bytes(piece.read())
        except (OSError, QanatError):
            # The file was rewritten or dropped meanwhile, or is not what we took it for: let the server send
            # it.
            self._wants_files = False
            raise _Anew from None

    def _unpack_bytes(self, data: memoryview) -> None:
        size = len(data)
        if size <= _SMALL_BYTES:
            for batch in _decoded_small(bytes(data)):
                self._accept(batch)
        else:
            for batch in decode_all(data):
                self._accept(batch)
        self._taken_bytes += size
        if self._taken_bytes * 2 >= self._window_bytes and self._connection is not None:
            credit = Credit(self._number, self._taken_bytes)
            self._taken_bytes = 0
            self._connection.send(CREDIT, STREAMS_CHANNEL, encode_control(credit))

    def _accept(self, batch: Batch) -> None:
        """In order, exactly once: what was had is cut off, what is missing is an error."""
        first, after = batch.header.first, batch.header.first + batch.header.span
        if first != self.next:
            if after <= self.next:
                return
            if first > self.next:
                if self._mended != self.next:
                    raise _Anew
                self._ready.append(DeliveryGap(self.stream, self.next, first))
            else:
                batch = from_sequence(batch, self.next)
        self.next = after
        if batch.count:
            self._ready.append(batch)

    async def batches(self) -> AsyncIterator[Batch]:
        """Batches as they come: the fast way."""
        while True:
            for batch in await self.take():
                yield batch

    def __aiter__(self) -> "EventIterator":
        return EventIterator(self)

    async def confirmed(self) -> "Subscription":
        """Once the server has accepted: `next` and `end` are known, and nothing after this moment is
        missed."""
        await self._confirmed.wait()
        if self._error is not None:
            raise self._error
        return self

    async def close(self) -> None:
        self.on_disconnect()
        self._client._forget(self)
        self.fail(LocalError(f"the subscription to {self.stream!r} was closed"))

    async def __aenter__(self) -> "Subscription":
        return await self.confirmed()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- the connection's side ----------------------------------------------------------------------

    def on_connect(self, link: "Link") -> None:
        self._link, self._connection = link, link.connection
        self._number = link.enlist(self)
        self._taken_bytes = 0
        # What arrived and was not unpacked counts against the window until the application takes it.
        held = sum(map(_size, self._arrived))
        start: Start = self.next or self._start
        request = Subscribe(
            self._number,
            self.stream,
            self._resume_at() if self.next else start,
            None if self.next else self._start_us,
            self.where,
            max(self._window_bytes - held, 1),
            files=self._wants_files and link.connection.is_local and not self.where,
            upto=self.upto,
            alive=self.alive,
        )
        link.connection.send(SUBSCRIBE, STREAMS_CHANNEL, encode_control(request))

    def _resubscribe(self) -> None:
        """After a gap: what came behind it is thrown away, and asked for again from the gap on."""
        self._mended = self.next
        self._arrived.clear()
        link = self._link
        if link is not None:
            self.on_disconnect()
            self.on_connect(link)

    def _resume_at(self) -> int:
        """After what has arrived, taken or not."""
        at = self.next
        for item in self._arrived:
            if isinstance(item, memoryview):
                for batch in decode_all(item, verify=False):
                    at = max(at, batch.last + 1)
            elif isinstance(item, Lost | Piece):
                at = max(at, item.last + 1)
        return at

    def on_disconnect(self) -> None:
        if self._link is not None:
            self._link.dismiss(self._number)
            self._link.connection.send(
                UNSUBSCRIBE, STREAMS_CHANNEL, encode_control(Unsubscribe(self._number))
            )
        self._link = self._connection = None

    def on_subscribed(self, subscribed: Subscribed) -> None:
        if self.alive and not subscribed.alive:
            self.on_disconnect()
            self.on_refused(
                Refused(self._number, "too_old", "this server is too old to leave out what is dead (`alive`)")
            )
            return
        self._files = LogFiles.of(subscribed.folder)
        if self._files is None and subscribed.folder is not None:
            self._wants_files = False
            self._resubscribe()
            return
        if not self.next:
            self.next = self._began = subscribed.start
            self.end = subscribed.next
        self._confirmed.set()

    def on_refused(self, refused: Refused) -> None:
        self._client._forget(self)
        self.fail(request_refused(refused.code, refused.message, self.stream))

    def on_seen(self, seen: Seen) -> None:
        """For a subscription that only looks."""

    def on_item(self, item: "memoryview | Lost") -> None:
        self._arrived.append(item)
        self._wake()

    def on_placed(self, placed: Placed) -> None:
        if self._files is None:
            raise RemoteError("the server names a place in files that were not asked for")
        self._arrived.append(Piece(self._files, placed))
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: QanatError) -> None:
        if self.recording is not None:
            self.recording.end()
        self._error = error
        self._confirmed.set()
        self._wake()


_last_small: tuple[bytes, list[Batch]] = b"", []


def _decoded_small(data: bytes) -> list[Batch]:
    """Where many subscriptions of one process get the same bytes, they are checked once: batches are
    immutable."""
    global _last_small
    known, batches = _last_small
    if data != known:
        batches = list(decode_all(data))
        _last_small = data, batches
    return batches


def _size(item: Item) -> int:
    return len(item) if isinstance(item, memoryview) else item.size if isinstance(item, Piece) else 0


class EventIterator:
    """Events one by one. Unlike a generator it survives the errors that it raises: go on with the next."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._batches: deque[Batch] = deque()
        self._events: Iterator[Event] = iter(())

    def __aiter__(self) -> "EventIterator":
        return self

    async def __anext__(self) -> Event:
        while True:
            for event in self._events:
                return event
            if not self._batches:
                self._batches.extend(await self._subscription.take())
            self._events = events(self._batches.popleft())

"""What a client publishes to one stream: batched, pipelined, sent again after a broken connection.

Every batch carries the client's name as its source and dense positions. The stream remembers how far it has
each source, so sending again is harmless: that makes publishing exactly once however often connections break.

A batch is *waiting*, then *flying* (sent, not yet answered), then stored or refused. Positions are given when
it takes off. After a refusal those behind it are refused too, because the position before them is missing:
they land, and take off again with new positions.

A stream that does not know a source lets it begin at any position. So until something of this source is known
to be stored, one batch flies at a time: else the second could be stored though the first was lost with its
server, and the first, sent again, would count as a repetition.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qanat.client.errors import PublishRefused, publish_refused, unsure
from qanat.client.flight import Flight
from qanat.client.gathering import Gathering
from qanat.client.rows import SMALLEST_BYTES, Rows
from qanat.client.staging import StagingFolder
from qanat.events.batch import stream_id
from qanat.events.encode import Array, encode_parts, prepare
from qanat.events.errors import QanatError
from qanat.events.layout import FRAME_LIMIT
from qanat.events.position import Position
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.streams import (
    NO_STREAM,
    OPEN,
    PUBLISH,
    Open,
    Opened,
    Publish,
    Refused,
    Stored,
    encode_control,
)

if TYPE_CHECKING:
    from qanat.client.link import Link

log = logging.getLogger("qanat.client")


class Outbox(Gathering):
    """The publishing side of one stream."""

    def __init__(
        self,
        stream: str,
        source: str,
        durability: str,
        now_us: Callable[[], int],
        forget: Callable[[], None],
        *,
        batch_bytes: int,
        window_bytes: int,
        in_place: bool = False,
    ) -> None:
        super().__init__(stream, now_us, forget, batch_bytes, window_bytes)
        self.source, self.durability = source, durability
        self.stream_id = stream_id(stream)
        self.opened: Opened | None = None
        self._flying_limit = window_bytes
        """Bytes under way at which nothing more takes off: the window; or 1, that is one batch, to try
        first."""
        self._link: Link | None = None
        self._connection: Connection | None = None
        self._waiting: deque[Flight] = deque()
        self._flying: deque[Flight] = deque()
        self._landed_behind: list[Flight] = []
        self._flying_bytes = 0
        self._stored = 0
        self._next_position = 1
        self._ours = 0
        """The highest position that this client gave, or went on from."""
        self._refused = self._unsure = False
        self._open_request = 0
        self._roomy: list[asyncio.Future[None]] = []
        self._in_place = in_place
        self._staging: StagingFolder | None = None

    # --- publishing ---------------------------------------------------------------------------------

    def put(
        self, payloads: Any, keys: Any, attributes: Any, time_us: int, kinds: Array | None = None
    ) -> Flight:
        """A batch from columns; raises what `prepare` raises, and then nothing was taken. Large payloads are
        not copied."""
        return self._put(self._prepared(payloads, keys, attributes, time_us, kinds))

    def put_together(self, parts: list[Rows], time_us: int) -> list[Flight]:
        """Batches from columns, in one flight: for a file of their own. In many, if they came out too large
        for a frame."""
        flights = [self._prepared(part.payloads, part.keys, part.attributes, time_us) for part in parts]
        if sum(flight.size for flight in flights) <= FRAME_LIMIT:
            flights = [self.joined(flights)]
        return [self._put(flight) for flight in flights]

    def joined(self, flights: list[Flight], file: str = "") -> Flight:
        """As one. It counts as a quarter of the window at most: its bytes are not in our memory, and the next
        are laid down while it is synced. If they are in a `file` already, as a 64th: nothing is written
        meanwhile, and one sync covers as many as are there."""
        share = 64 if file else 4
        flight = flights[0] if len(flights) == 1 else Flight.together(flights, self._window_bytes // share)
        flight.file = file
        return flight

    @property
    def stages(self) -> bool:
        """Whether large publishes may be laid down in the stream's folder."""
        return self._staging is not None

    def _prepared(
        self, payloads: Any, keys: Any, attributes: Any, time_us: int, kinds: Array | None = None
    ) -> Flight:
        if self.error is not None:
            raise self.error
        draft = prepare(
            self.stream_id,
            payloads,
            keys=keys,
            attributes=attributes,
            kinds=kinds,
            time_us=time_us,
            source=self.source,
            position=0,
        )
        return Flight(encode_parts(draft), draft.payloads.count)

    def _put(self, flight: Flight) -> Flight:
        self.queued_bytes += flight.weight
        self._waiting.append(flight)
        self.take_off()
        return flight

    @property
    def unanswered(self) -> int:
        return len(self._flying) + len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether a polite publisher waits (`room`) before it goes on."""
        return self.queued_bytes + self._buffered >= self._window_bytes

    async def room(self) -> None:
        """Until less than the window is queued."""
        self.flush()
        while self.full and self.error is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._roomy.append(waiter)
            await waiter
        if self.error is not None:
            raise self.error

    async def known(self) -> int:
        """The highest position of this source that the stream had when it was opened."""
        while self.opened is None and self.error is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._roomy.append(waiter)
            await waiter
        if self.error is not None:
            raise self.error
        return self._stored

    async def drained(self) -> None:
        """Until everything published so far was answered."""
        self.flush()
        while self._waiting or self._flying:
            await asyncio.shield((self._waiting or self._flying)[-1].wait())

    # --- the connection's side ----------------------------------------------------------------------

    def on_connect(self, link: "Link") -> None:
        self._link, self._connection = link, link.connection
        link.board(self)
        self._open(link)

    def _open(self, link: "Link") -> None:
        self.opened = None
        self._open_request = link.expect(self)
        files = self._in_place and link.connection.is_local
        request = Open(self._open_request, self.stream, self.source, True, self.durability, files)
        link.connection.send(OPEN, STREAMS_CHANNEL, encode_control(request))

    def on_disconnect(self) -> None:
        if self._link is not None:
            self._link.leave(self)
        self._link = self._connection = None
        self.opened = self._staging = None

    def on_opened(self, opened: Opened) -> None:
        link = self._link
        if opened.request != self._open_request or link is None:
            return
        if 0 < self._ours < opened.position:
            self._passed_by(opened.position)
        self.opened = opened
        self._staging = StagingFolder.of(opened.staging)
        if opened.position < self._stored:
            # What was acknowledged is gone (a power cut without synced writes): go on from what is left.
            if opened.position:
                lost = {"stream": self.stream, "had": self._stored, "has": opened.position}
                log.warning("a server came back without events that it had acknowledged", extra=lost)
                self._stored = opened.position
            self._restamp(
                self._stored + 1
            )  # a stream that does not know this source takes any number from it
        elif not self._flying:
            # This source has published before, in an earlier life or without an answer: its numbering goes
            # on.
            self._stored = self._ours = opened.position
            self._next_position = opened.position + 1
        self._flying_limit = self._window_bytes
        if not opened.position or link.doubtful_head:
            self._flying_limit = 1
            self._take_back()
            self._mend()
        for flight in self._flying:
            flight.request = link.expect(self)
            self._send(flight)
        self.take_off()
        if self._flying_limit != 1 or not self._flying:
            link.served_as_head()
        self._wake()

    def _passed_by(self, position: int) -> None:
        """Another published under our source while we were away. Under the positions that they have, our
        events would pass for repetitions: whether those under way are stored is not known any more, and those
        behind them go on after the other's."""
        what = (
            f"another client published to {self.stream!r} under source {self.source!r} while this one was"
            " away"
        )
        log.warning("%s: give each a name of its own", what, extra={"ours": self._ours, "theirs": position})
        error = PublishRefused(
            "source_taken",
            f"{what}, so whether this event is stored is not known: give each a name of its own",
            definite=False,
        )
        self._stored = self._ours = position
        self._next_position = position + 1
        flying, self._flying, self._flying_bytes = self._flying, deque(), 0
        for flight in flying:
            weight = flight.weight
            flight.land(0, 0, error)
            self._freed(weight)
        self._unsure = False
        self._mend()

    def _take_back(self) -> None:
        """What was under way waits again, for the same positions."""
        if self._flying:
            self._next_position = self._flying[0].position
            self._waiting.extendleft(reversed(self._flying))
            self._flying.clear()
            self._flying_bytes = 0

    def _restamp(self, position: int) -> None:
        for flight in self._flying:
            flight.reposition(position)
            position += flight.count
        self._next_position = position
        self._ours = position - 1

    def take_off(self) -> None:
        """Sends what may go: opened, writable, inside the window, and no refusal being mended."""
        connection, link = self._connection, self._link
        if link is None or connection is None or self.opened is None or self._refused:
            return
        while self._waiting and connection.writable and self._flying_bytes < self._flying_limit:
            flight = self._waiting.popleft()
            flight.request = link.expect(self)
            flight.reposition(self._next_position)
            self._next_position += flight.count
            self._ours = max(self._ours, self._next_position - 1)
            self._flying.append(flight)
            self._flying_bytes += flight.weight
            self._send(flight)

    def _send(self, flight: Flight) -> None:
        self._hand_over(flight, None)

    def _hand_over(self, flight: Flight, after: Position | None) -> None:
        """Sends a flight, or lays it down where it is large and may be."""
        if self._connection is None:
            return
        name = ""
        if flight.size >= SMALLEST_BYTES and self._staging is not None:
            name = self._staging.lay_down(flight)
            if not name:
                self._staging = None  # as everybody else then, until the stream is opened again
        control = encode_control(Publish(flight.request, after, name))
        self._connection.send(PUBLISH, STREAMS_CHANNEL, control, () if name else flight.parts)

    def on_stored(self, stored: Stored) -> None:
        flight = self._answered(stored.request)
        if flight is not None:
            self._stored = max(self._stored, flight.position + flight.count - 1)
            if self._flying_limit == 1:
                self._proven()
            first = 0 if stored.dropped else stored.first
            weight = flight.weight
            flight.land(first, stored.last or -1)
            self._freed(weight)
            self._mend()

    def _proven(self) -> None:
        """The one batch that was to try first is stored: the others may follow without a pause."""
        self._flying_limit = self._window_bytes
        if self._link is not None:
            self._link.served_as_head()

    def on_refused(self, refused: Refused) -> None:
        if refused.request == self._open_request:
            self.fail(self._error_of(refused))
            return
        if (
            refused.code == NO_STREAM and refused.definite
        ):  # it was removed: publishing on would make another one
            self.fail(self._error_of(refused))
            return
        flight = self._answered(refused.request)
        if flight is None:
            return
        if self._refused and refused.code == "position_gap":
            self._landed_behind.append(flight)
        elif refused.code == "source_moved":  # it takes off again, from where the source is now
            self._refused = self._unsure = True
            self._landed_behind.append(flight)
        else:
            self._refused = True
            self._unsure = self._unsure or not refused.definite
            weight = flight.weight
            flight.land(0, 0, self._error_of(refused))
            self._freed(weight)
        self._mend()

    def _error_of(self, refused: Refused) -> QanatError:
        owner = self._link.owner_of(self.stream) if self._link is not None else ""
        return publish_refused(refused.code, refused.message, refused.definite, self.stream, owner)

    def _mend(self) -> None:
        """After a refusal: once nothing flies, the batches that landed behind it take off again.

        If what was refused may have been stored all the same, the server is asked first: under positions that
        are had, those behind would pass for repetitions.
        """
        if self._refused and not self._flying:
            self._refused = False
            self._next_position = self._stored + 1
            self._waiting.extendleft(reversed(self._landed_behind))
            self._landed_behind = []
            if self._unsure and self._link is not None:
                self._unsure = False
                self._open(self._link)
            self.take_off()

    def _answered(self, request: int) -> Flight | None:
        for flight in self._flying:  # the first of them, unless a batch was refused before it reached the log
            if flight.request == request:
                self._flying.remove(flight)
                self._flying_bytes -= flight.weight
                return flight
        return None  # an answer from before the connection broke

    def _freed(self, weight: int) -> None:
        self.queued_bytes -= weight
        if self._held:
            self._turn_over()
        if self._waiting:
            self.take_off()
        if self._roomy and not self.full:
            self._wake()

    def _wake(self) -> None:
        """Whoever waits looks again whether what it waits for is there."""
        waiters, self._roomy = self._roomy, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: QanatError) -> None:
        """Nothing more goes out: every flight ends with `error`, and so does every later publish."""
        self.error = error
        self.flush()
        for flight in self._flying:
            flight.land(0, 0, unsure(error))
        for flight in (*self._landed_behind, *self._waiting):
            flight.land(0, 0, error)
        self._flying.clear()
        self._waiting.clear()
        self._landed_behind.clear()
        self.queued_bytes = self._flying_bytes = 0
        self._wake()

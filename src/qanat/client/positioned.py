"""Publishing under positions of the publisher's own: those of a log that it reads and that can be read again.

Where a client numbers its events itself, positions are dense and the stream notices when one is missing. A
datastore's positions have gaps, so nothing but order protects them: after a refusal none may be stored.
Several batches are under way only where the stream looks after that: if each says behind which position it
comes, to a server that compares (`Opened.ordered`); or if they are dense for a while. Otherwise it is one at
a time. If a stream comes back without what it had acknowledged (durability `interval` or `memory`), the
publisher is told how far it has it, and reads again from there.
"""

from typing import Any

from qanat.client.errors import PositionsLost
from qanat.client.flight import Flight
from qanat.client.outbox import Outbox
from qanat.client.rows import Rows
from qanat.client.staging import StagingFolder
from qanat.events.encode import Array, encode_parts, prepare
from qanat.events.errors import LocalError
from qanat.events.layout import FRAME_LIMIT
from qanat.events.position import Position
from qanat.wire.streams import Opened, Refused, Stored

Positions = tuple[Array, Array]
"""Sequences and indexes, one of each per event, rising."""


class PositionedOutbox(Outbox):
    """The publishing side of one stream, for events that have positions."""

    highest: Position | None = None
    """What the stream was last known to have; None until it has said so."""
    told = False
    """Whether the publisher knows that the stream was set back."""
    _last: Flight | None = None
    """What was published last."""

    def put(
        self, payloads: Any, keys: Any, attributes: Any, time_us: int, kinds: Array | None = None
    ) -> Flight:
        raise LocalError(
            f"this client publishes to {self.stream!r} under positions of a log; use another client for"
            " events without"
        )

    def put_at(self, payloads: Any, keys: Any, attributes: Any, positions: Positions, time_us: int) -> Flight:
        """A batch from columns, with the position of each event."""
        return self.put_flight(self._positioned(payloads, keys, attributes, positions, time_us))

    def put_together_at(self, parts: list[Rows], places: list[Positions], time_us: int) -> list[Flight]:
        """The same of many batches, in one flight (in many, if they came out too large for a frame)."""
        flights = [
            self._positioned(part.payloads, part.keys, part.attributes, positions, time_us)
            for part, positions in zip(parts, places, strict=True)
        ]
        if sum(flight.size for flight in flights) <= FRAME_LIMIT:
            flights = [self.joined(flights)]
        return [self.put_flight(flight) for flight in flights]

    def _positioned(
        self, payloads: Any, keys: Any, attributes: Any, positions: Positions, time_us: int
    ) -> Flight:
        if self.error is not None:
            raise self.error
        draft = prepare(
            self.stream_id,
            payloads,
            keys=keys,
            attributes=attributes,
            time_us=time_us,
            source=self.source,
            positions=positions,
        )
        flight = Flight(encode_parts(draft), draft.payloads.count)
        flight.end = Position(int(positions[0][-1]), int(positions[1][-1]))
        return flight

    def put_flight(self, flight: Flight) -> Flight:
        """A batch that is encoded already; its `position` is 0 unless its positions are dense."""
        if self.error is not None:
            raise self.error
        if self._last is not None:
            flight.after = self._last.end
        self._last = flight
        self.queued_bytes += flight.weight
        self._waiting.append(flight)
        self.take_off()
        return flight

    async def reached(self) -> Position:
        """How far the stream has this source."""
        await self.known()
        return self.highest or Position(0, 0)

    def on_opened(self, opened: Opened) -> None:
        link = self._link
        if opened.request != self._open_request or link is None:
            return
        found = Position(opened.position, opened.index)
        if self.highest is not None and found < self.highest:
            self.fail(PositionsLost(self.stream, self.source, self.highest, found))
            return
        self.opened, self.highest = opened, found
        self._staging = StagingFolder.of(opened.staging)
        while len(self._flying) > 1 and not self._may_follow(self._flying[-1], self._flying[-2]):
            self._waiting.appendleft(self._flying.pop())  # the server before this one was of another kind
        for flight in self._flying:
            flight.request = link.expect(self)
            self._send(flight)
        self.take_off()
        if not self._flying:
            link.served_as_head()
        self._wake()

    def take_off(self) -> None:
        link, connection = self._link, self._connection
        if link is None or connection is None or self.opened is None:
            return
        while self._waiting and connection.writable:
            if self._flying and not self._may_follow(self._waiting[0], self._flying[-1]):
                return
            flight = self._waiting.popleft()
            flight.request = link.expect(self)
            self._flying.append(flight)
            self._send(flight)

    def _may_follow(self, flight: Flight, before: Flight) -> bool:
        """Whether it may be sent before the answer to the one before it."""
        if flight.position and before.position:
            return True
        return self.opened is not None and self.opened.ordered and flight.after == before.end

    def _send(self, flight: Flight) -> None:
        ordered = self.opened is not None and self.opened.ordered
        self._hand_over(flight, flight.after if ordered else None)

    def on_stored(self, stored: Stored) -> None:
        flight = self._landed(stored.request)
        if flight is not None:
            self.highest = max(self.highest or flight.end, flight.end)
            if self._link is not None:
                self._link.served_as_head()
            weight = flight.weight
            flight.land(0 if stored.dropped else stored.first, stored.last or -1)
            self._freed(weight)
            self.take_off()

    def on_refused(self, refused: Refused) -> None:
        """Nothing that stands behind it may be stored before it: all that waits fails with it."""
        error = self._error_of(refused)
        flight = self._landed(refused.request)
        if flight is not None:
            flight.land(0, 0, error)
        if flight is not None or refused.request == self._open_request:
            self.fail(error)

    def _landed(self, request: int) -> Flight | None:
        for (
            flight
        ) in self._flying:  # the first of them, unless one behind it is refused before it reaches the log
            if flight.request == request:
                self._flying.remove(flight)
                return flight
        return None

"""A stream at a replica: publishes go through the chain, subscribers are shown what the whole chain has."""

from collections import deque
from collections.abc import Callable

import msgspec

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.events.verify import check_given
from qanat.log import StreamLog
from qanat.log.errors import CorruptLog
from qanat.log.reader import Chunk, Truncated
from qanat.log.walk import check_times
from qanat.protocols.chain import Refused as ChainRefused
from qanat.replica.tickets import Outcome, Tickets
from qanat.runtime.connection import Connection
from qanat.serving.acknowledgements import Answer, Answers
from qanat.serving.delivery import READ_BYTES
from qanat.serving.refusals import PositionMissing, refusal
from qanat.serving.served_stream import ServedStream
from qanat.wire.streams import (
    NOT_HEAD,
    Open,
    Opened,
    Refused,
    Stored,
)

Damaged = Callable[[int, CorruptLog], LocalError]


def _source(batch: Batch) -> str:
    return batch.source_names[0] if batch.source_names else ""


class _Asked:
    """One request of a client, until the chain has answered all of it."""

    __slots__ = ("_stream", "answer", "connection", "dropped", "first", "last", "left", "refused")

    def __init__(
        self, stream: "ChainedStream", connection: Connection, answer: Stored | Opened, left: int
    ) -> None:
        self._stream, self.connection, self.answer, self.left = stream, connection, answer, left
        self.first = self.last = self.dropped = 0
        self.refused: Refused | None = None

    def on_outcome(self, outcome: Outcome) -> None:
        """Of one of its batches."""
        self.left -= 1
        if isinstance(outcome, ChainRefused):
            self.refused = self.refused or self._refusal(outcome)
        else:
            self.first, self.last = self.first or outcome.first, outcome.last
            self.dropped += outcome.dropped
        if not self.left:
            self._stream.settled()

    def refuse(self, why: "ChainRefused | LocalError") -> None:
        """All of it; nothing was handed to the chain."""
        request = self.answer.request
        self.left, self.refused = (
            0,
            refusal(request, why) if isinstance(why, LocalError) else self._refusal(why),
        )
        self._stream.settled()

    def _refusal(self, outcome: ChainRefused) -> Refused:
        reason = f"{outcome.reason}; the head is {outcome.head}" if outcome.head else outcome.reason
        reason = reason if outcome.code == NOT_HEAD else outcome.reason
        return Refused(self.answer.request, outcome.code, reason, outcome.definite)

    def outcome(self) -> Answer:
        if self.refused is not None:
            # Not definite if another batch of the same publish is stored.
            definite = self.refused.definite and not self.first
            return msgspec.structs.replace(self.refused, definite=definite)
        if isinstance(self.answer, Opened):
            return self.answer
        return Stored(self.answer.request, self.first, self.last, self.dropped)


class ChainedStream(ServedStream):
    """`stable` is how far the whole chain has it; delivery goes up to there. `owner` is the region that
    numbers it; `damaged` is told of damage that a reader finds, and says what that reader is told."""

    ordered = True

    def __init__(
        self, name: str, owner: str, stream_log: StreamLog, tickets: Tickets, damaged: Damaged | None = None
    ) -> None:
        self.stable = 0
        super().__init__(name, stream_log)
        self.owner = owner
        self._tickets, self._damaged = tickets, damaged
        self._asked: deque[_Asked] = deque()
        self._settling = self._fanning = False

    @property
    def readable(self) -> int:
        return self.stable

    def read(self, start: int, size: int = READ_BYTES) -> Chunk | Truncated:
        return self.log.read(start, size, upto=self.stable)

    def damaged(self, error: CorruptLog) -> LocalError:
        return error if self._damaged is None else self._damaged(self.log.stream, error)

    # --- publishing ---------------------------------------------------------------------------------

    def publish(
        self,
        connection: Connection,
        request: int,
        batches: list[Batch],
        after: tuple[int, int] | None = None,
    ) -> bool:
        """Hands the batches to the chain. Answers go out in the order of the publishes.

        What comes behind a position is handed over once the log has that, and the chain appends it in the
        same step, or holds it until the head's era is on disk: a log loses nothing that it has without what
        came later. Where the log lacks the position, this replica is not the head; or holds what was
        published before; or that was refused. A publish of nothing, which comes after all of them, tells
        which.
        """
        asked = _Asked(self, connection, Stored(request, 0, 0), len(batches))
        self._asked.append(asked)
        try:
            self.writers.check(connection, batches)
            latest_us = self.latest_us
            for batch in batches:
                check_given(batch)
                check_times(batch, latest_us)
        except LocalError as error:
            asked.refuse(error)
            return False
        self.writers.took(connection, batches)
        position = None if after is None else Position(*after)
        if self._has(batches[0], position):
            self._hand_over(asked, batches)
        else:

            def then(outcome: Outcome) -> None:
                if isinstance(outcome, ChainRefused):
                    asked.refuse(outcome)
                elif self._has(batches[0], position):
                    self._hand_over(asked, batches)
                else:
                    asked.refuse(self._missing(batches[0], position))

            nothing = Batch.build(self.log.stream, [])
            self._tickets.publish(nothing, then, beside=sum(batch.size for batch in batches))
        self._tickets.hold(connection)
        return False

    def _hand_over(self, asked: _Asked, batches: list[Batch]) -> None:
        for batch in batches:
            self.published_bytes += batch.size
            self._tickets.publish(batch, asked.on_outcome)

    def _has(self, batch: Batch, position: Position | None) -> bool:
        """Whether the batch's source was published up to there, as far as this replica knows."""
        return position is None or self.log.position(_source(batch)) >= position

    def _missing(self, batch: Batch, position: Position | None) -> PositionMissing:
        source = _source(batch)
        return PositionMissing(
            f"this batch of source {source!r} comes behind {position}, but stream {self.name!r} has it up to"
            f" {self.log.position(source)}: publish what lies between first"
        )

    def open(self, connection: Connection, message: Open) -> None:
        """Says what of the source is stored, once all that this head has numbered is: a publish of nothing
        tells when.

        Otherwise a publisher would take for stored what a head that dies now has told nobody else.
        """
        asked = _Asked(self, connection, self.opened(connection, message), 1)
        self._asked.append(asked)
        self._tickets.publish(Batch.build(self.log.stream, []), asked.on_outcome)

    def forget(self, connection: Connection) -> None:
        super().forget(connection)
        self._tickets.forget(connection)

    def settled(self) -> None:
        """A request has its outcome; those that came together go out together."""
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._settling = False
        asked = self._asked
        answers = Answers()
        while asked and not asked[0].left:
            done = asked.popleft()
            if done.refused is None:
                self.published_events += max(0, done.last - done.first + 1) if done.first else 0
                self.duplicate_events += done.dropped
            answers.add(done.connection, done.outcome())
        answers.send()

    @property
    def unanswered(self) -> int:
        return len(self._asked)

    def expire(self, now_us: int) -> bool:
        """Publishes the GC event that is due, if one is; for the head of the stream's owner. Whether it
        did."""
        event = self.expiry(now_us)
        if event is None:
            return False
        self._tickets.publish(event, lambda _outcome: None)
        return True

    # --- showing ------------------------------------------------------------------------------------

    def on_stable(self, upto: int) -> None:
        """The chain has it all up to here; what comes together is shown together."""
        self.stable = max(self.stable, upto)
        if not self._fanning:
            self._fanning = True
            self._loop.call_soon(self._fan_out)

    def _fan_out(self) -> None:
        self._fanning = False
        self.fan_out()

    def replace_log(self, stream_log: StreamLog) -> None:
        """What was held was not the chain's and is gone; the stream begins anew here."""
        self.trailing.stop()
        self.log, self.stable, self._edge = stream_log, 0, 0

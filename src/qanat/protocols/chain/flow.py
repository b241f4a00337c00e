"""A replica's state, and what follows from it: marks up and down, answers, what is shown, what is sent on.

Two marks per stream travel with the events. Downward, `safe`: all replicas before you have it on disk.
Upward, `stored`: I and all after me have it on disk. The head answers a publisher by the second, the tail
shows events by the first; both then mean the whole chain.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, get_args

import msgspec
import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.tombstones import tombstone
from qanat.kernel import Address, Context, Machine, require
from qanat.protocols.chain.config import ChainConfig
from qanat.protocols.chain.configuration import CaughtUp, Configuration, Failed, Member
from qanat.protocols.chain.downstream import Downstream
from qanat.protocols.chain.eras import Eras
from qanat.protocols.chain.knowledge import Knowledge
from qanat.protocols.chain.messages import Ack, ChainMessage, Forward, Hello, Lacks, Positions
from qanat.protocols.chain.records import Record, encode
from qanat.protocols.chain.requests import Answered, ChainItem, ChainRequest, Publish, Stable, Store
from qanat.protocols.history import History, HistoryTruncated

GATHER, LACKS = "gather", "lacks"
Report = Callable[[CaughtUp | Failed], None]


class ChainHistory(History, Protocol):
    """A history that knows what it holds."""

    def streams(self) -> list[int]:
        """Every stream of which anything is held, in a fixed order."""

    def synced(self, stream: int) -> int | None:
        """How far it is on disk for certain; None if its durability lets it lose its end."""


class Ticket(msgspec.Struct, frozen=True):
    number: int
    first: int
    last: int
    dropped: int
    upto: int


class Flow(Machine[ChainMessage, ChainRequest]):
    """`owns` says which streams this region numbers; `may_serve(now_us)` whether the session's lease holds;
    `report` is told of failures and of the token; `wary_us` is how long another's lease may outlast its
    removal; `stable` is told of each stream of which the tail shows more."""

    delivers = get_args(ChainItem)

    def __init__(
        self,
        context: Context,
        config: ChainConfig,
        history: ChainHistory,
        *,
        owns: Callable[[int], bool],
        may_serve: Callable[[int], bool],
        report: Report,
        wary_us: int,
        stable: Callable[[int], None],
    ) -> None:
        super().__init__(context)
        self.config, self.history, self._stable = config, history, stable
        self.owns, self._leased, self._report, self._wary_us = owns, may_serve, report, wary_us
        self.knowledge = Knowledge(self._record)
        self.eras = Eras(config.eras_max)
        self.configuration: Configuration | None = None
        self.me: Member | None = None
        self.down: Downstream | None = None
        self._leader: Member | None = None
        self._round = 0
        self._welcomed = False
        self._safe: dict[int, int] = {}
        self._stored_sent: dict[int, int] = {}
        self._early: dict[Address, Hello] = {}
        self._tickets: dict[int, deque[Ticket]] = {}
        self._ticket_count = 0
        self._shown: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        self._waiting = False
        self.frozen = False
        self._frozen_at: dict[int, int] = {}
        self._token_given = False
        self._resetting: dict[int, None] = {}
        self.lacks_room = False
        """It was welcomed in this epoch, and asks its predecessor now and then for what found no room on its
        disk."""
        self.follower_lacks = ""
        """Why somebody after it cannot store what comes, in a sentence of that one."""
        self._written = self._on_disk = 0
        """Records that were persisted, counted, and those of them that are on disk."""
        self.fence = 0
        """Nothing of this era is stored before so many records are on disk."""
        self._touched: dict[int, None] = {}
        self._held: list[Forward | Positions | Publish | Store] = []

    # Where we stand

    @property
    def epoch(self) -> int:
        return 0 if self.configuration is None else self.configuration.epoch

    @property
    def _line(self) -> Configuration | None:
        """The configuration, if it gives anybody a place."""
        now = self.configuration
        return None if now is None or now.recovering else now

    @property
    def is_member(self) -> bool:
        return self._line is not None and self.me in self._line.replicas

    @property
    def is_head(self) -> bool:
        return self._line is not None and self.me == self._line.head

    @property
    def is_tail(self) -> bool:
        return self._line is not None and self.me == self._line.tail

    @property
    def confirmed(self) -> bool:
        return self.configuration is not None and self.configuration.confirmed

    def answers(self, now_us: int) -> bool:
        """Whether this is the head, and nothing but the others' disks and time can keep a publish from its
        answer."""
        ready = self.is_head and self.confirmed and not self.is_fenced and not (self.frozen and self.is_tail)
        follows = self.down is None or self.down.joining or self.down.welcomed
        return ready and follows and self._leased(now_us)

    def serves(self, now_us: int) -> bool:
        """Whether this is the tail and may show events now."""
        ready = self.is_tail and self.confirmed and not self._waiting and not self.frozen
        return ready and (self._welcomed or self.lacks_room or self.is_head) and self._leased(now_us)

    @property
    def unanswered(self) -> int:
        """Publishes that wait for the chain or for the fence."""
        return self._ticket_count + len(self._held)

    def shown(self, stream: int) -> int:
        """How far this replica, as the tail, has shown the stream in this life."""
        return self._shown.get(stream, 0)

    def settled(self, stream: int) -> int:
        """How far the stream cannot change any more, whoever fails: every replica of a confirmed
        configuration had it on disk.

        For the sake of an event beyond this nothing may be collected: the chain may lose that event, and
        would have lost what it collected as well. What another region numbered is settled where it comes
        from.
        """
        if not self.owns(stream):
            return self.history.counter(stream)
        if self.is_member and self.confirmed and (self._welcomed or self.is_head):
            common = min(self._stored(stream), self._is_safe(stream))
            self._settled[stream] = max(common, self._settled.get(stream, 0))
        return self._settled.get(stream, 0)

    @property
    def is_fenced(self) -> bool:
        return self._on_disk < self.fence

    @property
    def _writes(self) -> bool:
        """What is said now would leave this node only when its records are on disk, and a lease that is held
        now may be over by then. So nothing is answered or shown meanwhile."""
        return self._on_disk < self._written

    # Marks

    def _stored(self, stream: int) -> int:
        """How far this replica and all after it have the stream on disk."""
        durable = self.history.durable(stream)
        if self.down is None or self.down.joining:
            return durable
        return min(durable, self.down.acked.get(stream, 0))

    def _is_safe(self, stream: int) -> int:
        """How far this replica and all before it have the stream on disk."""
        durable = self.history.durable(stream)
        return durable if self.is_head else min(durable, self._safe.get(stream, 0))

    def _advance(self, now_us: int, streams: Iterable[int]) -> None:
        """Something changed in these streams: tell those before and after, publishers and readers."""
        streams = list(streams)
        if self._line is None or self.me is None or self.me not in self._line.line:
            return
        if self._leader is not None and self._welcomed:
            self._ack(streams)
        if self.is_head:
            self._answer(now_us, streams)
        self._pump(streams)
        self._show(now_us, streams)
        self._hand_over(now_us)

    def _advance_soon(self, streams: Iterable[int]) -> None:
        """Once for all that comes together, by a timer that runs out at once: small publishes arrive many at
        a time, and each would be a message down the chain, and an acknowledgement up. To be late with it is
        as if the disk had been slow."""
        if not self._touched:
            self.context.set_timer(GATHER, 0)
        self._touched.update(dict.fromkeys(streams))

    def _advance_all(self, now_us: int) -> None:
        """Something changed in the chain itself. A stream that holds nothing yet may still have publishers
        who wait."""
        self._advance(now_us, dict.fromkeys([*self.history.streams(), *self._tickets]))

    def _ack(self, streams: Iterable[int], *, always: bool = False) -> None:
        marks = []
        if not (self.frozen and self.is_tail):
            for stream in streams:
                stored = self._stored(stream)
                if stored > self._stored_sent.get(stream, 0):
                    self._stored_sent[stream] = stored
                    marks.append((stream, stored))
        if (marks or always) and self._leader is not None:
            self.context.send(self._leader.at(), Ack(self.epoch, self._round, tuple(marks)))

    def _answer(self, now_us: int, streams: Iterable[int]) -> None:
        if (self.frozen and self.is_tail) or not self.confirmed or not self._leased(now_us) or self._writes:
            return
        for stream in streams:
            tickets = self._tickets.get(stream)
            if not tickets:
                continue
            stored = self._stored(stream)
            while tickets and tickets[0].upto <= stored:
                ticket = tickets.popleft()
                self._ticket_count -= 1
                self.context.deliver(
                    Answered(
                        self.epoch,
                        ticket.number,
                        stream,
                        ticket.first,
                        ticket.last,
                        ticket.dropped,
                        ticket.upto,
                    )
                )

    def _show(self, now_us: int, streams: Iterable[int]) -> None:
        if not self.serves(now_us) or self._writes:
            return
        for stream in streams:
            upto = self._is_safe(stream)
            if upto > self._shown.get(stream, 0):
                self._shown[stream] = upto
                self.context.deliver(Stable(self.epoch, stream, upto))
                self._stable(stream)

    # Sending down

    def _pump(self, streams: Iterable[int]) -> None:
        """Send what the follower lacks of these streams, within the window."""
        down = self.down
        if down is None or not down.welcomed:
            return
        for stream in streams:
            counter = self.history.counter(stream)
            down.behind.pop(stream, None)
            while down.sent.get(stream, 0) < counter:
                if not self._has_room(down):
                    down.behind[stream] = None
                    break
                self._send_events(down, stream)
            safe = self._is_safe(stream)
            if safe > down.safe_sent.get(stream, 0):
                self._send(down, (), stream, safe)
            if stream in down.owes_positions and down.sent.get(stream, 0) >= counter:
                self._send_positions(down, stream, counter)

    def _has_room(self, down: Downstream) -> bool:
        return down.flying_bytes < self.config.window_bytes

    def _send_events(self, down: Downstream, stream: int) -> None:
        try:
            batches = self.history.read(stream, down.sent.get(stream, 0) + 1, self.config.frame_bytes)
        except HistoryTruncated as gone:
            # Retention dropped it everywhere: the follower is told that something was there.
            self.context.trace("dropped before", follower=down.member.address, reason=str(gone))
            batches = [tombstone(stream, gone.first, gone.last)]
        require(bool(batches), "a history counts events that it does not give")
        self._send(down, tuple(batches), stream, self._is_safe(stream))
        size_bytes = sum(batch.virtual_size for batch in batches)
        down.note_sent(stream, batches[-1].last, size_bytes)
        if self.owns(stream) and any(map(has_tombstone, batches)):
            down.owes_positions[stream] = None

    def _send(self, down: Downstream, batches: tuple[Batch, ...], stream: int, safe: int) -> None:
        down.safe_sent[stream] = safe
        self.context.send(down.member.at(), Forward(self.epoch, down.round, batches, ((stream, safe),)))

    def _send_positions(self, down: Downstream, stream: int, upto: int) -> None:
        highest = tuple(
            (source, sequence, index)
            for source, (sequence, index) in sorted(self.history.positions(stream).items())
        )
        self.context.send(down.member.at(), Positions(self.epoch, down.round, stream, upto, highest))
        del down.owes_positions[stream]
        down.positions_upto[stream] = upto

    # Handing over

    def _hand_over(self, now_us: int) -> None:
        """The tail stops serving once the joining replica has nearly all, and gives the token when it has the
        rest."""
        down = self.down
        if not self.is_tail or down is None or not down.joining or not down.welcomed or self._token_given:
            return
        if self._waiting or self.is_fenced or not self.confirmed or not self._leased(now_us):
            return
        streams = self.history.streams()
        if not self.frozen:
            lacks = any(down.sent.get(stream, 0) < self.history.counter(stream) for stream in streams)
            if lacks or down.owes_positions or down.flying_bytes > self.config.handover_bytes:
                return
            self.frozen = True
            self._frozen_at = {stream: self.history.durable(stream) for stream in streams}
            for stream, upto in down.positions_upto.items():
                self._frozen_at[stream] = max(upto, self._frozen_at.get(stream, 0))
        if all(down.acked.get(stream, 0) >= upto for stream, upto in self._frozen_at.items()):
            self._token_given = True
            self._report(CaughtUp(self.epoch, down.member))

    # Want of room

    def _tell_lack(self, why: str) -> None:
        if self._leader is not None:
            self.context.send(self._leader.at(), Lacks(self.epoch, why))

    def _follower_lacks(self, why: str) -> None:
        """It says so again for as long as it is so."""
        self.follower_lacks = why
        self.context.set_timer(LACKS, round(self.config.failure_ms * 1000))
        self._tell_lack(why)

    def _record(self, record: Record) -> None:
        self.context.persist(encode(record))
        self._written += 1
        self.context.when_persisted(str(self._written))


def has_tombstone(batch: Batch) -> bool:
    kinds = batch.kinds
    return kinds is not None and bool(np.any(kinds == Kind.TOMBSTONE))

"""One replica's part in a chain: what it is told, and how its place in the chain changes."""

from collections import deque
from collections.abc import Sequence
from typing import assert_never

from qanat.events.errors import LocalError, code_of
from qanat.kernel import Address, require
from qanat.protocols.chain.configuration import Configuration, Failed, Member
from qanat.protocols.chain.downstream import Downstream
from qanat.protocols.chain.flow import GATHER, LACKS, Flow, Ticket
from qanat.protocols.chain.messages import (
    MESSAGES,
    Ack,
    ChainMessage,
    Claim,
    Discard,
    Era,
    Forward,
    Hello,
    Knock,
    Lacks,
    Positions,
    Welcome,
)
from qanat.protocols.chain.records import Began, Forgot, Had, Joined, Learned, Reigned, Seen, decode
from qanat.protocols.chain.requests import (
    ChainRequest,
    Configured,
    LeaseChanged,
    Placed,
    Publish,
    Refused,
    Reset,
    Store,
    WasReset,
)
from qanat.protocols.history import Synced

HELLO, ACK, FAILURE, WARY, KNOCK = "hello", "ack", "failure", "wary", "knock"


class Chain(Flow):
    message_types = MESSAGES

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        learned: dict[int, Learned] = {}
        for each in saved:
            record = decode(each)
            self.knowledge.load(record)
            match record:
                case Joined() | Began() | Seen() | Had():
                    pass
                case Reigned():
                    self.eras.adopt(record.eras)
                case Learned():
                    learned[record.stream] = record
                case Forgot():
                    learned.pop(record.stream, None)
                case _:
                    assert_never(record)
        self.knowledge.measure(self.history)
        for stream, there, was in self.knowledge.short:
            self.context.trace("less than there was", stream=stream, there=there, was=was)
        for stream, record in learned.items():
            held = self.history.counter(stream) >= record.upto
            if held and self.eras.of(stream, record.upto) == record.era:
                self.history.adopt_positions(stream, record.highest)

    def on_message(self, now_us: int, sender: Address, message: ChainMessage) -> None:
        if message.epoch != self.epoch:
            if isinstance(message, Hello) and message.epoch > self.epoch:
                self._early = {sender: message}
            else:
                self.context.trace("refused", sender=sender, epoch=message.epoch, ours=self.epoch)
            return
        match message:
            case Hello():
                self._on_hello(now_us, sender, message)
            case Ack():
                self._on_ack(now_us, sender, message)
            case Welcome() | Discard() | Forward() | Positions():
                if self._leader is not None and sender == self._leader.at() and message.round == self._round:
                    self._on_leader(now_us, message)
            case Lacks():
                if self.down is not None and sender == self.down.member.at():
                    self._follower_lacks(message.why)
            case Knock():
                pass  # it came, so we are there, and that was the question
            case _:
                assert_never(message)

    def _on_leader(self, now_us: int, message: Welcome | Discard | Forward | Positions) -> None:
        match message:
            case Welcome():
                self._on_welcome(now_us, message)
            case Discard():
                self._on_discard(message)
            case Forward() | Positions():
                if self.is_fenced:
                    self._held.append(message)
                elif isinstance(message, Forward):
                    self._on_forward(message)
                else:
                    self._on_positions(message)
            case _:
                assert_never(message)

    def on_timer(self, now_us: int, name: str) -> None:
        if name == HELLO:
            if self._leader is not None and not self._welcomed and not self._resetting:
                self._hello()
        elif name == ACK:
            if self._leader is not None:
                if self._welcomed:
                    self._ack((), always=True)
                self.context.set_timer(ACK, round(self.config.ack_ms * 1000))
        elif name == FAILURE:
            if self.down is not None:
                self._report(Failed(self.epoch, self.down.member))
                self._expect_follower()
        elif name == KNOCK:
            if self.down is not None and not self.down.welcomed:
                self.context.send(self.down.member.at(), Knock(self.epoch))
                self._knock_later()
        elif name == LACKS:
            self.follower_lacks = ""
        elif name == GATHER:
            touched, self._touched = self._touched, {}
            self._advance(now_us, touched)
        else:
            require(name == WARY, f"no timer is called {name!r}")
            self._waiting = False
            self._advance_all(now_us)

    def on_request(self, now_us: int, request: ChainRequest) -> None:
        match request:
            case Publish():
                self._publish(request)
            case Store():
                self._store(request)
            case Configured():
                self._configured(now_us, request)
            case LeaseChanged():
                self._advance_all(now_us)
            case Synced():
                self._advance_soon((request.stream,))
            case WasReset():
                self._was_reset(request.stream)
            case _:
                assert_never(request)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        if self.down is not None and self.down.member.at() == peer:
            self.down.broke()
            self._knock_later()
        if self._leader is not None and self._leader.at() == peer and not self._resetting:
            self._hello()

    # Configuration

    def _configured(self, now_us: int, request: Configured) -> None:
        new, me = request.configuration, request.member
        self.knowledge.note(new)
        if new.epoch == self.epoch and me == self.me:
            self.configuration = new
            self._advance_all(now_us)
        if new.epoch <= self.epoch:
            return
        was_tail = self.is_tail and me == self.me
        was_head = self.is_head and me == self.me
        self.configuration, self.me = new, me
        self.down, self._leader, self._welcomed = None, None, False
        self.frozen = self._token_given = self.lacks_room = False
        self._safe, self._stored_sent = {}, {}
        self.context.cancel_timer(FAILURE)
        self.context.cancel_timer(KNOCK)
        if not (was_head and self.is_head):
            self._fail_tickets()
        self._drop_held()
        head, tail = ("", "") if new.recovering else (new.head.address, new.tail.address)
        self.context.deliver(Placed(new.epoch, head, tail, self.is_head, self.is_tail))
        if new.recovering or me not in new.line:
            self._waiting = False
            return
        if self.is_member:
            self.knowledge.join(me, new.epoch)
        if self.is_head:
            self._reign()
        self._await_old_tail(was_tail, new)
        self._meet_neighbours(now_us, new, me)
        self._advance_all(now_us)

    def _await_old_tail(self, was_tail: bool, new: Configuration) -> None:
        if not self.is_tail:
            self._waiting = False
        elif not was_tail:
            self._waiting = new.wary
            if new.wary:
                self.context.set_timer(WARY, self._wary_us)

    def _meet_neighbours(self, now_us: int, new: Configuration, me: Member) -> None:
        follower = new.follower(me)
        if follower is not None:
            self.down = Downstream(follower, follower == new.joining)
            self._expect_follower()
            self._knock_later()
            early = self._early.get(follower.at())
            self._early = {}
            if early is not None and early.epoch == new.epoch:
                self._on_hello(now_us, follower.at(), early)
        self._leader = new.leader(me)
        if self._leader is not None:
            if not self._resetting:
                self._hello()
            self.context.set_timer(ACK, round(self.config.ack_ms * 1000))

    def _reign(self) -> None:
        """A new head writes down where its era begins, and numbers nothing before that is on disk."""
        name = "" if self.me is None else f"{self.me.address}@{self.me.incarnation}"
        if self.eras.all and self.eras.all[-1].head == name:
            return
        history = self.history
        starts = ((stream, history.counter(stream) + 1) for stream in history.streams() if self.owns(stream))
        self.eras.begin(Era(self.epoch, name, tuple(starts)))
        self._record(Reigned(self.eras.all))
        self.fence = self._written

    # Fences

    def on_persisted(self, now_us: int, name: str) -> None:
        self._on_disk = max(self._on_disk, int(name))
        if not self.is_fenced:
            self._release(now_us)
        if not self._writes:
            self._advance_all(now_us)

    def _release(self, now_us: int) -> None:
        """What waited for the fence."""
        held, self._held = self._held, []
        for each in held:
            match each:
                case Forward() | Positions():
                    if each.epoch == self.epoch and each.round == self._round:
                        self._on_leader(now_us, each)
                case Publish():
                    self._publish(each)
                case Store():
                    self._store(each)
                case _:
                    assert_never(each)

    # From the application, at the head

    def _publish(self, request: Publish) -> None:
        stream = request.batch.stream
        if not self.is_head:
            self._refuse(request.ticket, "not_head", "this replica is not the head of its chain")
        elif not self.owns(stream):
            self._refuse(request.ticket, "owned_elsewhere", f"stream {stream:#x} is owned by another region")
        elif self.unanswered >= self.config.tickets_max:
            self._refuse(request.ticket, "busy", f"{self.config.tickets_max} publishes wait for their answer")
        elif self.is_fenced:
            self._held.append(request)
        else:
            try:
                numbered = self.history.append(request.batch)
            except LocalError as error:
                self._refuse(request.ticket, code_of(error), str(error), definite=error.definite)
                return
            upto = self.history.counter(stream)
            ticket = Ticket(request.ticket, numbered.first, numbered.last, numbered.dropped, upto)
            self._tickets.setdefault(stream, deque()).append(ticket)
            self._ticket_count += 1
            self._advance_soon((stream,))

    def _store(self, request: Store) -> None:
        batch = request.batch
        if not self.is_head or self.owns(batch.stream):
            self.context.trace("not stored", stream=batch.stream)
        elif self.is_fenced:
            self._held.append(request)
        elif batch.first <= self.history.counter(batch.stream) + 1:
            self.history.append_numbered(batch)
            self._advance_soon((batch.stream,))

    def stored(self, stream: int) -> None:
        """The head's history has more of a stream than was published here: on with it."""
        require(self.is_head and not self.is_fenced, "only a head takes events")
        self._advance_soon((stream,))

    def _refuse(self, ticket: int, code: str, reason: str, *, definite: bool = True) -> None:
        head = "" if self._line is None else self._line.head.address
        self.context.deliver(Refused(ticket, code, reason, head, definite))

    def _fail_tickets(self) -> None:
        tickets, self._tickets, self._ticket_count = self._tickets, {}, 0
        for waiting in tickets.values():
            for ticket in waiting:
                self._refuse(ticket.number, "not_head", "this replica is no longer the head", definite=False)

    def _drop_held(self) -> None:
        """What a predecessor sent in an earlier round is void; publishes wait on, if this is still the
        head."""
        held, self._held = self._held, []
        for each in held:
            if isinstance(each, (Publish, Store)) and self.is_head:
                self._held.append(each)
            elif isinstance(each, Publish):
                self._refuse(each.ticket, "not_head", "this replica is not the head of its chain")

    # From the predecessor

    def _hello(self) -> None:
        require(self._leader is not None, "a hello to nobody")
        self._round += 1
        self._welcomed = False
        self._drop_held()
        history = self.history
        claims = (
            Claim(stream, counter, *self.eras.at(stream, counter))
            for stream, counter in ((stream, history.counter(stream)) for stream in history.streams())
        )
        if self._leader is not None:
            self.context.send(self._leader.at(), Hello(self.epoch, self._round, tuple(claims)))
        self.context.set_timer(HELLO, round(self.config.hello_ms * 1000))

    def _on_welcome(self, now_us: int, message: Welcome) -> None:
        self._welcomed = True
        self._safe, self._stored_sent = {}, {}
        if message.eras != self.eras.all:
            self.eras.adopt(message.eras)
            self._record(Reigned(self.eras.all))
            self.fence = self._written
        for sender, hello in tuple(self._early.items()):
            self._early = {}
            self.on_message(now_us, sender, hello)
        self._advance_all(now_us)

    def _on_discard(self, message: Discard) -> None:
        if (
            self.is_member
        ):  # nobody who knows the chain says so: our predecessor is not what it was, and hears no more of us
            self.context.trace("refused", reason="a member of the chain was told to discard its history")
            return
        for stream in message.streams:
            self._resetting[stream] = None
            self.knowledge.forget(stream)
            self.context.deliver(Reset(stream))

    def _was_reset(self, stream: int) -> None:
        self._resetting.pop(stream, None)
        self._shown.pop(stream, None)
        self._settled.pop(stream, None)
        if not self._resetting and self._leader is not None:
            self._hello()

    def _on_forward(self, message: Forward) -> None:
        touched: dict[int, None] = {}
        for batch in message.batches:
            if batch.first > self.history.counter(batch.stream) + 1:
                self._hello()
                return
            try:
                self.history.append_numbered(batch)
            except LocalError as error:
                self._ask_later(batch.stream, error)
                break
            touched[batch.stream] = None
            self.lacks_room = False
        for stream, upto in message.safe:
            self._safe[stream] = upto
            touched[stream] = None
        self._advance_soon(touched)

    def _ask_later(self, stream: int, error: LocalError) -> None:
        """No room for it (a full disk): what is not stored is not acknowledged, and asked for again before
        long."""
        self.context.trace("not stored", stream=stream, reason=str(error))
        self._round += 1  # what is still under way is void
        self.lacks_room = self.lacks_room or self._welcomed
        self._welcomed = False
        self._drop_held()
        self.context.set_timer(HELLO, round(self.config.failure_ms * 1000) // 3)
        self._tell_lack(str(error))

    def _on_positions(self, message: Positions) -> None:
        if self.history.counter(message.stream) < message.upto:
            self._hello()
            return
        highest = {source: (sequence, index) for source, sequence, index in message.highest}
        era = self.eras.of(message.stream, message.upto)
        self._record(Learned(message.stream, message.upto, era, highest))
        self.history.adopt_positions(message.stream, highest)

    # From the follower

    def _on_hello(self, now_us: int, sender: Address, message: Hello) -> None:
        down = self.down
        if down is None or sender != down.member.at() or message.round < down.round:
            return
        if not self.is_head and not self._welcomed:
            self._expect_follower()
            self._early[sender] = message  # our own eras may be out of date until we are welcomed ourselves
            return
        history = self.history
        strange = tuple(
            claim.stream
            for claim in message.claims
            if self.owns(claim.stream) and not self.eras.agrees(claim, history.counter(claim.stream))
        )
        if strange and not down.joining:
            # No member holds what its predecessor does not. It is not heard, and so it is out of the chain
            # before long, and joins again.
            self.context.trace(
                "refused", sender=sender, reason="claims of a member that cannot be", streams=strange
            )
            return
        self._expect_follower()
        if strange:
            self.context.send(sender, Discard(message.epoch, message.round, strange))
            return
        down.begin(message)
        self.context.send(sender, Welcome(message.epoch, message.round, self.eras.all))
        if down.joining:
            down.owes_positions = {stream: None for stream in history.streams() if self.owns(stream)}
        self._pump(self.history.streams())
        self._hand_over(now_us)

    def _on_ack(self, now_us: int, sender: Address, message: Ack) -> None:
        down = self.down
        if down is None or sender != down.member.at() or message.round != down.round or not down.welcomed:
            return
        self._expect_follower()
        more = down.note_acked(message.stored)
        if more and not down.joining:
            self._advance_soon(more)
        self._pump(tuple(down.behind))
        self._hand_over(now_us)

    def _expect_follower(self) -> None:
        self.context.set_timer(FAILURE, round(self.config.failure_ms * 1000))

    def _knock_later(self) -> None:
        """A follower that lives says `Hello` before that. One that is dead says nothing, and only who dials
        it hears that it is."""
        self.context.set_timer(KNOCK, round(self.config.hello_ms * 1000))

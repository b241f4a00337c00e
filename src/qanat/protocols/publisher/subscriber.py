"""One instance of an application: takes what publishers send it, hands it over in order, and acknowledges.

It keeps nothing across lives. From each publisher it takes items only under that publisher's lease: once the
lease is over, the publisher may give the same shards to another instance, so what is not handed over by then
stays where it is.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias, assert_never, get_args

import msgspec

from qanat.events.position import Position
from qanat.kernel import Address, Context, Lease, Machine
from qanat.protocols.publisher.config import SubscriberConfig
from qanat.protocols.publisher.messages import (
    TO_PUBLISHER,
    TO_SUBSCRIBER,
    Acknowledge,
    Alive,
    GiveAway,
    Gone,
    Granted,
    Handled,
    Item,
    Join,
    Leave,
    Mark,
    Reached,
    Refused,
    Token,
    ToSubscriber,
    Updates,
    Welcome,
    in_messages,
)

JOIN, ALIVE = "join/", "alive/"
ALIVES = 4
"""Signs of life per lease."""


# In


class Done(msgspec.Struct, frozen=True):
    """The application is done with what it was handed under this number; a token it may leave
    unacknowledged."""

    ticket: int
    acknowledged: bool = True


class Returned(msgspec.Struct, frozen=True):
    """The application did not begin with what it was handed under this number, since `may_begin` said no; or
    said so of something before it."""

    ticket: int


class Reach(msgspec.Struct, frozen=True):
    """A datamarker of the application's own accord, for the publisher that sent it."""

    publisher: str
    marks: tuple[Mark, ...]


class GiveUp(msgspec.Struct, frozen=True):
    """Let another instance have these shards; `to` names it, or is empty."""

    shards: tuple[str, ...]
    to: str = ""


class Publishers(msgspec.Struct, frozen=True):
    """These, and no others, may have something for this instance."""

    addresses: tuple[str, ...]


class Stop(msgspec.Struct, frozen=True):
    """Publishers take the shards away. What was sent before is handed over and marked; then `Stopped` is
    delivered."""


SubscriberRequest: TypeAlias = Done | Returned | Reach | GiveUp | Publishers | Stop

# Out


class Handed(msgspec.Struct, frozen=True):
    """For the application, which asks `may_begin` before it does, and answers by `Done`, or `Returned`."""

    ticket: int
    publisher: str
    session: int
    item: Item
    round: int = 0
    """Of a session; the next begins once something was returned. All that was handed over after that in the
    same round is returned as well, even if the lease is held again: so that it is begun in its order."""


class Joined(msgspec.Struct, frozen=True):
    """A publisher has welcomed this instance; or refused it, and why."""

    publisher: str
    refused: str = ""


class Stopped(msgspec.Struct, frozen=True):
    pass


SubscriberItem: TypeAlias = Handed | Joined | Stopped
"""What a subscriber delivers."""


class Feed:
    """What comes from one publisher."""

    __slots__ = (
        "address",
        "handled",
        "lease",
        "lease_us",
        "queue",
        "round",
        "session",
        "unsaid",
        "window",
    )

    def __init__(self, address: Address) -> None:
        self.address = address
        self.session = 0
        self.queue: deque[Item] = deque()
        self.lease = Lease()
        self.lease_us = self.window = 0
        self.handled = self.round = 0
        self.unsaid = 0
        """Bytes handled that the publisher was not told of."""

    def end(self) -> None:
        self.session = 0
        self.queue.clear()
        self.lease.end()
        self.handled = self.unsaid = 0


class Subscriber(Machine[ToSubscriber, SubscriberRequest]):
    """`publishers`: all copies of the dataset; each serves what it owns."""

    message_types = TO_SUBSCRIBER
    sent_types = TO_PUBLISHER
    delivers = get_args(SubscriberItem)

    def __init__(self, context: Context, config: SubscriberConfig, publishers: Sequence[Address]) -> None:
        super().__init__(context)
        self.config = config
        self.feeds = {address: Feed(address) for address in publishers}
        self._life = self._attempt = 0
        self._tickets = 0
        self._stopping = False
        self.in_hand: dict[int, Handed] = {}
        """What the application has and is not done with."""
        self.counts: Counter[str] = Counter()
        """What happened, for people."""

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self._life = self.context.rng.getrandbits(62)
        for feed in self.feeds.values():
            self._join(now_us, feed)

    def on_message(self, now_us: int, sender: Address, message: ToSubscriber) -> None:
        feed = self.feeds.get(sender)
        if feed is None:
            return
        self.counts[type(message).__name__] += 1
        match message:
            case Welcome():
                if message.life == self._life and message.session != feed.session and not self._stopping:
                    self._welcomed(now_us, feed, message)
            case Refused():
                if message.life == self._life and not feed.session:
                    self.context.deliver(Joined(feed.address, f"{message.code}: {message.reason}"))
            case _ if message.session != feed.session or not feed.session:
                pass  # of an earlier session
            case Granted():
                if feed.lease.grant(now_us, message.number):
                    self._hand_over(now_us)
            case Gone():
                self._again(now_us, feed)
            case _:
                feed.queue.append(message)
                self._hand_over(now_us)

    def on_timer(self, now_us: int, name: str) -> None:
        kind, _, rest = name.partition("/")
        feed = self.feeds[Address(rest)]
        if f"{kind}/" == JOIN:
            if not feed.session and not self._stopping:
                self._join(now_us, feed)
        elif feed.session:
            self._alive(now_us, feed)

    def on_request(self, now_us: int, request: SubscriberRequest) -> None:
        match request:
            case Done():
                self._done(request)
                self._hand_over(now_us)
            case Returned():
                self._returned(request.ticket)
                self._hand_over(now_us)
            case Reach():
                feed = self.feeds.get(Address(request.publisher))
                if feed is not None and feed.session:
                    for marks in _marks_in_messages(request.marks):
                        self.context.send(feed.address, Reached(feed.session, marks))
            case GiveUp():
                for feed in self.feeds.values():
                    if feed.session:
                        for shards in in_messages(request.shards):
                            self.context.send(feed.address, GiveAway(feed.session, tuple(shards), request.to))
            case Publishers():
                self._use(now_us, [Address(address) for address in request.addresses])
            case Stop():
                self._stopping = True
                for feed in self.feeds.values():
                    if feed.session:
                        self.context.send(feed.address, Leave(feed.session))
                self._look_whether_stopped()
            case _:
                assert_never(request)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        feed = self.feeds.get(peer)
        if feed is not None:
            self._again(now_us, feed)

    # Sessions

    def _use(self, now_us: int, addresses: Sequence[Address]) -> None:
        for address in [address for address in self.feeds if address not in addresses]:
            feed = self.feeds.pop(address)
            if feed.session:
                self.context.send(address, Leave(feed.session))
            feed.end()
            for prefix in (JOIN, ALIVE):
                self.context.cancel_timer(f"{prefix}{address}")
        for address in addresses:
            if address not in self.feeds:
                feed = self.feeds[address] = Feed(address)
                self._join(now_us, feed)

    def _join(self, now_us: int, feed: Feed) -> None:
        config = self.config
        busy = any(handed.publisher == feed.address for handed in self.in_hand.values())
        self.context.send(
            feed.address,
            Join(config.application, self._life, self._attempt, config.weight, config.window_bytes, busy),
        )
        self.context.set_timer(f"{JOIN}{feed.address}", round(config.retry_ms * 1000))

    def _again(self, now_us: int, feed: Feed) -> None:
        """What was not handed over is sent again by whoever has the shards now."""
        feed.end()
        self._attempt += 1
        self.context.cancel_timer(f"{ALIVE}{feed.address}")
        if self._stopping:
            self._look_whether_stopped()
        else:
            self._join(now_us, feed)

    def _welcomed(self, now_us: int, feed: Feed, message: Welcome) -> None:
        feed.end()
        feed.session, feed.lease_us, feed.window = message.session, message.lease_us, message.window_bytes
        self.context.cancel_timer(f"{JOIN}{feed.address}")
        self.context.deliver(Joined(feed.address))
        self._alive(now_us, feed)

    def _alive(self, now_us: int, feed: Feed) -> None:
        number = feed.lease.ask(now_us, feed.lease_us)
        self.context.send(feed.address, Alive(feed.session, number))
        self.context.set_timer(f"{ALIVE}{feed.address}", feed.lease_us // ALIVES)

    def _look_whether_stopped(self) -> None:
        if self._stopping and not self.in_hand and not any(feed.session for feed in self.feeds.values()):
            for feed in self.feeds.values():
                self.context.cancel_timer(f"{JOIN}{feed.address}")
            self.context.deliver(Stopped())

    # Items

    def _hand_over(self, now_us: int) -> None:
        """One by one, to an application that does one after the other; publishers take turns."""
        while ready := [
            feed
            for feed in self.feeds.values()
            if feed.queue and feed.lease.held(now_us) and not self._comes_back(feed)
        ]:
            for feed in ready:
                if len(self.in_hand) >= self.config.ahead:
                    return
                item = feed.queue.popleft()
                self._tickets += 1
                handed = Handed(self._tickets, feed.address, feed.session, item, feed.round)
                self.in_hand[handed.ticket] = handed
                self.context.deliver(handed)

    def may_begin(self, handed: Handed, now_us: int) -> bool:
        """Whether the session lives and its lease is not over: since this was handed over, the process may
        have stood still. Changes nothing, and may be asked by the thread that calls the application."""
        feed = self.feeds.get(Address(handed.publisher))
        return (
            feed is not None
            and (feed.session, feed.round) == (handed.session, handed.round)
            and feed.lease.held(now_us)
        )

    def _comes_back(self, feed: Feed) -> bool:
        """Whether something that was handed over will be returned, which is first."""
        return any(
            each.publisher == feed.address and each.session == feed.session and each.round != feed.round
            for each in self.in_hand.values()
        )

    def _returned(self, ticket: int) -> None:
        handed = self.in_hand.pop(ticket, None)
        if handed is None:
            return
        self.counts["returned"] += 1
        feed = self.feeds.get(Address(handed.publisher))
        if feed is not None and feed.session == handed.session:
            before = sum(each.number < handed.item.number for each in feed.queue)
            feed.queue.insert(before, handed.item)
            if feed.round == handed.round:
                feed.round += 1
        self._look_whether_stopped()

    def _done(self, done: Done) -> None:
        handed = self.in_hand.pop(done.ticket, None)
        if handed is None:
            return
        feed, item = self.feeds.get(Address(handed.publisher)), handed.item
        if feed is not None and feed.session == handed.session:
            if isinstance(item, Token) and done.acknowledged:
                self.context.send(feed.address, Acknowledge(feed.session, item.number))
            feed.handled = item.number
            if isinstance(item, Updates):
                feed.unsaid += sum(batch.virtual_size for batch in item.batches)
            if not isinstance(item, Updates) or not feed.queue or feed.unsaid * 8 >= feed.window:
                self.context.send(feed.address, Handled(feed.session, feed.handled))
                feed.unsaid = 0
        self._look_whether_stopped()


def _marks_in_messages(marks: Sequence[Mark]) -> Iterator[tuple[Mark, ...]]:
    """So many at a time as a message carries."""
    places = [mark.position for mark in marks for _ in mark.shards]
    at = 0
    for shards in in_messages([shard for mark in marks for shard in mark.shards]):
        together: dict[Position, list[str]] = {}
        for shard, position in zip(shards, places[at : at + len(shards)], strict=True):
            together.setdefault(position, []).append(shard)
        at += len(shards)
        yield tuple(Mark(position, tuple(some)) for position, some in together.items())

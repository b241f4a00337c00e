"""The publisher's side of its subscribers: sessions and leases, who has which shard, datamarkers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import assert_never, get_args

from qanat.events.position import Position
from qanat.kernel import Address, Context, Machine, Message
from qanat.protocols.caravans.policy import Policy
from qanat.protocols.publisher.allocation import Caravans
from qanat.protocols.publisher.balance import Balance, Moves, make_balance
from qanat.protocols.publisher.config import PublisherConfig
from qanat.protocols.publisher.flows import Flow, Served
from qanat.protocols.publisher.link import Leaving, Link, Marking
from qanat.protocols.publisher.messages import (
    TO_PUBLISHER,
    TO_SUBSCRIBER,
    Acknowledge,
    Alive,
    GiveAway,
    Gone,
    Granted,
    Handled,
    Join,
    Leave,
    Reached,
    Refused,
    ToPublisher,
    Welcome,
)
from qanat.protocols.publisher.reading import PublisherItem, PublisherRequest
from qanat.protocols.publisher.records import Here, Left, Marked, Record
from qanat.protocols.publisher.witness import Seen

LOST, FLUSH, AWAIT = "lost/", "flush/", "await/"
ASSIGN, MARK, REBALANCE = "assign", "mark", "rebalance"
MARK_LOOKS = 10
"""Looks for subscribers that are due, per interval between datamarkers: so that all are not asked at once."""


class Subscribers(Machine[ToPublisher, PublisherRequest]):
    """What is above it reads the log and sends updates; here is to whom."""

    message_types: tuple[type[Message], ...] = TO_PUBLISHER
    sent_types: tuple[type[Message], ...] = TO_SUBSCRIBER
    delivers = get_args(PublisherItem)

    def __init__(
        self,
        context: Context,
        config: PublisherConfig,
        *,
        balance: Balance | None = None,
        policies: Mapping[str, Callable[[int], Policy]] | None = None,
    ) -> None:
        super().__init__(context)
        self.config = config
        self.balance: Balance = balance or make_balance(config)
        self._own_balance = balance is not None
        self._policies = policies or {}
        self.caravans = Caravans(context)
        self.served: dict[str, Served] = {}
        self.links: dict[Address, Link] = {}
        self.counts: Counter[str] = Counter()
        """What happened, for people: messages by their kinds, and what is named below."""
        self._came: dict[Address, None] = {}
        self._assigning = False
        self._looks = 0

    # What is above

    def _may_serve(self, now_us: int) -> bool:
        """Whether this publisher is the one that may speak to its subscribers."""
        return True

    def _lease(self, served: Served) -> tuple[int, int]:
        """Of sessions that begin now: as a subscriber counts it, and as it is waited for."""
        return self.config.lease_us, self.config.outlasts_us

    def _keep(self, record: Record) -> None:
        """It survives a crash, before anything that is said from now on."""
        raise NotImplementedError

    def _plan_soon(self) -> None:
        raise NotImplementedError

    def _go_on(self, now_us: int, link: Link) -> None:
        """A subscriber takes more again."""
        raise NotImplementedError

    def _stays(self, served: Served, part: int) -> bool:
        """Whether flows and scouts of this part are to stay where they are for now."""
        return False

    def _freed(self, flows: Sequence[Flow], to: str) -> None:
        """Nobody has these flows any more, and nobody works on what they brought."""
        self._assign_soon()

    # Inputs

    def on_message(self, now_us: int, sender: Address, message: ToPublisher) -> None:
        self.counts[type(message).__name__] += 1
        if isinstance(message, Join):
            self._join(now_us, sender, message)
            return
        link = self.links.get(sender)
        if link is None or link.session != message.session or not link.open:
            self.counts["Gone"] += 1
            self.context.send(sender, Gone(message.session))
            return
        match message:
            case Alive():
                if self._may_serve(now_us):
                    self._expect(link)
                    self.counts["Granted"] += 1
                    self.context.send(sender, Granted(message.session, message.number))
            case Handled():
                self._handled(now_us, link, message.number)
            case Acknowledge():
                self._mark(link.served, link.tokens.pop(message.token, []))
            case Reached():
                self._reached(link, message)
            case GiveAway():
                flows = [link.flows[shard] for shard in message.shards if shard in link.flows]
                self._withdraw(link, flows, message.to)
            case Leave():
                link.retiring = True
                self._withdraw(link, list(link.flows.values()), "")
                self._let_go(link)
            case _:
                assert_never(message)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        """It may come back, and until its lease is over nobody else may have its shards."""
        link = self.links.get(peer)
        if link is not None and link.open:
            self.counts["channels_broken"] += 1
            self._off(link)
            link.end()

    def _on_timer(self, now_us: int, name: str) -> bool:
        if name == ASSIGN:
            self._assign()
        elif name == MARK:
            self._look_for_markers()
        elif name == REBALANCE:
            self._rebalance()
        elif name.startswith(AWAIT):
            served = self.served.get(name[len(AWAIT) :])
            if served is not None:
                self._wait_no_longer(served)
        elif name.startswith(LOST):
            link = self.links.get(Address(name[len(LOST) :]))
            if link is not None:
                self.counts["leases_over"] += 1
                self._lose(link)
        elif name.startswith(FLUSH):
            link = self.links.get(Address(name[len(FLUSH) :]))
            if link is not None and link.open:
                link.flush()
        else:
            return False
        return True

    # Sessions

    def _join(self, now_us: int, sender: Address, message: Join) -> None:
        served = self.served.get(message.application)
        link = self.links.get(sender)
        if link is not None and link.served is not served:
            self._lose(link)
            link = None
        if served is None:
            reason = (
                f"{message.application!r} is not among"
                f" {', '.join(map(repr, self.served)) or 'no applications'}"
            )
            self._refuse(sender, message, "unknown_application", reason)
        elif not self._may_serve(now_us):
            self._refuse(sender, message, "not_serving", "this copy cannot serve now")
        elif link is None and len(served.links) >= self.config.subscribers_max:
            self._refuse(sender, message, "full", f"it has {self.config.subscribers_max} subscribers")
        else:
            if link is None:
                link = self.links[sender] = served.links[sender] = Link(self.context, sender, served)
            self._welcome(link, message)

    def _refuse(self, sender: Address, message: Join, code: str, reason: str) -> None:
        self.counts[f"refused/{code}"] += 1
        self.context.send(sender, Refused(message.life, code, reason))

    def _welcome(self, link: Link, message: Join) -> None:
        asks_again = link.open and (link.life, link.attempt) == (message.life, message.attempt)
        if not asks_again:
            self.counts["sessions"] += 1
            self._off(link)
            window = max(1, min(message.window_bytes, self.config.window_bytes))
            link.begin(self.context.rng.getrandbits(62) | 1, message, window)
            link.due_ticks = 1 + self.context.rng.randrange(MARK_LOOKS)
            link.lease_us, link.outlasts_us = self._lease(link.served)
            self._came_back(link, busy=message.busy)
        self._expect(link)
        welcome = Welcome(link.session, message.life, link.lease_us, link.window)
        self.context.send(link.address, welcome)
        if not asks_again:
            link.notice(link.flows.values())
            if not link.flows:  # who was only away for a moment has its share
                self._came[link.address] = None
            self._assign_soon()
            self._plan_soon()

    def _await(self, served: Served, holders: Mapping[str, int]) -> None:
        """Subscribers that a former life of this publisher had: until each is known to work on nothing of it,
        or its lease is over."""
        served.holders = dict(holders)
        served.awaited = dict.fromkeys(holders)
        if holders:
            self.context.set_timer(f"{AWAIT}{served.name}", max(holders.values()))

    def _came_back(self, link: Link, *, busy: bool) -> None:
        """On record before it is welcome. Who has no session any more begins nothing; but it may be in the
        midst of something."""
        served = link.served
        if not busy:
            served.awaited.pop(link.address, None)
        if served.holders.get(link.address, 0) < link.outlasts_us:
            served.holders[link.address] = link.outlasts_us
            self._keep(Here(served.name, link.address, link.outlasts_us))

    def _wait_no_longer(self, served: Served) -> None:
        for name in served.awaited:
            if name not in served.links:
                self._has_left(served, name)
        served.awaited = {}
        self._assign_soon()

    def _has_left(self, served: Served, name: str) -> None:
        if served.holders.pop(name, None) is not None:
            self._keep(Left(served.name, name))

    def _expect(self, link: Link) -> None:
        """As long as the lease that it has may last, whatever leases are by now."""
        self.context.set_timer(f"{LOST}{link.address}", link.outlasts_us)

    def _off(self, link: Link) -> None:
        """Its flows get off their caravans."""
        for flow in link.flows.values():
            if flow.caravan is not None:
                flow.caravan.leave(flow)

    def _lose(self, link: Link, *, idle: bool = True) -> None:
        """Its shards are for others from now on. Whoever it was works on nothing of them any more, if it is
        known to be `idle`."""
        if idle:
            self._has_left(link.served, link.address)
        self.counts["subscribers_gone"] += 1
        self.context.cancel_timer(f"{LOST}{link.address}")
        self.context.cancel_timer(f"{FLUSH}{link.address}")
        self._off(link)
        if link.open:
            self.context.send(link.address, Gone(link.session))
        link.end()
        flows = list(link.flows.values())
        for flow in flows:
            link.remove(flow)
        del self.links[link.address], link.served.links[link.address]
        self._came.pop(link.address, None)
        if flows:
            self._freed(flows, "")

    # Who has which flow

    def _assign_soon(self) -> None:
        if not self._assigning:
            self._assigning = True
            self.context.set_timer(ASSIGN, round(self.config.settle_ms * 1000))

    def _assign(self) -> None:
        self._assigning = False
        came, self._came = self._came, {}
        for served in self.served.values():
            links = [link for link in served.links.values() if link.wants]
            if not links:
                continue
            free = [flow for flow in served.flows.values() if flow.link is None and not served.awaited]
            self._give([flow for flow in free if not self._stays(served, flow.part)], links)
            new = [link for link in links if link.address in came]
            if new and len(new) < len(links):
                self._carry_out(self.balance.move(served, links, new, self.context.rng))

    def _rebalance(self) -> None:
        for served in self.served.values():
            links = [link for link in served.links.values() if link.wants]
            if len(links) > 1:
                moved = self._carry_out(self.balance.rebalance(served, links, self.context.rng))
                self.counts["flows_rebalanced"] += moved
        self.context.set_timer(REBALANCE, round(self.config.rebalance_ms * 1000))

    def _carry_out(self, wanted: Moves) -> int:
        """Each goes when its subscriber is done with what it has."""
        moves: dict[tuple[Link, Link], list[Flow]] = {}
        for flow, to in wanted:
            if flow.link is not None and flow.link is not to:
                moves.setdefault((flow.link, to), []).append(flow)
        for (link, to), flows in moves.items():
            self._withdraw(link, flows, to.address)
        return sum(map(len, moves.values()))

    def _give(self, flows: Sequence[Flow], links: Sequence[Link]) -> None:
        """To whom the strategy says; each is told which shards are new."""
        if not flows:
            return
        chosen = self.balance.assign(flows[0].served, flows, links, self.context.rng)
        given: dict[Link, list[Flow]] = {}
        self.counts["flows_given"] += len(flows)
        for flow, link in zip(flows, chosen, strict=True):
            link.add(flow)
            given.setdefault(link, []).append(flow)
        for link, some in given.items():
            link.notice(some)
        self._plan_soon()

    def _withdraw(self, link: Link, flows: Iterable[Flow], to: str) -> None:
        """Their last token: once it is handled, they are free."""
        going = [flow for flow in flows if not flow.leaving]
        if not going or not link.open:
            return
        for flow in going:
            if flow.caravan is not None:
                flow.caravan.leave(flow)
            flow.leaving = True
        self.counts["flows_withdrawn"] += len(going)
        link.leaving.append(Leaving(link.mark(going, last=True), going, to))

    def _handled(self, now_us: int, link: Link, number: int) -> None:
        more = link.done(number)
        while link.leaving and link.leaving[0].number <= link.handled:
            leaving = link.leaving.popleft()
            for flow in leaving.flows:
                link.remove(flow)
            self.context.trace("withdrawn", subscriber=link.address, shards=len(leaving.flows))
            to = link.served.links.get(Address(leaving.to))
            if to is not None and to.wants:
                self.counts["flows_moved"] += len(leaving.flows)
                for flow in leaving.flows:
                    to.add(flow)
                to.notice(leaving.flows)
                self._plan_soon()
            else:
                self._freed(leaving.flows, leaving.to)
        self._let_go(link)
        if more:
            self._go_on(now_us, link)

    def _let_go(self, link: Link) -> None:
        if link.retiring and not link.flows:
            self._lose(link)

    # Datamarkers

    def _look_for_markers(self) -> None:
        for link in self.links.values():
            link.due_ticks -= 1
            if link.due_ticks <= 0 and link.open and not link.tokens:
                link.due_ticks = MARK_LOOKS
                flows = [
                    flow
                    for flow in link.flows.values()
                    if not flow.leaving and (flow.position > flow.marked or flow.untold is not None)
                ]
                if flows:
                    link.mark(flows, last=False)
        self._looks += 1
        if self._looks % MARK_LOOKS == 0:
            for served in self.served.values():
                self._mark(served, [])
        self.context.set_timer(MARK, round(self.config.marker_ms * 1000) // MARK_LOOKS)

    def _mark(self, served: Served, marks: Sequence[Marking]) -> None:
        """Acknowledged datamarkers; and how far the scouts are, for the shards that they found are on
        record."""
        floors, looked = [], []
        for part, scout in served.scouts.items():
            if scout.position > scout.marked:
                scout.marked, scout.marked_seen = scout.position, scout.seen
                floors.append((part, scout.marked))
                looked.append(scout.marked_seen)
        places: dict[tuple[Position, Seen], list[str]] = {}
        for position, flows, last in marks:
            for flow in flows:
                if flow.marked < position or flow.untold is not None:
                    if flow.marked < position:
                        flow.marked, flow.marked_seen = position, last
                    flow.untold = None
                    places.setdefault((flow.marked, flow.marked_seen), []).append(flow.shard)
        self.counts["markers"] += sum(map(len, places.values()))
        if places or floors:
            told = tuple((position, tuple(shards)) for (position, _), shards in places.items())
            seen = (*(last for _, last in places), *looked)
            self._keep(Marked(served.name, told, tuple(floors), seen))

    def _reached(self, link: Link, message: Reached) -> None:
        """A datamarker of the subscriber's own accord; only what it was sent counts, and not before it was
        told what is lost."""
        marks = [
            Marking(mark.position, [flow], link.seen_by(flow, mark.position))
            for mark in message.marks
            for flow in (link.flows.get(shard) for shard in mark.shards)
            if flow is not None and mark.position <= flow.position and link.knows(flow)
        ]
        if marks:
            self._mark(link.served, marks)

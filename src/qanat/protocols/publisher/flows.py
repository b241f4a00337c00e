"""Who travels through the log, and in what.

A *flow* is one shard of one application. A *scout* finds the shards of an application that nobody knows yet.
Both travel in *caravans*, one reader of the log each. While aboard, a traveller is as far as its caravan, or
further if it got on ahead of it; so a caravan that moves on moves everybody, and nothing is done per flow.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from qanat.events.filters import Filter
from qanat.events.position import Position
from qanat.kernel import Address, require
from qanat.protocols.caravans.travel import AnyCaravan, AnyTraveller, Group
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.link import Link
from qanat.protocols.publisher.reading import WasLost, WasRead
from qanat.protocols.publisher.records import Range
from qanat.protocols.publisher.routing import Table, grown
from qanat.protocols.publisher.tables import Snapshot
from qanat.protocols.publisher.witness import Seen, Witness, best


class Traveller(AnyTraveller):
    """For an application."""

    __slots__ = ("disputed", "marked", "marked_seen", "part", "sent_seen", "served", "time_us")
    caravan: "Caravan | None"

    def __init__(self, served: "Served", part: int, position: Position, seen: Seen = None) -> None:
        super().__init__(position)
        self.served, self.part = served, part
        self.marked = position
        """What will be known of it after a crash."""
        self.sent_seen = self.marked_seen = seen
        """The last update that the log had up to `sent`, and up to `marked`."""
        self.disputed = False
        """The log does not have that: it stands still."""
        self.time_us = 0
        """When the last update that it passed was committed, as of when it got off; 0: it is not known."""

    def lag_us(self, wall_us: int) -> int | None:
        """For how long there has been something that it has not had; None: it is not known."""
        if self.caravan is not None and self.caravan.at >= self.sent:
            if self.caravan.current:
                return 0
            time_us = self.caravan.time_us
        else:
            time_us = self.time_us
        return max(0, wall_us - time_us) if time_us else None

    @property
    def weight(self) -> float:
        """Of an application that nobody knows a shard of yet, the scout alone stands for all of it."""
        return self.served.share

    @property
    def seen(self) -> Seen:
        """The last update that the log had up to where it is. Until its caravan has moved on, that is its own
        affair: others at the same place may have come there by another history."""
        if self.caravan is None or self.caravan.at <= self.sent:
            return self.sent_seen
        return self.caravan.seen

    def put(self, to: Position, seen: Seen) -> None:
        """It goes on from there, and that is what is known of it after a crash."""
        self.sent = self.marked = to
        self.sent_seen = self.marked_seen = seen
        self.disputed = False

    def go_back(self) -> None:
        """To its marker."""
        self.sent, self.sent_seen = self.marked, self.marked_seen

    @property
    def active(self) -> bool:
        """Whether somebody takes what it would bring."""
        raise NotImplementedError

    @property
    def company(self) -> str:
        return self.served.company

    @property
    def reads_tables(self) -> bool:
        """Whether what it gets next are rows of a snapshot."""
        snapshot = self.served.snapshots.get(self.part)
        return snapshot is not None and snapshot.holds(self.sent)


class Scout(Traveller):
    """Of one part of an application. It needs no subscriber, but does not go where nobody would take what it
    finds."""

    __slots__ = ("lost",)

    def __init__(
        self, served: "Served", part: int, position: Position, lost: Range | None = None, seen: Seen = None
    ) -> None:
        super().__init__(served, part, position, seen)
        self.lost = lost
        """What the log no longer had when it came by: the shards that it finds later may have had something
        there."""

    @property
    def active(self) -> bool:
        return not self.served.problem and any(link.takes for link in self.served.links.values())


class Flow(Traveller):
    __slots__ = ("code", "leaving", "link", "shard", "told", "untold")

    def __init__(
        self,
        served: "Served",
        part: int,
        position: Position,
        shard: str,
        code: int,
        untold: Range | None = None,
        seen: Seen = None,
    ) -> None:
        super().__init__(served, part, position, seen)
        self.shard, self.code, self.untold = shard, code, untold
        """`untold`: what was lost of it before it was known; told with each notice until a marker is
        acknowledged after it."""
        self.told = 0
        """The item in which `untold` was told last, of the session that its subscriber has; 0: it was not."""
        self.link: Link | None = None
        self.leaving = False
        """It goes to another subscriber, or to another publisher, once its own is done with what it has."""

    @property
    def active(self) -> bool:
        return self.link is not None and self.link.takes and not self.leaving

    @property
    def company(self) -> str:
        return self.served.companies.get(self.shard, self.served.company)


class Served:
    """An application, as this publisher serves it."""

    def __init__(self, name: str, config: ApplicationConfig, number: int) -> None:
        self.name, self.config, self.number = name, config, number
        self.filter: Filter | None = config.filter
        self.links: dict[Address, Link] = {}
        self.awaited: dict[str, None] = {}
        """Subscribers that may be at work on what a former life of the publisher sent them; until they are
        not, no flow is given to anybody."""
        self.holders: dict[str, int] = {}
        """Subscribers that are on record, and how long their leases may last."""
        self.flows: dict[str, Flow] = {}
        self.scouts: dict[int, Scout] = {}
        self.snapshots: dict[int, Snapshot] = {}
        """With which its parts began, or begin."""
        self.problem = ""
        """Why it stands still, if it does."""
        self.troubles: dict[int, str] = {}
        """Parts that shall have no more shards, or cannot be served here, and why."""
        self.dispute = ""
        """Why some of its flows do: the log is of another history than the one that they had."""
        self.known: Table = np.zeros(0, bool)
        """By code, whether there is a flow."""
        self.company = ""
        self.companies: dict[str, str] = {}
        """Of single shards, where that is another."""
        self.elsewhere: dict[str, int] = {}
        """Flows that its subscribers have at other publishers, as far as these say."""
        self.sent_updates = self.sent_bytes = self.lost_ranges = 0
        self.counts: Counter[str] = Counter()
        """Items by their kinds, and what else happened to it, for people."""

    @property
    def travellers(self) -> list[Traveller]:
        return [*self.scouts.values(), *self.flows.values()]

    @property
    def share(self) -> float:
        """What one traveller counts: an application counts as much as any other, however many shards it
        has."""
        return 1 / (len(self.scouts) + len(self.flows))

    def add(self, flow: Flow) -> None:
        require(flow.shard not in self.flows, f"shard {flow.shard!r} has a flow already")
        self.flows[flow.shard] = flow
        self.known = grown(self.known, flow.code + 1)
        self.known[flow.code] = True

    def remove(self, flow: Flow) -> None:
        del self.flows[flow.shard]
        self.known[flow.code] = False


class Riders:
    """The flows of one subscriber aboard one caravan: what a read has for them goes out as one item."""

    __slots__ = ("codes", "flows", "link", "until")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.flows: dict[int, Flow] = {}
        self.codes: Table = np.zeros(0, bool)
        """By code, whether that shard's flow is among them."""
        self.until = Position(0, 0)
        """How far ahead the furthest of them got on."""

    def add(self, flow: Flow) -> None:
        self.flows[flow.code] = flow
        self.codes = grown(self.codes, flow.code + 1)
        self.codes[flow.code] = True
        self.until = max(self.until, flow.sent)

    def remove(self, flow: Flow) -> None:
        del self.flows[flow.code]
        self.codes[flow.code] = False

    @property
    def is_all(self) -> bool:
        """Whether the subscriber has no other shards."""
        return len(self.flows) == len(self.link.flows)


class Caravan(AnyCaravan[Traveller]):
    """One reader of the datastore's log and those whom it serves."""

    __slots__ = ("current", "read_updates", "reading", "riders", "scouts", "seen", "time_us")

    def __init__(self, number: int, at: Position, why: str = "", company: str = "") -> None:
        super().__init__(number, at, why, company)
        self.riders: dict[Address, Riders] = {}
        self.scouts: dict[Scout, None] = {}
        self.reading: Position | None = None
        """After which position the log was asked for more; None while it was not."""
        self.time_us = 0
        """When the last update that it read was committed."""
        self.current = False
        """The last read found nothing more."""
        self.read_updates = 0
        self.seen: Seen = None
        """The last update up to where it is, once it has read something since it came to its place."""

    def witnesses(self) -> tuple[Witness, ...]:
        """What the log must have had, or must come to have, for those aboard: of whoever got on here or ahead
        of it, and its own."""
        found: dict[Witness, None] = {} if self.seen is None else {self.seen: None}
        for riders in self.riders.values():
            if riders.until >= self.at:
                for flow in riders.flows.values():
                    if flow.sent >= self.at and flow.sent_seen is not None:
                        found[flow.sent_seen] = None
        for scout in self.scouts:
            if scout.sent >= self.at and scout.sent_seen is not None:
                found[scout.sent_seen] = None
        return tuple(found)

    def move_to(self, found: WasRead | WasLost) -> None:
        if isinstance(found, WasLost):
            self.seen = None
        elif found.mark:
            self.seen = Witness(found.upto, found.mark)
        elif found.batch is None:  # it brought nothing: the last update is still the one before
            before = self._known()
            self.seen = None if before is None else Witness(found.upto, before.mark)
        else:
            self.seen = None
        self.at = found.upto

    def join(self, front: "Caravan") -> None:
        """It has read beyond where the other is."""
        self.at, self.seen = front.at, front.seen or self._known()

    def _known(self) -> Seen:
        """The last that is known of the log up to where it is, which the log was just seen to have."""
        return best(one for one in self.witnesses() if one.upto <= self.at)

    @property
    def empty(self) -> bool:
        return not self.riders and not self.scouts

    @property
    def weight(self) -> int:
        return sum(len(riders.flows) for riders in self.riders.values()) + len(self.scouts)

    @property
    def travellers(self) -> Iterable[Traveller]:
        for riders in self.riders.values():
            yield from riders.flows.values()
        yield from self.scouts

    def groups(self) -> Iterable[Group]:
        for riders in self.riders.values():
            if not riders.link.takes:
                continue
            if riders.until <= self.at:
                flows = tuple(riders.flows.values())
                yield Group(self.at, flows, len(flows) * flows[0].weight)
            else:
                for flow in riders.flows.values():
                    yield Group(flow.position, (flow,), flow.weight)
        for scout in self.scouts:
            if scout.active:
                yield Group(scout.position, (scout,), scout.weight)

    def stuck(self) -> Sequence[Traveller] | None:
        blocked = [riders for riders in self.riders.values() if not riders.link.takes]
        idle = [scout for scout in self.scouts if not scout.active]
        if len(blocked) == len(self.riders) and len(idle) == len(self.scouts):
            return None
        return [*(flow for riders in blocked for flow in riders.flows.values()), *idle]

    def take(self, traveller: Traveller) -> None:
        require(traveller.caravan is None, "a traveller is in one caravan at a time")
        require(traveller.sent >= self.at, "a caravan takes along nobody who is behind it")
        require(self.fits(traveller), "whom an operator keeps together travels with no others")
        traveller.caravan = self
        if isinstance(traveller, Flow):
            require(traveller.link is not None, "a flow without a subscriber does not travel")
            if traveller.link is not None:
                self.riders.setdefault(traveller.link.address, Riders(traveller.link)).add(traveller)
                traveller.link.waiting.pop(traveller.shard)
        elif isinstance(traveller, Scout):
            self.scouts[traveller] = None

    def fits(self, traveller: Traveller) -> bool:
        """Whether it is to travel here at all."""
        return traveller.company == self.company and not traveller.reads_tables

    def leave(self, traveller: Traveller) -> None:
        require(traveller.caravan is self, "nobody leaves a caravan that it is not in")
        if self.at >= traveller.sent:
            traveller.time_us = self.time_us
        traveller.sent, traveller.sent_seen = traveller.position, traveller.seen
        traveller.caravan = None
        if isinstance(traveller, Flow) and traveller.link is not None:
            riders = self.riders[traveller.link.address]
            riders.remove(traveller)
            traveller.link.waiting[traveller.shard] = traveller
            if not riders.flows:
                del self.riders[traveller.link.address]
        elif isinstance(traveller, Scout):
            del self.scouts[traveller]

    def turn(self, to: Position) -> None:
        for riders in self.riders.values():
            for flow in riders.flows.values():
                flow.sent, flow.sent_seen = flow.position, flow.seen
                riders.until = max(riders.until, flow.sent)
                require(flow.sent >= to, "a caravan does not pass over those whom it serves")
        for scout in self.scouts:
            scout.sent, scout.sent_seen = scout.position, scout.seen
        if to < self.at:
            self.time_us, self.current, self.live = 0, False, False
        self.at, self.reading, self.seen = to, None, None

"""Caravans: how a plan becomes readers of the log, and how fast each may read (Wormhole, section 3.1)."""

import math
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from qanat.events.position import Position
from qanat.kernel import Context
from qanat.protocols.publisher.config import PublisherConfig
from qanat.protocols.publisher.flows import Caravan, Traveller
from qanat.protocols.publisher.policy import Place, Plan, Policy
from qanat.protocols.publisher.reading import CloseLog

_MEMORY_S = 2.0
"""How long the past counts in a caravan's measured rate."""
DECISIONS = 50
"""So many of the last are remembered, for people."""
_BURST_S = 0.25
"""What a caravan that has not read for a while may read at once, in seconds of its allowance."""


class Group(NamedTuple):
    """Some who are at one place."""

    position: Position
    travellers: tuple[Traveller, ...]


class Decision(NamedTuple):
    """What was done with caravans, when, and why; for people."""

    at_us: int
    what: str
    caravan: int
    why: str


class Caravans:
    """All of a publisher, by number. A number is given once: it is also the name of a reader."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.all: dict[int, Caravan] = {}
        self._next = 1
        self.plan = Plan((), "nothing is planned yet")
        self.splits = self.merges = self.moves = self.plans = 0
        self.now_us = 0
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS)

    @property
    def lead(self) -> Caravan | None:
        """The farthest one."""
        return max(self.all.values(), key=lambda caravan: (caravan.at, -caravan.number), default=None)

    def ahead_of(self, caravan: Caravan) -> Caravan | None:
        """The next one on the way that it may join."""
        there = [
            other for other in self.all.values() if other.at > caravan.at and other.company == caravan.company
        ]
        return min(there, key=lambda other: (other.at, other.number), default=None)

    def arrange(self, waiting: Iterable[Traveller], policy: Policy, most: int) -> None:
        """Everybody who is active into caravans, companies as an operator told and the others as the policy says; readers are
        kept where there are any."""
        companies: dict[str, dict[Position, list[Traveller]]] = {"": {}}
        for traveller in waiting:
            places = companies.setdefault(traveller.company, {})
            places.setdefault(traveller.position, []).append(traveller)
        for caravan in self.all.values():
            places = companies.setdefault(caravan.company, {})
            for group in _groups(caravan):
                places.setdefault(group.position, []).extend(group.travellers)
        places = companies.pop("")
        told = {name: company for name, company in sorted(companies.items()) if company}
        order = sorted(places)
        self.plans += 1
        self.plan = policy.plan(
            [Place(position, len(places[position])) for position in order], max(1, most - len(told))
        )
        free = dict(self.all)
        bounds = [*self.plan.starts, len(order)]
        for start, stop in reversed(list(pairwise(bounds))):
            cluster = [one for place in order[start:stop] for one in places[place]]
            self._carry(order[start], cluster, free, "", self.plan.why)
        for name, company in told.items():
            cluster = [one for place in company.values() for one in place]
            self._carry(min(company), cluster, free, name, f"an operator keeps {name!r} together")
        left = list(free.values())
        for caravan in left[max(0, most - len(bounds) + 1 - len(told)) :]:
            self.decide(
                "disband", caravan, f"at most {most} readers are allowed, and nobody aboard takes more"
            )
            self.disband(caravan)
        for caravan in list(self.all.values()):
            if caravan.empty:
                self.close(caravan)

    def _carry(
        self, start: Position, cluster: list[Traveller], free: dict[int, Caravan], company: str, why: str
    ) -> None:
        """With the reader that has most of them aboard, or else a new one."""
        aboard: dict[int, int] = {}
        for traveller in cluster:
            if traveller.caravan is not None and traveller.caravan.number in free:
                number = traveller.caravan.number
                aboard[number] = aboard.get(number, 0) + 1
        if aboard:
            caravan = free.pop(max(aboard, key=lambda number: (aboard[number], -number)))
        else:
            caravan = Caravan(self._next, start, why, company)
            self._next += 1
            self.all[caravan.number] = caravan
            self.splits += 1
            self.decide("split", caravan, f"{len(cluster)} begin at {start}: {why}")
        for other in [one for one in caravan.travellers if one.position < start]:
            caravan.leave(other)  # it is in another cluster, and gets on there
        if caravan.at != start:
            self.decide("turn", caravan, f"from {caravan.at} to {start}: {why}")
            caravan.turn(start)
        for traveller in cluster:
            if traveller.caravan is not caravan:
                if traveller.caravan is not None:
                    traveller.caravan.leave(traveller)
                    self.moves += 1
                caravan.take(traveller)

    def ready(self, caravan: Caravan) -> bool:
        """Whether anybody aboard takes more. Then the others get off, rather than be waited for; else all wait where they are."""
        blocked = [riders for riders in caravan.riders.values() if not riders.link.takes]
        idle = [scout for scout in caravan.scouts if not scout.active]
        if len(blocked) == len(caravan.riders) and len(idle) == len(caravan.scouts):
            return False
        for riders in blocked:
            for flow in list(riders.flows.values()):
                caravan.leave(flow)
                self.moves += 1
        for scout in idle:
            caravan.leave(scout)
        return True

    def merge(self, caravan: Caravan, into: Caravan) -> None:
        """It has come as far as the other: one reader is enough."""
        self.decide("merge", caravan, f"it came to caravan {into.number} at {into.at}: one reader is enough")
        for traveller in list(caravan.travellers):
            caravan.leave(traveller)
            into.take(traveller)
        self.merges += 1
        self.close(caravan)

    def disband(self, caravan: Caravan) -> None:
        """All get off, and wait."""
        for traveller in list(caravan.travellers):
            caravan.leave(traveller)
        self.close(caravan)

    def decide(self, what: str, caravan: Caravan, why: str) -> None:
        self.decisions.append(Decision(self.now_us, what, caravan.number, why))

    def close(self, caravan: Caravan) -> None:
        if self.all.pop(caravan.number, None) is not None:
            self._context.deliver(CloseLog(caravan.number))


def _groups(caravan: Caravan) -> Iterable[Group]:
    """Those aboard who are active, by place: nearly always one."""
    for riders in caravan.riders.values():
        if not riders.link.takes:
            continue
        if riders.until <= caravan.at:
            yield Group(caravan.at, tuple(riders.flows.values()))
        else:
            for flow in riders.flows.values():
                yield Group(flow.position, (flow,))
    for scout in caravan.scouts:
        if scout.active:
            yield Group(scout.position, (scout,))


class _Bucket:
    __slots__ = ("at_us", "debt", "rate")

    def __init__(self) -> None:
        self.rate = self.debt = 0.0
        self.at_us = 0


class Meter:
    """What each caravan has read lately, and when it may read on.

    The lead takes its part first. What the total leaves is for trailing caravans, nearest to the lead first: each gets between
    `catch_up_least` and `catch_up_most` times the lead's rate, or waits; only the nearest takes what there is, were it less.
    """

    def __init__(self, config: PublisherConfig) -> None:
        self.config = config
        self._buckets: dict[int, _Bucket] = {}
        self._allowed: dict[int, float] = {}

    def took(self, caravan: Caravan, size: int, now_us: int) -> None:
        bucket = self._buckets.setdefault(caravan.number, _Bucket())
        self._age(bucket, now_us, self._allowed.get(caravan.number, 0.0))
        bucket.rate += size / _MEMORY_S
        bucket.debt += size

    def rate(self, caravan: Caravan, now_us: int) -> float:
        """Bytes a second, lately."""
        bucket = self._buckets.get(caravan.number)
        if bucket is None:
            return 0.0
        return bucket.rate * _remains(now_us - bucket.at_us)

    def allot(self, caravans: Caravans, now_us: int) -> None:
        """Anew, as the lead's rate and the limits are now."""
        self._buckets = {number: self._buckets[number] for number in self._buckets if number in caravans.all}
        lead = caravans.lead
        if lead is None:
            self._allowed = {}
            return
        config, pace = self.config, self.rate(lead, now_us)
        each = config.caravan_bytes_s or float("inf")
        total = config.total_bytes_s or float("inf")
        self._allowed = {lead.number: min(each, total)}
        left = max(0.0, total - pace)
        most = min(each, max(config.catch_up_most * pace, config.replay_bytes_s))
        least = min(most, config.catch_up_least * pace)
        trailing = sorted(caravans.all.values(), key=lambda one: one.at, reverse=True)
        for number, caravan in enumerate(one for one in trailing if one is not lead):
            share = min(most, left)
            if share < least and number:  # the nearest one gets what is left, however little
                share = 0.0
            self._allowed[caravan.number] = share
            left -= share

    def allowed(self, caravan: Caravan) -> float:
        return self._allowed.get(caravan.number, float("inf"))

    def delay_us(self, caravan: Caravan, now_us: int) -> int | None:
        """How long until it may read; None: not before the next allotment."""
        allowed = self.allowed(caravan)
        if allowed <= 0:
            return None
        bucket = self._buckets.get(caravan.number)
        if bucket is None or allowed == float("inf"):
            return 0
        self._age(bucket, now_us, allowed)
        over = bucket.debt - allowed * _BURST_S
        return max(0, int(over / allowed * 1e6))

    def _age(self, bucket: _Bucket, now_us: int, allowed: float) -> None:
        passed_us = max(0, now_us - bucket.at_us)  # a clock that was set back has not undone anything
        bucket.at_us = now_us
        bucket.rate *= _remains(passed_us)
        bucket.debt = 0.0 if allowed == float("inf") else max(0.0, bucket.debt - allowed * passed_us / 1e6)


def _remains(passed_us: int) -> float:
    return math.exp(-max(0, passed_us) / 1e6 / _MEMORY_S)

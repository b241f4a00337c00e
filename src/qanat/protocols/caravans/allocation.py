"""How a plan becomes readers of the log (Wormhole, section 3.1): caravans are split, merged and turned, and
travellers moved between them."""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from qanat.events.position import Position
from qanat.protocols.caravans.policy import WEIGHT, Place, Plan, Policy
from qanat.protocols.caravans.travel import AnyCaravan, AnyTraveller

DECISIONS = 50
"""So many of the last are remembered, for people."""

T = TypeVar("T", bound=AnyTraveller)
C = TypeVar("C", bound=AnyCaravan[Any])


class _Spot(Generic[T]):
    """Who is at one place, and what they count together."""

    __slots__ = ("travellers", "weight")

    def __init__(self) -> None:
        self.travellers: list[T] = []
        self.weight = 0.0

    def add(self, travellers: Iterable[T], weight: float) -> None:
        self.travellers += travellers
        self.weight += weight

    def place(self, position: Position, live: bool) -> Place:
        return Place(position, max(1, round(WEIGHT * self.weight)) if self.travellers else 0, live)


class Decision(NamedTuple):
    """What was done with caravans, when, and why; for people."""

    at_us: int
    what: str
    caravan: int
    why: str


class Caravans(Generic[T, C]):
    """All of one log, by number. A number is given once: it is also the name of a reader. `make` makes one,
    of a number, a place, a reason and a company. `pinned` is a lead that goes its own way: it is in the plan,
    but nobody gets on, and it is never turned."""

    def __init__(self, make: Callable[[int, Position, str, str], C], pinned: C | None = None) -> None:
        self._make = make
        self._pinned = pinned
        self.all: dict[int, C] = {} if pinned is None else {pinned.number: pinned}
        self._next = 1
        self.plan = Plan((), "nothing is planned yet")
        self.splits = self.merges = self.moves = self.plans = 0
        self.now_us = 0
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS)

    @property
    def lead(self) -> C | None:
        """The farthest one."""
        return max(self.all.values(), key=lambda caravan: (caravan.at, -caravan.number), default=None)

    def ahead_of(self, caravan: C) -> C | None:
        """The next one on the way that it may join."""
        there = [
            other
            for other in self.all.values()
            if other.at > caravan.at and other.company == caravan.company and other is not self._pinned
        ]
        return min(there, key=lambda other: (other.at, other.number), default=None)

    def arrange(self, waiting: Iterable[T], policy: Policy, most: int) -> None:
        """Everybody who is active into caravans, companies as an operator told and the others as the policy
        says; readers are kept where there are any."""
        companies: dict[str, dict[Position, _Spot[T]]] = {"": {}}
        for traveller in waiting:
            places = companies.setdefault(traveller.company, {})
            places.setdefault(traveller.position, _Spot()).add((traveller,), traveller.weight)
        for caravan in self.all.values():
            places = companies.setdefault(caravan.company, {})
            for group in caravan.groups():
                places.setdefault(group.position, _Spot()).add(group.travellers, group.weight)  # type: ignore[arg-type]
        places = companies.pop("")
        told = {name: company for name, company in sorted(companies.items()) if company}
        if self._pinned is not None:
            places.setdefault(self._pinned.at, _Spot())
        order = sorted(places)
        live = {caravan.at for caravan in self.all.values() if caravan.live or caravan is self._pinned}
        self._make_plan([places[one].place(one, one in live) for one in order], policy, most - len(told))
        free = {number: caravan for number, caravan in self.all.items() if caravan is not self._pinned}
        bounds = [*self.plan.starts, len(order)]
        needed = len(told) + (self._pinned is not None)
        for start, stop in reversed(list(pairwise(bounds))):
            cluster = [one for place in order[start:stop] for one in places[place].travellers]
            if cluster:
                needed += 1
                self._carry(order[start], cluster, free, "", self.plan.why)
        for name, company in told.items():
            cluster = [one for spot in company.values() for one in spot.travellers]
            self._carry(min(company), cluster, free, name, f"an operator keeps {name!r} together")
        left = list(free.values())
        for caravan in left[max(0, most - needed) :]:
            self.decide(
                "disband", caravan, f"at most {most} readers are allowed, and nobody aboard takes more"
            )
            self.disband(caravan)
        for caravan in list(self.all.values()):
            if caravan.empty and caravan is not self._pinned:
                self.close(caravan)

    def _make_plan(self, places: list[Place], policy: Policy, most: int) -> None:
        """Where the plan lets a pinned lead travel with others, these have a caravan without it, so one less
        is left for the rest."""
        self.plans += 1
        if self._pinned is None:
            self.plan = policy.plan(places, max(1, most))
            return
        lead = places[-1]
        given = [*places[:-1], lead._replace(weight=max(1, lead.weight))]
        self.plan = policy.plan(given, max(1, most))
        alone = not lead.weight and self.plan.starts[-1] == len(places) - 1
        if not alone and len(self.plan.starts) >= most > 1:
            self.plan = policy.plan(given, most - 1)

    def _carry(self, start: Position, cluster: list[T], free: dict[int, C], company: str, why: str) -> None:
        """With the reader that has most of them aboard, or else a new one."""
        aboard: dict[int, int] = {}
        for traveller in cluster:
            if traveller.caravan is not None and traveller.caravan.number in free:
                number = traveller.caravan.number
                aboard[number] = aboard.get(number, 0) + 1
        if aboard:
            caravan = free.pop(max(aboard, key=lambda number: (aboard[number], -number)))
        else:
            caravan = self._make(self._next, start, why, company)
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
                if caravan.can_take(traveller):
                    caravan.take(traveller)

    def ready(self, caravan: C) -> bool:
        """Whether anybody aboard takes more. Then the others get off, rather than be waited for; else all
        wait where they are."""
        stuck = caravan.stuck()
        if stuck is None:
            return False
        for traveller in stuck:
            caravan.leave(traveller)
            self.moves += 1
        return True

    def merge(self, caravan: C, into: C) -> None:
        """It has come as far as the other: one reader is enough."""
        self.decide("merge", caravan, f"it came to caravan {into.number} at {into.at}: one reader is enough")
        for traveller in list(caravan.travellers):
            caravan.leave(traveller)
            if into.can_take(traveller):
                into.take(traveller)
        self.merges += 1
        self.close(caravan)

    def disband(self, caravan: C) -> None:
        """All get off, and wait."""
        for traveller in list(caravan.travellers):
            caravan.leave(traveller)
        self.close(caravan)

    def decide(self, what: str, caravan: C, why: str) -> None:
        self.decisions.append(Decision(self.now_us, what, caravan.number, why))

    def told(self, now_us: int) -> list[dict[str, Any]]:
        """The last decisions, the newest first."""
        return [
            {
                "ago_s": round(max(0, now_us - each.at_us) / 1e6, 1),
                "what": each.what,
                "caravan": each.caravan,
                "why": each.why,
            }
            for each in reversed(self.decisions)
        ]

    def close(self, caravan: C) -> None:
        if self.all.pop(caravan.number, None) is not None:
            self.closed(caravan)

    def closed(self, caravan: C) -> None:
        """Its reader is needed no more."""

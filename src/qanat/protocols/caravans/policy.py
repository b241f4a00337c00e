"""Which flows travel together (Wormhole, section 3.1): clusters of neighbouring places in the log, one caravan each.

A caravan begins at the first place of its cluster, and those who are ahead of it wait until it comes by. Few caravans read little and let
flows wait; many read the same part of the log again and again. What a policy decides is where to cut.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.protocols.caravans.plugged import plugged


class Place(NamedTuple):
    """Flows (so many) that are at one position."""

    position: Position
    flows: int


class Plan(NamedTuple):
    """`starts[i]` is the number of the first place of cluster i; the first is 0, they rise. `why` is for people."""

    starts: tuple[int, ...]
    why: str


class Policy(Protocol):
    """A function of the places, which are distinct and rise; the last one is the lead's. At most `most` clusters."""

    def plan(self, places: Sequence[Place], most: int) -> Plan: ...


def distance(one: Position, other: Position) -> int:
    """In sequence numbers of the log."""
    return other.sequence - one.sequence


def waiting(places: Sequence[Place], starts: Sequence[int]) -> int:
    """How far flows wait in all, if caravans begin at these places."""
    total = 0
    for start, stop in pairwise([*starts, len(places)]):
        for place in places[start:stop]:
            total += place.flows * distance(places[start].position, place.position)
    return total


class Threshold:
    """The paper's: places within a distance share a caravan, those who lead have one to themselves. If that makes too many, those that
    begin next to each other are joined."""

    def __init__(self, near: int) -> None:
        self._near = near

    def plan(self, places: Sequence[Place], most: int) -> Plan:
        if not places:
            return Plan((), "nobody travels")
        if most == 1:
            return Plan((0,), "only one caravan is allowed")
        starts = [0]
        lead = len(places) - 1
        for number in range(1, lead):
            if distance(places[starts[-1]].position, places[number].position) > self._near:
                starts.append(number)
        if lead:
            starts.append(lead)
        wanted = len(starts)
        while len(starts) > most:  # never the lead: it is the last one, and stays alone
            gaps = [distance(places[a].position, places[b].position) for a, b in pairwise(starts[:-1])]
            del starts[gaps.index(min(gaps)) + 1]
        cut = f", joined to {most}" if wanted > most else ""
        return Plan(tuple(starts), f"{wanted} clusters of places within {self._near}, and the lead{cut}")


class LeastWaiting:
    """Of all ways to cut the places into so many clusters, the one in which flows wait least in all.

    The cost of a cluster (what its flows wait for its first) obeys the quadrangle inequality, so the best last cut moves in one direction as
    there are more places, and the best clustering is found by halving, in `most` rounds of n log n steps. Of clusterings
    that differ by no more than `near` for each flow, the one with the fewest caravans is taken.
    """

    def __init__(self, near: int) -> None:
        self._near = near

    def plan(self, places: Sequence[Place], most: int) -> Plan:
        if not places:
            return Plan((), "nobody travels")
        flows = [0, *accumulate(place.flows for place in places)]
        moments = [
            0,
            *accumulate(place.flows * distance(places[0].position, place.position) for place in places),
        ]
        ways = [distance(places[0].position, place.position) for place in places]

        def cost(start: int, stop: int) -> int:
            return moments[stop] - moments[start] - ways[start] * (flows[stop] - flows[start])

        costs, cuts = _rounds(len(places), min(most, len(places)), cost)
        slack = self._near * flows[-1]
        count = next(n for n, each in enumerate(costs, 1) if each <= costs[-1] + slack)
        starts: list[int] = []
        stop = len(places)
        for number in range(count - 1, -1, -1):
            stop = cuts[number][stop]
            starts.append(stop)
        why = f"{count} caravans let flows wait for {costs[count - 1]} in all, {len(costs)} for {costs[-1]}"
        return Plan(tuple(reversed(starts)), why)


def _rounds(count: int, most: int, cost: Callable[[int, int], int]) -> tuple[list[int], list[list[int]]]:
    """For 1, 2, … `most` clusters the least cost, and for each number of places where the last cluster begins."""
    best = [cost(0, stop) if stop else 0 for stop in range(count + 1)]
    costs, cuts = [best[count]], [[0] * (count + 1)]
    for clusters in range(2, most + 1):
        new, cut = list(best), [0] * (count + 1)
        jobs = [(clusters, count, clusters - 1, count - 1)]
        while jobs:
            low, high, first, last = jobs.pop()
            if low > high:
                continue
            middle = (low + high) // 2
            value, at = min(
                (best[start] + cost(start, middle), start)
                for start in range(max(first, clusters - 1), min(last, middle - 1) + 1)
            )
            new[middle], cut[middle] = value, at
            jobs += [(low, middle - 1, first, at), (middle + 1, high, at, last)]
        best = new
        costs.append(best[count])
        cuts.append(cut)
    return costs, cuts


POLICIES: dict[str, Callable[[int], Policy]] = {"threshold": Threshold, "least-waiting": LeastWaiting}
"""By name; each is given `near`. Others are plugged in."""


def make_policy(name: str, near: int, known: Mapping[str, Callable[[int], Policy]] | None = None) -> Policy:
    policies = {**POLICIES, **(known or {})}
    if ":" in name:
        made: Policy = plugged(name, "policy")(near)
        return made
    if name not in policies:
        raise LocalError(
            f"there is no policy {name!r}; there are {', '.join(policies)}, and your own as module:Class"
        )
    return policies[name](near)

"""Which flows travel together (Wormhole, section 3.1): clusters of neighbouring places in the log, one
caravan each.

A caravan begins at the first place of its cluster, and those who are ahead of it wait until it comes by. Few
caravans read little and let flows wait; many read the same part of the log again and again. What a policy
decides is where to cut.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.protocols.caravans.plugged import plugged

WEIGHT = 1000
"""Of one application, or of one subscriber of a stream."""


class Place(NamedTuple):
    """A position at which somebody is, and how much they count: `WEIGHT` for each application that is there
    with all its shards."""

    position: Position
    weight: int
    live: bool = False
    """Whether a caravan waits there, at the end of the log, for what is new."""


class Plan(NamedTuple):
    """`starts[i]` is the number of the first place of cluster i; the first is 0, they rise. `why` is for
    people."""

    starts: tuple[int, ...]
    why: str


class Policy(Protocol):
    """A function of the places, which are distinct and rise; the last one is the lead's. At most `most`
    clusters."""

    def plan(self, places: Sequence[Place], most: int) -> Plan: ...


def distance(one: Position, other: Position) -> int:
    """In sequence numbers of the log."""
    return other.sequence - one.sequence


def waiting(places: Sequence[Place], starts: Sequence[int]) -> int:
    """How far they wait in all, by weight, if caravans begin at these places."""
    total = 0
    for start, stop in pairwise([*starts, len(places)]):
        for place in places[start:stop]:
            total += place.weight * distance(places[start].position, place.position)
    return total


def clusters(places: Sequence[Place], near: int) -> list[int]:
    """Where those begin that lie within a distance of their first."""
    starts = [0]
    for number, place in enumerate(places):
        if distance(places[starts[-1]].position, place.position) > near:
            starts.append(number)
    return starts


class Threshold:
    """The paper's: places within a distance share a caravan, those who lead have one to themselves. If that
    makes too many, those that begin next to each other are joined."""

    def __init__(self, near: int) -> None:
        self._near = near

    def plan(self, places: Sequence[Place], most: int) -> Plan:
        if not places:
            return Plan((), "nobody travels")
        if most == 1:
            return Plan((0,), "only one caravan is allowed")
        lead = len(places) - 1
        starts = [*clusters(places[:lead], self._near), lead] if lead else [0]
        wanted = len(starts)
        while len(starts) > most:  # never the lead: it is the last one, and stays alone
            gaps = [distance(places[a].position, places[b].position) for a, b in pairwise(starts[:-1])]
            del starts[gaps.index(min(gaps)) + 1]
        cut = f", joined to {most}" if wanted > most else ""
        return Plan(tuple(starts), f"{wanted} clusters of places within {self._near}, and the lead{cut}")


class LeastWaiting:
    """Of all ways to cut the places into so many clusters, the one in which applications wait least in all;
    of those that are equal in this, the one whose readers have least to read until they come to the lead.
    Places within `near` of each other share a reader as in the paper's policy, and a lead that is live has
    one to itself.

    Let n be the places and w(i, j) what those from i to j wait for i, and what its reader has to read. w
    obeys the quadrangle inequality, so the best last cut moves in one direction as there are more places, and
    the best clustering is found by halving, in `most` rounds of n log n steps. On the workload of Fig. 7 no
    other schedule of the readers, foresight and all, makes updates less late (`w15_model`).
    """

    def __init__(self, near: int) -> None:
        self._near = near

    def plan(self, places: Sequence[Place], most: int) -> Plan:
        if not places:
            return Plan((), "nobody travels")
        lead = len(places) - 1
        alone = lead > 0 and most > 1 and places[lead].live
        behind = places[:lead] if alone else places
        begins = clusters(behind, self._near)
        ways = [distance(places[0].position, places[begin].position) for begin in begins]
        span = distance(places[0].position, places[lead].position)
        weights, moments = [0], [0]
        for begin, end in pairwise([*begins, len(behind)]):
            some = behind[begin:end]
            weights.append(weights[-1] + sum(place.weight for place in some))
            moments.append(
                moments[-1]
                + sum(place.weight * distance(places[0].position, place.position) for place in some)
            )
        scale = len(begins) * span + 1
        """What is read decides only between those that wait the same."""

        def cost(start: int, stop: int) -> int:
            waits = moments[stop] - moments[start] - ways[start] * (weights[stop] - weights[start])
            return waits * scale + span - ways[start]

        costs, cuts = _rounds(len(begins), min(most - alone, len(begins)), cost)
        count = min(range(len(costs)), key=costs.__getitem__) + 1
        starts = [lead] if alone else []
        stop = len(begins)
        for number in range(count - 1, -1, -1):
            stop = cuts[number][stop]
            starts.append(begins[stop])
        waits = costs[count - 1] // scale / max(1, weights[-1])
        why = (
            f"{len(starts)} caravans, {'the live lead and ' if alone else ''}those that let applications wait"
            f" least, for {waits:.0f} on average"
        )
        return Plan(tuple(reversed(starts)), why)


def _rounds(count: int, most: int, cost: Callable[[int, int], int]) -> tuple[list[int], list[list[int]]]:
    """For 1, 2, … `most` clusters the least cost, and for each number of places where the last cluster
    begins."""
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

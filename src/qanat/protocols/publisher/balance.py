"""Which subscriber of an application gets a flow (Wormhole, section 3.1 and Figure 11).

A strategy is given the flows that nobody has, and the subscribers that are there; when some came, and again
and again, it may name flows that should go to others. It decides nothing else: how a flow goes from one
subscriber to the other is the same for all.
"""

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from qanat.events.errors import LocalError
from qanat.protocols.caravans.plugged import plugged
from qanat.protocols.publisher.config import PublisherConfig
from qanat.protocols.publisher.flows import Flow, Served
from qanat.protocols.publisher.link import Link

Moves = list[tuple[Flow, Link]]


class Balance(Protocol):
    """To be plugged in; `publisher.balance` names it `module:Class`, which is made without arguments."""

    shares_loads: bool
    """Whether publishers tell each other through the coordinator how many flows each subscriber has:
    `served.elsewhere`."""

    def assign(
        self, served: Served, flows: Sequence[Flow], links: Sequence[Link], rng: random.Random
    ) -> list[Link]:
        """For each flow one of the links, of which there is at least one."""

    def move(self, served: Served, links: Sequence[Link], came: Sequence[Link], rng: random.Random) -> Moves:
        """Flows that should leave their subscriber for another; asked when `came` have come."""

    def rebalance(self, served: Served, links: Sequence[Link], rng: random.Random) -> Moves:
        """The same, asked every `rebalance_ms`."""


class WeightedRandom:
    """The paper's first mode: by chance, and the likelier the fewer flows a subscriber has for its weight.

    When a subscriber comes, each flow goes to it with the chance that it would have had.
    """

    shares_loads = False

    def assign(
        self, served: Served, flows: Sequence[Flow], links: Sequence[Link], rng: random.Random
    ) -> list[Link]:
        loads = [float(len(link.flows)) for link in links]
        found = []
        for _ in flows:
            chances = [
                link.weight / (1 + load / link.weight) for link, load in zip(links, loads, strict=True)
            ]
            number = rng.choices(range(len(links)), chances)[0]
            loads[number] += 1
            found.append(links[number])
        return found

    def move(self, served: Served, links: Sequence[Link], came: Sequence[Link], rng: random.Random) -> Moves:
        total = sum(link.weight for link in links)
        share = sum(link.weight for link in came) / total
        weights = [link.weight for link in came]
        return [
            (flow, rng.choices(came, weights)[0])
            for link in links
            if link not in came
            for flow in link.flows.values()
            if not flow.leaving and rng.random() < share
        ]

    def rebalance(self, served: Served, links: Sequence[Link], rng: random.Random) -> Moves:
        return []


class Coordinated:
    """The paper's second mode: who has least for its weight gets the next flow, and what is out of balance is
    evened out periodically.

    Loads are those at all publishers that share the coordinator, where there is one. All of them come to the
    same plan, so that each carries out of it only as much as it has of the flows in question: by chance,
    which evens out what several do at a time.
    """

    shares_loads = True

    def assign(
        self, served: Served, flows: Sequence[Flow], links: Sequence[Link], rng: random.Random
    ) -> list[Link]:
        loads = loads_of(served, links)
        least = [((loads[link] + 1) / link.weight, rng.random(), at) for at, link in enumerate(links)]
        heapq.heapify(least)
        found = []
        for _ in flows:
            _, chance, at = least[0]
            link = links[at]
            loads[link] += 1
            heapq.heapreplace(least, ((loads[link] + 1) / link.weight, chance, at))
            found.append(link)
        return found

    def move(self, served: Served, links: Sequence[Link], came: Sequence[Link], rng: random.Random) -> Moves:
        return self.rebalance(served, links, rng)

    def rebalance(self, served: Served, links: Sequence[Link], rng: random.Random) -> Moves:
        loads = loads_of(served, links)
        mine = {link: [flow for flow in link.flows.values() if not flow.leaving] for link in links}
        planned = evened(loads, rng)
        moves: Moves = []
        shares = {link: len(flows) / max(1, loads[link]) for link, flows in mine.items()}
        for flows in mine.values():
            rng.shuffle(flows)
        for source, target in planned:
            share = shares[source]
            if mine[source] and (share >= 1 or rng.random() < share):
                moves.append((mine[source].pop(), target))
        return moves


def loads_of(served: Served, links: Sequence[Link]) -> dict[Link, int]:
    """What each has, or is about to get, here and elsewhere."""
    coming: dict[str, int] = {}
    for link in served.links.values():
        for leaving in link.leaving:
            coming[leaving.to] = coming.get(leaving.to, 0) + len(leaving.flows)
    return {
        link: (
            sum(not flow.leaving for flow in link.flows.values())
            + coming.get(link.address, 0)
            + served.elsewhere.get(link.address, 0)
        )
        for link in links
    }


def evened(loads: Mapping[Link, int], rng: random.Random) -> list[tuple[Link, Link]]:
    """From whom to whom one flow each should go, until no further move would make it more even."""
    now = dict(loads)
    order = {link: (rng.random(), number) for number, link in enumerate(loads)}
    most = [(-load / link.weight, *order[link], link) for link, load in now.items()]
    least = [((load + 1) / link.weight, *order[link], link) for link, load in now.items()]
    heapq.heapify(most)
    heapq.heapify(least)
    moves: list[tuple[Link, Link]] = []
    while True:
        source, target = most[0][-1], least[0][-1]
        if source is target or -most[0][0] <= least[0][0]:
            return moves
        now[source] -= 1
        now[target] += 1
        heapq.heapreplace(most, (-now[source] / source.weight, *order[source], source))
        heapq.heapreplace(least, ((now[target] + 1) / target.weight, *order[target], target))
        moves.append((source, target))


BALANCES: dict[str, Callable[[], Balance]] = {"weighted-random": WeightedRandom, "coordinated": Coordinated}


def make_balance(config: PublisherConfig) -> Balance:
    if ":" in config.balance:
        made: Balance = plugged(config.balance, "balance")()
        lacks = [name for name in ("assign", "move", "rebalance") if not callable(getattr(made, name, None))]
        if lacks:
            raise LocalError(f"the balance {config.balance!r} has no method {lacks[0]}")
        return made
    if config.balance not in BALANCES:
        raise LocalError(
            f"there is no balance {config.balance!r}; there are {', '.join(BALANCES)}, and your own as"
            " module:Class"
        )
    return BALANCES[config.balance]()

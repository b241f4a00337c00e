"""How evenly flows lie on subscribers: by chance, and by what publishers tell each other (Wormhole, Fig. 11).

The strategies that ship, on flows and subscribers without a network: each publisher gives its own shards out,
one publisher after the other.
"""

from __future__ import annotations

import random
from typing import cast

import msgspec

from qanat.events.position import Position
from qanat.kernel import Address, Context
from qanat.protocols.publisher.balance import BALANCES
from qanat.protocols.publisher.config import ApplicationConfig
from qanat.protocols.publisher.flows import Flow, Served
from qanat.protocols.publisher.link import Link

PAPER_MEAN = 124
"""Shards of a subscriber, about which the paper's histograms lie."""


class Spread(msgspec.Struct, frozen=True):
    strategy: str
    loads: list[int]
    """Shards of each subscriber, over all publishers; normalised, so that their mean is the paper's."""

    @property
    def width(self) -> int:
        return max(self.loads) - min(self.loads)


def distribute(strategy: str, publishers: int, subscribers: int, seed: int = 1) -> Spread:
    """So many shards that each subscriber would have the paper's mean."""
    rng, balance = random.Random(seed), BALANCES[strategy]()
    shards = PAPER_MEAN * subscribers // publishers
    loads: dict[str, int] = {f"s{number}": 0 for number in range(subscribers)}
    places: list[Served] = []
    for number in range(publishers):
        served = Served("cache", ApplicationConfig(), number)
        places.append(served)
        for address in loads:
            served.links[Address(address)] = Link(cast(Context, None), Address(address), served)
        links = list(served.links.values())
        if balance.shares_loads:
            served.elsewhere = dict(loads)
        flows = [Flow(served, 0, Position(0), f"{number}/{shard}", shard) for shard in range(shards)]
        for flow, link in zip(flows, balance.assign(served, flows, links, rng), strict=True):
            link.add(flow)
            loads[link.address] += 1
    return Spread(strategy, sorted(loads.values()))

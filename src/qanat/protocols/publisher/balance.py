"""Which subscriber of an application gets a flow.

A strategy is given the flows that nobody has, and the subscribers that are there; and when some came, it may name flows that should go to
them. It decides nothing else: how a flow goes from one subscriber to the other is the same for all.
"""

import random
from collections.abc import Sequence
from typing import Protocol

from qanat.protocols.publisher.flows import Flow, Served
from qanat.protocols.publisher.link import Link


class Balance(Protocol):
    """To be plugged in."""

    def assign(
        self, served: Served, flows: Sequence[Flow], links: Sequence[Link], rng: random.Random
    ) -> list[Link]:
        """For each flow one of the links, of which there is at least one."""

    def move(
        self, served: Served, links: Sequence[Link], came: Sequence[Link], rng: random.Random
    ) -> list[tuple[Flow, Link]]:
        """Flows that should leave their subscriber for another; asked when `came` have come."""


class WeightedRandom:
    """The paper's first mode: by chance, and the likelier the fewer flows a subscriber has for its weight.

    When a subscriber comes, each flow goes to it with the chance that it would have had.
    """

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

    def move(
        self, served: Served, links: Sequence[Link], came: Sequence[Link], rng: random.Random
    ) -> list[tuple[Flow, Link]]:
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

"""Flows are evened out over subscribers, by each strategy, whatever breaks; and strategies that do not are
caught."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import msgspec
import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, planted

from qanat.checks.publisher_hosts import PublisherStudy, builder
from qanat.checks.scenarios import load_scenario
from qanat.protocols.publisher.balance import Coordinated, Moves
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.flows import Flow, Served
from qanat.protocols.publisher.link import Link
from qanat.sim import Scenario
from qanat.sim.testing import assert_kept

SWARM, TOGETHER = "scenarios/publisher_swarm.toml", "scenarios/publisher_balance.toml"


def balanced_by(path: str, name: str, *more: str) -> Scenario:
    """The scenario with another strategy, and perhaps other checkers beside."""
    scenario = load_scenario(path)
    study = scenario.config
    assert isinstance(study, PublisherStudy)
    publisher = msgspec.structs.replace(study.publisher, balance=name, rebalance_ms=200.0)
    config = msgspec.structs.replace(study, publisher=publisher)
    check = msgspec.structs.replace(scenario.check, checkers=(*scenario.check.checkers, *more))
    return dataclasses.replace(scenario, config=config, check=check)


class ByName:
    """A user's own: each shard has its place among the subscribers, by their names; whoever comes or goes
    changes that."""

    shares_loads = False

    def _place(self, flow: Flow, links: Sequence[Link]) -> Link:
        return sorted(links, key=lambda link: link.address)[sum(flow.shard.encode()) % len(links)]

    def assign(
        self, served: Served, flows: Sequence[Flow], links: Sequence[Link], rng: random.Random
    ) -> list[Link]:
        return [self._place(flow, links) for flow in flows]

    def move(self, served: Served, links: Sequence[Link], came: Sequence[Link], rng: random.Random) -> Moves:
        return self.rebalance(served, links, rng)

    def rebalance(self, served: Served, links: Sequence[Link], rng: random.Random) -> Moves:
        return [
            (flow, self._place(flow, links))
            for link in links
            for flow in link.flows.values()
            if not flow.leaving
        ]


@pytest.mark.rotating
@pytest.mark.paper("W11")
def test_one_publisher_evens_out_its_flows() -> None:
    assert_kept(balanced_by(SWARM, "coordinated", "balanced"), share(range(12)))


@pytest.mark.rotating
@pytest.mark.paper("W11")
def test_several_publishers_even_out_their_flows_together() -> None:
    assert_kept(load_scenario(TOGETHER), share(range(8)))


@pytest.mark.rotating
@pytest.mark.paper("W11")
def test_a_strategy_of_ones_own_keeps_the_promises_too() -> None:
    assert_kept(balanced_by(SWARM, f"{__name__}:ByName"), share(range(8)))


class NeverMoves(Coordinated):
    """What is out of balance stays so."""

    def rebalance(self, served: Served, links: Sequence[Link], rng: random.Random) -> Moves:
        return []


class KeepsToItself(CopyPublisher):
    """It looks at its own flows alone."""

    def _share_loads(self) -> None: ...


@pytest.mark.paper("W11")
def test_a_strategy_that_does_not_even_out_is_caught() -> None:
    _, (worst, *_) = first_caught(balanced_by(SWARM, f"{__name__}:NeverMoves", "balanced"), range(60))
    assert worst.checker == "balanced", worst.explanation
    _, (worst, *_) = first_caught(planted(load_scenario(TOGETHER), builder(KeepsToItself)), range(60))
    assert worst.checker == "balanced", worst.explanation

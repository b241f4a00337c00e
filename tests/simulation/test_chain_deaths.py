"""Who is known to be dead is not waited for: a replica whose process is gone leaves its chain at once; one
that lives never does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.rotation import share
from tests.simulation.chain_story import COORDINATOR, Story
from tests.simulation.planting import first_caught, looked_at_by, planted

from qanat.checks.chain_hosts import ChainHosts, ChainStudy, chain_of
from qanat.checks.coordinator_hosts import COORDINATOR as COORDINATORS
from qanat.checks.scenarios import load_scenario
from qanat.coordinate import CoordinatorServer
from qanat.coordinate.messages import Gone
from qanat.kernel import Address, Context, Factory, Machine
from qanat.protocols.chain import Replica
from qanat.sim import Place
from qanat.sim.faults import Reject
from qanat.sim.testing import assert_kept

SCENARIO = Path(__file__).parents[2] / "scenarios/chain_rejects.toml"
LONG_MS = 60_000.0


def patient(refused_is_dead: bool = True) -> Story:
    """Whoever waits for a timeout waits for a minute."""
    story = Story(
        SCENARIO,
        failure_ms=LONG_MS,
        session={"timeout_ms": LONG_MS, "refused_is_dead": refused_is_dead},
    )
    story.run_until(lambda: story.serves(3))
    return story


@pytest.mark.paper("S9")
@pytest.mark.parametrize("place", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_replica_whose_process_is_dead_leaves_its_chain_at_once(place: int) -> None:
    story = patient()
    dead = story.chain[place]
    story.world.kill(story.node(dead))
    story.run_until(lambda: dead not in story.chain and story.serves(2), within_s=0.5)
    assert story.publish(story.chain[0], 1, "a", 1, wait_s=0.1) is not None


@pytest.mark.paper("S9")
def test_when_the_coordinator_dies_with_the_head_the_chain_waits_only_for_the_coordinator() -> None:
    story = patient()
    dead = story.chain[0]
    for each in (Address(COORDINATOR), dead):
        story.world.kill(story.node(each))
    story.run(2.0)
    story.node(Address(COORDINATOR)).restart()
    story.run_until(lambda: dead not in story.chain and story.serves(2), within_s=1.0)


def test_without_the_setting_a_dead_replica_is_waited_for() -> None:
    story = patient(refused_is_dead=False)
    dead = story.chain[0]
    story.world.kill(story.node(dead))
    story.run(5.0)
    assert dead in story.chain


def test_a_machine_that_lost_its_power_refuses_nothing_and_is_waited_for() -> None:
    story = patient()
    dead = story.chain[0]
    story.crash(dead)
    story.run(5.0)
    assert dead in story.chain


@pytest.mark.parametrize("place", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_replica_that_lives_behind_a_firewall_that_refuses_stays(place: int) -> None:
    """The coordinator hears from it."""
    story = patient()
    chain, epoch = story.chain, chain_of(story.node(story.chain[0])).epoch
    others = tuple(each for each in chain if each != chain[place])
    heal = Reject(between=((chain[place],), others)).begin(story.world)
    story.run(5.0)
    heal()
    story.run_until(lambda: story.serves(3))
    assert story.chain == chain
    assert chain_of(story.node(chain[0])).epoch == epoch


class BelievesOneWitness(CoordinatorServer):
    """Whoever is said to be dead is dead, though it is heard."""

    def _gone(self, sender: Address, message: Gone) -> None:
        if self._is_attached(sender, message.session) and message.gone in self.tree.sessions:
            self._end(message.gone)


class CredulousHosts(ChainHosts):
    def make(self, context: Context) -> Machine[Any, Any]:
        machine = super().make(context)
        return (
            BelievesOneWitness(context, self._server) if isinstance(machine, CoordinatorServer) else machine
        )


def credulous(study: ChainStudy, places: Sequence[Place]) -> Factory:
    coordinator = next(place.address for place in places if place.group == COORDINATORS)
    return CredulousHosts(study, Replica, coordinator).make


@pytest.mark.rotating
@pytest.mark.paper("S9")
def test_refusals_that_lie_remove_nobody_that_lives() -> None:
    assert_kept(load_scenario(SCENARIO), share(range(30)))


@pytest.mark.paper("S9")
def test_a_coordinator_that_believed_a_refusal_alone_would_have_two_tails_at_once() -> None:
    broken = looked_at_by(planted(load_scenario(SCENARIO), credulous), "fenced")
    _, (worst, *_) = first_caught(broken, range(CAUGHT, CAUGHT + 20))
    assert worst.checker == "fenced"


CAUGHT = 115
"""Such an overlap is rare: a replica must have something to show, and not have heard yet that it is out."""

"""A coordinator on three machines keeps its promises; and broken versions of it are caught."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, planted
from tests.simulation.test_raft_scenarios import VotesThoughItForgot

from qanat.checks.coordinator_hosts import builder
from qanat.checks.scenarios import load_scenario
from qanat.coordinate.ensemble import EnsembleMember, Held
from qanat.kernel import Address, Message
from qanat.protocols.raft import Raft
from qanat.sim.testing import assert_kept

SWARM = "scenarios/coordinator_ensemble_swarm.toml"


@pytest.mark.rotating
def test_a_coordinator_on_three_machines_keeps_its_promises() -> None:
    assert_kept(load_scenario(SWARM), share(range(20)))


# Planted bugs: each takes one rule out, and some seed must notice.


class AnswersAtOnce(Held):
    """What is in the leader's log is answered, before it is in any other, and whoever leads by now."""

    def send(self, to: Address, message: Message) -> None:
        self._context.send(to, message)


def with_raft(**parts: type[Any]) -> type[EnsembleMember]:
    return type("Planted", (EnsembleMember,), {"raft_type": type("PlantedRaft", (Raft,), parts)})


def with_held(held: type[Held]) -> type[EnsembleMember]:
    return type("Planted", (EnsembleMember,), {"held_type": held})


@pytest.mark.parametrize(
    ("member", "checkers"),
    [
        (with_held(AnswersAtOnce), {"one-owner", "leases", "answered"}),
        (
            with_raft(election_type=VotesThoughItForgot),
            {"answered", "one-leader", "one-owner", "leases", "settles", "machine"},
        ),
    ],
)
def test_a_planted_bug_is_caught(member: type[EnsembleMember], checkers: set[str]) -> None:
    _, (worst, *_) = first_caught(planted(load_scenario(SWARM), builder(member)), range(40))
    assert worst.checker in checkers, worst.explanation

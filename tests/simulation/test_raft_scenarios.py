"""Ensembles keep their promises under every scenario of the house; and broken versions of them are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, planted

from qanat.checks.raft_hosts import Keeper, Seen, Stored, builder
from qanat.checks.scenarios import load_scenario
from qanat.kernel import Address
from qanat.protocols.raft import Raft
from qanat.protocols.raft.election import Election
from qanat.protocols.raft.leading import Leading
from qanat.protocols.raft.messages import RequestVote
from qanat.protocols.raft.presence import Presence
from qanat.protocols.raft.records import Standing
from qanat.sim import run
from qanat.sim.testing import assert_kept

SWARM, PAIRS = "scenarios/raft_swarm.toml", "scenarios/raft_pairs.toml"


@pytest.mark.rotating
def test_an_ensemble_keeps_its_promises_under_swarms_of_faults_and_lost_disks() -> None:
    assert_kept(load_scenario(SWARM), share(range(60)))


@pytest.mark.rotating
def test_an_ensemble_of_which_one_alone_hears_both_others_and_forgets_keeps_its_promises() -> None:
    assert_kept(load_scenario(PAIRS), share(range(15)))


def test_a_seed_has_one_trace() -> None:
    scenario = load_scenario(SWARM)
    assert run(scenario, 5).trace == run(scenario, 5).trace


# Planted bugs: each takes one rule out of the protocol, and some seed must notice.


class VotesThoughItForgot(Election):
    """Who came with an empty disk votes at once."""

    def on_request(self, sender: Address, request: RequestVote, *, calm: bool) -> bool:
        kept = self._seat.kept
        was, kept.whole = kept.whole, True
        granted = super().on_request(sender, request, calm=calm)
        kept.whole = was
        return granted


class VotesForAnyLog(Election):
    """A candidate with less in its log than the voter is elected as well."""

    def on_request(self, sender: Address, request: RequestVote, *, calm: bool) -> bool:
        return super().on_request(
            sender, RequestVote(request.term, request.pre, 1 << 40, request.term), calm=calm
        )


class CommitsWithoutAMajority(Leading):
    """What the leader has is committed."""

    def _advance(self) -> None:
        for member in self.members.values():
            member.match, member.whole = self._seat.kept.log.last_index, True
        super()._advance()


class BeginsThoughOthersHaveSomething(Presence):
    """An empty member that hears from another begins."""

    def begins(self) -> bool:
        kept = self._seat.kept
        if kept.whole or not kept.nothing or not self.heard:
            return False
        kept.write(self._seat.context, Standing(whole=True, lost=False))
        return True


class AnswersWithoutARound(Keeper):
    """A leader that may have been deposed says what it has."""

    def _hold(self, item: Stored | Seen) -> None:
        if isinstance(item, Stored):
            super()._hold(item)
        else:
            seat = self.raft.seat
            self.context.deliver(Seen(item.floor, len(seat.kept.log.records(seat.commit))))


class AnswersBeforeTheCommit(Keeper):
    """What was proposed is answered when the next round is confirmed."""

    def _hold(self, item: Stored | Seen) -> None:
        self._held.append((0, self.raft.confirm(), item))


def with_part(**parts: type[Any]) -> type[Keeper]:
    raft = type("PlantedRaft", (Raft,), parts)
    return type("Planted", (Keeper,), {"raft_type": raft})


@pytest.mark.parametrize(
    ("keeper", "path", "checkers"),
    [
        (
            lambda: with_part(election_type=VotesThoughItForgot),
            SWARM,
            {"committed", "answered", "one-leader", "machine"},
        ),
        (lambda: with_part(election_type=VotesForAnyLog), SWARM, {"committed", "answered", "machine"}),
        (
            lambda: with_part(leading_type=CommitsWithoutAMajority),
            SWARM,
            {"committed", "answered", "machine"},
        ),
        (
            lambda: with_part(presence_type=BeginsThoughOthersHaveSomething),
            SWARM,
            {"committed", "answered", "one-leader", "machine"},
        ),
        (lambda: AnswersWithoutARound, SWARM, {"answered"}),
        (lambda: AnswersBeforeTheCommit, SWARM, {"answered"}),
    ],
)
def test_a_planted_bug_is_caught(keeper: Callable[[], type[Keeper]], path: str, checkers: set[str]) -> None:
    _, (worst, *_) = first_caught(planted(load_scenario(path), builder(keeper())), range(200))
    assert worst.checker in checkers, worst.explanation

"""Whole deployments keep their promises under every scenario of the house; and broken versions of them are
caught."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.rotation import share
from tests.simulation.planting import Falsifies, first_caught, looked_at_by, planted
from tests.simulation.test_chain_scenarios import AnswersBeforeTheTail

from qanat.checks.region_hosts import builder
from qanat.checks.scenarios import load_scenario
from qanat.events.batch import Batch, Kind
from qanat.protocols.region import RegionReplica
from qanat.sim import run
from qanat.sim.journal import DiskSpec
from qanat.sim.testing import assert_kept

SWARM, COLLECT = "scenarios/region_swarm.toml", "scenarios/region_collect.toml"


@pytest.mark.rotating
@pytest.mark.paper("S1")
@pytest.mark.paper("S4", "S5")
@pytest.mark.paper("S9")
@pytest.mark.parametrize("part", range(4))
def test_regions_keep_their_promises_under_swarms_of_faults(part: int) -> None:
    assert_kept(load_scenario(SWARM), share(range(part * 40, part * 40 + 40)))


@pytest.mark.rotating
@pytest.mark.paper("S2", "S3")
@pytest.mark.paper("S10")
@pytest.mark.parametrize("part", range(2))
def test_garbage_is_collected_alike_in_every_region(part: int) -> None:
    assert_kept(load_scenario(COLLECT), share(range(part * 20, part * 20 + 20)))


@pytest.mark.paper("S10")
def test_a_replica_that_was_away_collects_the_one_event_that_a_prefix_takes_of_a_segment() -> None:
    assert_kept(load_scenario(COLLECT), [226])


@pytest.mark.paper("S9")
def test_a_deployment_survives_the_loss_of_each_role_and_of_all() -> None:
    assert_kept(load_scenario("scenarios/region_losses.toml"), range(4))


@pytest.mark.rotating
@pytest.mark.paper("S9")
def test_an_operator_may_change_chains_and_restart_replicas_at_any_time() -> None:
    assert_kept(load_scenario("scenarios/region_changes.toml"), share(range(24)))


@pytest.mark.paper("S9")
def test_a_head_that_gives_its_place_away_does_not_answer_while_its_word_is_on_the_way() -> None:
    """It was to shorten the chain by itself; the coordinator had it and its answer was late, while a late
    answer to a beat gave the lease back."""
    assert_kept(load_scenario("scenarios/region_changes.toml"), [7350])


@pytest.mark.paper("S9")
def test_a_former_head_does_not_go_on_without_a_tail_that_it_once_reported() -> None:
    """Losses held up the coordinator's words: the head's session ended, the tail's lived, and each was told
    late."""
    assert_kept(load_scenario(SWARM), [68])


def test_journals_that_take_longer_than_a_session_asks_again_are_only_slow() -> None:
    slow = dataclasses.replace(load_scenario(SWARM), disk=DiskSpec(sync_ms=200.0))
    assert_kept(slow, range(3))


def test_a_seed_has_one_trace() -> None:
    scenario = load_scenario(SWARM)
    assert run(scenario, 5).trace == run(scenario, 5).trace


# Planted bugs: each takes one rule out, and some seed must notice.


class TakesEventsWhileFenced(RegionReplica):
    """A new head begins to receive before the beginning of its era is on disk."""

    def _receives(self) -> bool:
        return self.chain.is_head

    def _taken(self, stream: int, before: int) -> None:
        if not self.chain.is_fenced:
            super()._taken(stream, before)


class EveryReplicaSubscribes(RegionReplica):
    """Replicas that are not the head take remote streams, too."""

    def _receives(self) -> bool:
        return self.chain.is_member

    def _taken(self, stream: int, before: int) -> None:
        if self.chain.is_head:
            super()._taken(stream, before)


class ShowsPeersWhatIsNotStable(RegionReplica):
    """The tail pushes what it has, not what the chain has."""

    def visible(self, stream: int) -> int:
        return self.chain.history.durable(stream) if self.chain.is_tail else 0

    def on_request(self, now_us: int, request: Any) -> None:
        super().on_request(now_us, request)
        for stream in self.owners:
            self.sending.advanced(stream)


class StaleTailGoesOnServing(RegionReplica):
    """A tail that was removed, and may have heard of it, keeps its subscribers, and shows them what it knows
    to be stable."""

    def visible(self, stream: int) -> int:
        return max(self.chain.shown(stream), self.chain.settled(stream))

    def on_timer(self, now_us: int, name: str) -> None:
        super().on_timer(now_us, name)
        for stream in self.owners:
            self.sending.advanced(stream)

    def _sends(self) -> bool:
        return super()._sends() or self.sending.active


class LosesGcEvents(Falsifies):
    """GC events are not forwarded to other regions: what they collected looks alive there, and a tombstone
    unproved."""

    def falsified(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return tuple(map(without_gc, batches))


def without_gc(batch: Batch) -> Batch:
    """The same numbers, but GC events have become plain ones."""
    kinds = batch.kinds
    if kinds is None or not (kinds == Kind.GC).any() or (kinds == Kind.TOMBSTONE).any():
        return batch
    return Batch.build(
        batch.stream,
        batch.payloads(),
        first=batch.first,
        keys=batch.keys(),
        time_us=batch.time_us,
    )


@pytest.mark.paper("S9")
@pytest.mark.parametrize(
    ("bug", "path", "checkers", "words"),
    [
        (TakesEventsWhileFenced, SWARM, {"places", "machine"}, ""),
        (EveryReplicaSubscribes, SWARM, {"places"}, "another is the head"),
        (ShowsPeersWhatIsNotStable, SWARM, {"places", "one-history"}, ""),
        (StaleTailGoesOnServing, SWARM, {"places"}, ""),
        (LosesGcEvents, COLLECT, {"one-history", "collected"}, ""),
    ],
)
def test_a_planted_bug_is_caught(bug: type[Any], path: str, checkers: set[str], words: str) -> None:
    if issubclass(bug, RegionReplica):
        replica: type[RegionReplica] = bug
    else:
        replica = type("Planted", (RegionReplica,), {"sending_type": bug})
    scenario = load_scenario(path)
    disk = DiskSpec(sync_ms=80.0) if bug is TakesEventsWhileFenced else scenario.disk
    broken = dataclasses.replace(planted(scenario, builder(replica)), disk=disk)
    _, (worst, *_) = first_caught(broken, range(40))
    assert worst.checker in checkers, worst.explanation
    assert words in worst.explanation


@pytest.mark.paper("S9")
def test_what_was_answered_and_is_not_there_is_missed_among_tombstones_too() -> None:
    replica = type("Planted", (RegionReplica,), {"chain_type": AnswersBeforeTheTail})
    broken = looked_at_by(planted(load_scenario(COLLECT), builder(replica)), "one-history")
    _, (worst, *_) = first_caught(broken, range(20))
    assert "was answered for" in worst.explanation

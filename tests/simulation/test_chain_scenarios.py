"""Chains keep their promises under every scenario of the house; and broken versions of them are caught."""

from __future__ import annotations

import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, looked_at_by, planted, without

from qanat.checks.chain_hosts import builder
from qanat.checks.scenarios import load_scenario
from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.chain import Chain, Publish, Replica
from qanat.protocols.chain.messages import Claim, Hello
from qanat.sim import run
from qanat.sim.testing import assert_kept

SWARM, COLLECT = "scenarios/chain_swarm.toml", "scenarios/chain_collect.toml"


@pytest.mark.rotating
@pytest.mark.paper("S1")
@pytest.mark.paper("S9")
@pytest.mark.parametrize("part", range(4))
def test_a_chain_keeps_its_promises_under_swarms_of_faults(part: int) -> None:
    assert_kept(load_scenario(SWARM), share(range(part * 40, part * 40 + 40)))


@pytest.mark.rotating
def test_a_chain_whose_coordinator_is_an_ensemble_keeps_its_promises() -> None:
    assert_kept(load_scenario("scenarios/chain_ensemble_swarm.toml"), share(range(20)))


@pytest.mark.rotating
@pytest.mark.paper("S9")
def test_leases_do_not_depend_on_the_time_of_day() -> None:
    assert_kept(load_scenario("scenarios/chain_clocks.toml"), share(range(40)))


def test_a_lease_that_a_jump_of_the_clock_took_and_gave_back_withholds_nothing() -> None:
    assert_kept(without(load_scenario("scenarios/chain_clocks.toml"), "degrade"), [504])


@pytest.mark.paper("S9")
def test_a_place_from_an_earlier_session_is_not_served_under_the_lease_of_the_next() -> None:
    """The tail's session ended, its next one was opened and its answers were held up; meanwhile another chain
    served."""
    assert_kept(without(load_scenario(SWARM), "degrade", "clock-jump", "kill"), [8543])


@pytest.mark.rotating
@pytest.mark.paper("S9")
def test_who_joins_gets_tombstones_and_positions() -> None:
    assert_kept(load_scenario(COLLECT), share(range(10)))


@pytest.mark.rotating
@pytest.mark.paper("S9")
def test_a_chain_changes_its_length_while_it_works() -> None:
    assert_kept(load_scenario("scenarios/chain_resize.toml"), share(range(30)))


@pytest.mark.paper("S9")
def test_a_chain_survives_the_loss_of_each_place_and_of_all() -> None:
    assert_kept(load_scenario("scenarios/chain_losses.toml"), range(3))


def test_a_seed_has_one_trace() -> None:
    scenario = load_scenario(SWARM)
    assert run(scenario, 5).trace == run(scenario, 5).trace


# Planted bugs: each takes one rule out of the protocol, and some seed must notice.


class AnswersBeforeTheTail(Chain):
    """The head does not wait for the replicas after it."""

    def _stored(self, stream: int) -> int:
        return self.history.durable(stream)


class AcknowledgesBeforeItIsDurable(Chain):
    """What is in memory is called stored."""

    def _stored(self, stream: int) -> int:
        if self.down is None or self.down.joining:
            return self.history.counter(stream)
        return min(self.history.counter(stream), self.down.acked.get(stream, 0))


class StaleHeadAnswers(Chain):
    """A head that lost its successor goes on alone instead of waiting for the new configuration."""

    def _stored(self, stream: int) -> int:
        if self.is_head and self.down is not None and not self.down.welcomed:
            return self.history.durable(stream)
        return super()._stored(stream)


class ServesWithoutLease(Chain):
    """The tail and the head never look at their lease."""

    _leased = staticmethod(lambda now_us: True)

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_leased":
            super().__setattr__(name, value)


class ForgetsSources(Chain):
    """Retries are not recognised."""

    def _publish(self, request: Publish) -> None:
        batch = request.batch
        plain = Batch.build(batch.stream, batch.payloads(), keys=batch.keys())
        super()._publish(Publish(request.ticket, plain))


class KeepsADivergentSuffix(Chain):
    """A replica that comes back is taken at its word."""

    def _on_hello(self, now_us: int, sender: Address, message: Hello) -> None:
        claims = tuple(
            Claim(claim.stream, min(claim.counter, counter), self.eras.of(claim.stream, counter))
            for claim in message.claims
            for counter in (min(claim.counter, self.history.counter(claim.stream)),)
        )
        super()._on_hello(now_us, sender, Hello(message.epoch, message.round, claims))


class TakesSomeForRetries(Chain):
    """A publish now and then is counted as had already: it is answered, and not there."""

    def _publish(self, request: Publish) -> None:
        batch = request.batch
        if batch.count and batch.position % 5 == 0 and self.is_head and not self.is_fenced:
            taken = (batch.position + batch.count - 1, 0)
            self.history.adopt_positions(batch.stream, {batch.source_names[0]: taken})
        super()._publish(request)


class LooksOnlyAtWhatItHolds(Chain):
    """Publishers of a stream without events are forgotten when their answer has to wait for a lease."""

    def _advance_all(self, now_us: int) -> None:
        self._advance(now_us, self.history.streams())


@pytest.mark.paper("S9")
@pytest.mark.parametrize(
    ("chain", "checkers"),
    [
        (AnswersBeforeTheTail, {"answered"}),
        (AcknowledgesBeforeItIsDurable, {"answered"}),
        (StaleHeadAnswers, {"answered"}),
        (ServesWithoutLease, {"fenced"}),
        (ForgetsSources, {"stable"}),
        (LooksOnlyAtWhatItHolds, {"settles"}),
        (KeepsADivergentSuffix, {"prefix", "stable", "machine"}),
    ],
)
def test_a_planted_bug_is_caught(chain: type[Chain], checkers: set[str]) -> None:
    replica = type("Planted", (Replica,), {"chain_type": chain})
    _, (worst, *_) = first_caught(planted(load_scenario(SWARM), builder(replica)), range(60))
    assert worst.explanation
    assert worst.checker in checkers


@pytest.mark.paper("S9")
@pytest.mark.parametrize(
    ("chain", "words"), [(AnswersBeforeTheTail, "was answered for"), (TakesSomeForRetries, "were answered")]
)
def test_what_was_answered_and_is_not_there_is_missed_among_tombstones_too(
    chain: type[Chain], words: str
) -> None:
    replica = type("Planted", (Replica,), {"chain_type": chain})
    broken = looked_at_by(planted(load_scenario(COLLECT), builder(replica)), "nothing-lost")
    _, (worst, *_) = first_caught(broken, range(20))
    assert words in worst.explanation

"""Publishers keep their promises under every scenario of the house; and broken versions of them are
caught."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from tests.rotation import share
from tests.simulation.planting import first_caught, looked_at_by, planted

from qanat.checks.publisher_hosts import builder
from qanat.checks.scenarios import load_scenario
from qanat.events.batch import Batch
from qanat.events.position import Position
from qanat.kernel import Address, Context
from qanat.protocols.caravans.policy import Policy
from qanat.protocols.publisher import ownership
from qanat.protocols.publisher.allocation import Caravans
from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.flows import Caravan, Flow, Riders, Scout, Traveller
from qanat.protocols.publisher.holder import Part
from qanat.protocols.publisher.link import Link
from qanat.protocols.publisher.machine import Publisher
from qanat.protocols.publisher.messages import Acknowledge, Join, Token
from qanat.protocols.publisher.records import Kept, KeptFlow, Marked, Noticed, Record
from qanat.protocols.publisher.routing import Codes, Table
from qanat.protocols.publisher.subscriber import Feed, Handed, Subscriber
from qanat.sim import run
from qanat.sim.testing import assert_kept

SWARM, COPIES = "scenarios/publisher_swarm.toml", "scenarios/publisher_copies.toml"
STANDSTILL = "scenarios/publisher_standstill.toml"


@pytest.mark.rotating
@pytest.mark.paper("W3")
@pytest.mark.paper("W4")
@pytest.mark.paper("W7")
@pytest.mark.paper("W9")
@pytest.mark.paper("W13")
@pytest.mark.parametrize("part", range(4))
def test_a_publisher_keeps_its_promises_under_swarms_of_faults(part: int) -> None:
    assert_kept(load_scenario(SWARM), share(range(part * 25, part * 25 + 25)))


@pytest.mark.rotating
@pytest.mark.paper("W7")
@pytest.mark.paper("W12")
@pytest.mark.parametrize("part", range(2))
def test_and_with_applications_of_all_kinds_and_the_other_policy(part: int) -> None:
    assert_kept(
        load_scenario("scenarios/publisher_least_waiting.toml"), share(range(part * 20, part * 20 + 20))
    )


@pytest.mark.rotating
@pytest.mark.paper("W10")
@pytest.mark.paper("W13")
@pytest.mark.parametrize("part", range(3))
def test_copies_take_over_from_each_other(part: int) -> None:
    assert_kept(load_scenario(COPIES), share(range(part * 30, part * 30 + 30)))


@pytest.mark.paper("W10")
def test_copies_whose_records_do_not_fit_into_the_coordinator_pass_over_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is on record lags, and never leads. What came since is sent again, or told to be lost where the
    log was cut: also to shards that are not on record, and do not get what concerned every shard."""
    monkeypatch.setattr(ownership, "CROWDED_BYTES", 260)
    monkeypatch.setattr(ownership, "NODE_BYTES", 280)
    scenario = looked_at_by(load_scenario(COPIES), "order", "losses", "marked", "one-owner", "history")
    assert_kept(scenario, range(4, 6))
    monkeypatch.setattr(CopyPublisher, "_unheard", lambda *_: None)
    _, (worst, *_) = first_caught(scenario, (5,))
    assert worst.checker == "marked", worst.explanation


@pytest.mark.rotating
@pytest.mark.paper("W4")
def test_instances_that_stand_still_with_items_in_hand_begin_nothing_of_what_is_anothers() -> None:
    assert_kept(load_scenario(STANDSTILL), share(range(20)))


@pytest.mark.rotating
@pytest.mark.paper("W14")
def test_whatever_an_operator_does_meanwhile() -> None:
    assert_kept(load_scenario("scenarios/publisher_operated.toml"), share(range(20)))


def test_a_seed_has_one_trace() -> None:
    for path in (SWARM, COPIES):
        scenario = load_scenario(path)
        assert run(scenario, 5).trace == run(scenario, 5).trace


# Planted bugs: each takes one rule out of the protocol, and some seed must notice.


class GoesOnWhereItWas(Publisher):
    """What was sent on a channel that broke is taken to have arrived."""

    def on_link_down(self, now_us: int, peer: Address) -> None:
        link = self.links.get(peer)
        sent = {} if link is None else {flow: flow.position for flow in link.flows.values()}
        super().on_link_down(now_us, peer)
        for flow, position in sent.items():
            flow.sent = position

    def _welcome(self, link: Link, message: Join) -> None:
        sent = {flow: flow.position for flow in link.flows.values()}
        super()._welcome(link, message)
        for flow, position in sent.items():
            flow.sent = position


class ForgetsShards(Publisher):
    """That there is a shard is not on record before markers go beyond its first update."""

    def _keep(self, record: Record) -> None:
        if not isinstance(record, Noticed):
            super()._keep(record)


class FindsTooLate(Publisher):
    """The flow of a new shard begins after the transaction in which it was found."""

    def _found(self, scout: Scout, shards: Sequence[str]) -> None:
        sent = scout.sent
        scout.sent = Position(scout.position.sequence + 1, 1 << 20)
        super()._found(scout, shards)
        scout.sent = sent


class ForgetsWhoIsAhead(Publisher):
    """A caravan gives everybody aboard what it reads, also those who had it."""

    def _of(self, riders: Riders, caravan: Caravan, batch: Batch, codes: Codes) -> Table:
        until, riders.until = riders.until, Position(0, 0)
        mine = super()._of(riders, caravan, batch, codes)
        riders.until = until
        return mine


class LosesPatience(Publisher):
    """A subscriber's shards are given to another before its lease is over."""

    def _expect(self, link: Link) -> None:
        self.context.set_timer(f"lost/{link.address}", link.outlasts_us // 3)


class CutsLeasesShort(Publisher):
    """A lease counts as it is set by now, not as the subscriber was told."""

    def _expect(self, link: Link) -> None:
        self.context.set_timer(f"lost/{link.address}", self.config.outlasts_us)


class TakesAwayAtOnce(Publisher):
    """A flow goes to another subscriber while the one before still works on it."""

    def _withdraw(self, link: Link, flows: Iterable[Flow], to: str) -> None:
        going = [flow for flow in flows if flow.link is link and link.open]
        for flow in going:
            if flow.caravan is not None:
                flow.caravan.leave(flow)
            link.remove(flow)
        self._freed(going, to)


class SaysNothingOfLosses(Publisher):
    """What the log no longer has is passed over."""

    def _tell_loss(self, some: Sequence[Traveller], upto: Position, reason: str) -> None: ...


class HasNoWindow(Publisher):
    """A subscriber is sent whatever there is."""

    def _welcome(self, link: Link, message: Join) -> None:
        super()._welcome(link, message)
        link.window = 1 << 30


class ManyCaravans(Caravans):
    def arrange(self, waiting: Iterable[Traveller], policy: Policy, most: int) -> None:
        super().arrange(waiting, policy, most + 5)


class ReadsTooMuch(Publisher):
    """The limit on the number of caravans is not kept."""

    def __init__(self, context: Context, *arguments: Any) -> None:
        super().__init__(context, *arguments)
        self.caravans = ManyCaravans(context)


class FollowsItsOwnMarkers(Publisher):
    """A token counts as acknowledged when it is sent."""

    def _look_for_markers(self) -> None:
        super()._look_for_markers()
        for link in self.links.values():
            for marks in list(link.tokens.values()):
                self._mark(link.served, marks)


class ForgetsTheHistory(Publisher):
    """What the log had at a datamarker is not on record with it."""

    def _keep(self, record: Record) -> None:
        super()._keep(msgspec.structs.replace(record, seen=()) if isinstance(record, Marked) else record)


@pytest.mark.paper("W9")
@pytest.mark.parametrize(
    ("publisher", "checkers"),
    [
        (GoesOnWhereItWas, {"order", "marked", "nothing-lost"}),
        (ForgetsShards, {"order", "marked", "nothing-lost"}),
        (FindsTooLate, {"order", "marked"}),
        (ForgetsWhoIsAhead, {"order"}),
        (LosesPatience, {"order"}),
        (CutsLeasesShort, {"order"}),
        (TakesAwayAtOnce, {"order"}),
        (SaysNothingOfLosses, {"order", "marked", "nothing-lost"}),
        (HasNoWindow, {"bounded"}),
        (ReadsTooMuch, {"bounded"}),
        (FollowsItsOwnMarkers, {"marked"}),
        (ForgetsTheHistory, {"history"}),
    ],
)
def test_a_bug_planted_into_the_publisher_is_caught(publisher: type[Publisher], checkers: set[str]) -> None:
    seeds = range(20, 80) if publisher is LosesPatience else range(60)
    _, (worst, *_) = first_caught(planted(load_scenario(SWARM), builder(publisher)), seeds)
    assert worst.checker in checkers, worst.explanation


class AcknowledgesAtOnce(Subscriber):
    """Tokens are acknowledged when they come, whatever the application is at."""

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        super().on_message(now_us, sender, message)
        if isinstance(message, Token):
            self.context.send(sender, Acknowledge(message.session, message.number))


class WorksWithoutALease(Subscriber):
    """What waits is handed over however long the publisher was not heard of."""

    def __init__(self, context: Context, *arguments: Any) -> None:
        super().__init__(context, *arguments)
        for feed in self.feeds.values():
            feed.lease.held = lambda now_us: True  # type: ignore[method-assign]


class BeginsWithoutLooking(Subscriber):
    """What was handed over is begun however long the process stood still since."""

    def may_begin(self, handed: Handed, now_us: int) -> bool:
        return True


class ForgetsWhatComesBack(Subscriber):
    """What was not begun is not handed over again."""

    def _returned(self, ticket: int) -> None:
        self.in_hand.pop(ticket, None)


class HandsOverOutOfTurn(Subscriber):
    """What comes back waits behind what came after it."""

    def _returned(self, ticket: int) -> None:
        handed = self.in_hand[ticket]
        super()._returned(ticket)
        queue = self.feeds[Address(handed.publisher)].queue
        if queue and queue[0] is handed.item:
            queue.rotate(-1)


class KeepsWhatIsVoid(Subscriber):
    """Items of a session that ended are handed over with those of the next."""

    def _again(self, now_us: int, feed: Feed) -> None:
        old = list(feed.queue)
        super()._again(now_us, feed)
        feed.queue.extend(old)

    def _welcomed(self, now_us: int, feed: Feed, message: Any) -> None:
        old = list(feed.queue)
        super()._welcomed(now_us, feed, message)
        feed.queue.extend(old)


@pytest.mark.paper("W4")
@pytest.mark.parametrize(
    ("subscriber", "checkers"),
    [
        (AcknowledgesAtOnce, {"marked"}),
        (WorksWithoutALease, {"order"}),
        (BeginsWithoutLooking, {"order"}),
        (ForgetsWhatComesBack, {"order", "marked", "nothing-lost"}),
        (HandsOverOutOfTurn, {"order"}),
        (KeepsWhatIsVoid, {"order"}),
    ],
)
def test_a_bug_planted_into_the_subscriber_is_caught(
    subscriber: type[Subscriber], checkers: set[str]
) -> None:
    returned = subscriber in (BeginsWithoutLooking, ForgetsWhatComesBack, HandsOverOutOfTurn)
    scenario = planted(load_scenario(STANDSTILL if returned else SWARM), builder(subscriber=subscriber))
    _, (worst, *_) = first_caught(scenario, range(60))
    assert worst.checker in checkers, worst.explanation


class TakesOverAtOnce(CopyPublisher):
    """It does not wait until the subscribers of the owner before it have surely stopped."""

    def acquired(self, part: Part, kept: Kept, *, clean: bool, outlasts_us: int) -> None:
        super().acquired(part, kept, clean=True, outlasts_us=outlasts_us)


class WaitsForItsOwnLeases(CopyPublisher):
    """It takes the leases of the owner before for as long as its own."""

    def acquired(self, part: Part, kept: Kept, *, clean: bool, outlasts_us: int) -> None:
        super().acquired(part, kept, clean=clean, outlasts_us=self.config.outlasts_us)


class ServesWithoutALease(CopyPublisher):
    """A copy that cannot reach the coordinator goes on."""

    def _may_serve(self, now_us: int) -> bool:
        return True


class SkipsOnTakeover(CopyPublisher):
    """It goes on where its own log ends, not at the datamarkers."""

    def _take_up(self, part: Part, kept: Kept) -> None:
        newest = self.owners.copies.log[1] if self.owners.copies.log is not None else Position(0, 0)
        flows = {
            shard: KeptFlow(flow.part, max(flow.position, newest), None, flow.seen)
            for shard, flow in kept.flows.items()
        }
        super()._take_up(part, Kept(kept.floors, kept.lost, flows, seen=kept.seen))


class TakesOverAnyHistory(CopyPublisher):
    """What the log of the copy before had at the datamarkers does not go with them."""

    def _take_up(self, part: Part, kept: Kept) -> None:
        flows = {shard: KeptFlow(flow.part, flow.position, flow.lost) for shard, flow in kept.flows.items()}
        super()._take_up(part, Kept(kept.floors, kept.lost, flows, kept.snapshots))


class HandsOverAtOnce(CopyPublisher):
    """A part goes back to the preferred copy while subscribers still work on it."""

    def released(self, part: Part) -> bool:
        return part not in self._wary

    def lost(self, part: Part) -> None:
        served = self.served.get(part[0])
        for flow in list(served.flows.values()) if served is not None else []:
            if flow.part == part[1] and flow.link is not None:
                if flow.caravan is not None:
                    flow.caravan.leave(flow)
                flow.leaving = False
                flow.link.remove(flow)
        super().lost(part)


@pytest.mark.paper("W10")
@pytest.mark.parametrize(
    ("publisher", "checkers"),
    [
        (TakesOverAtOnce, {"order"}),
        (WaitsForItsOwnLeases, {"order"}),
        (ServesWithoutALease, {"order"}),
        (SkipsOnTakeover, {"order", "marked"}),
        (HandsOverAtOnce, {"order", "one-owner"}),
        (TakesOverAnyHistory, {"history"}),
    ],
)
def test_a_bug_planted_into_copies_is_caught(publisher: type[CopyPublisher], checkers: set[str]) -> None:
    first = {TakesOverAtOnce: 12, WaitsForItsOwnLeases: 270}.get(publisher, 0)
    seeds = range(first, first + 78)
    _, (worst, *_) = first_caught(planted(load_scenario(COPIES), builder(publisher)), seeds)
    assert worst.checker in checkers, worst.explanation

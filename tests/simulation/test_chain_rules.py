"""Rules of the chain that chance seldom needs, told as stories; and what goes wrong without each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.chain_story import COORDINATOR, ONE, STREAM, THREE, TWO, BrokenPromise, Story

from qanat.checks.chain_hosts import chain_of, history_of
from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.chain import Chain, Leave, Publish, Stable, Wanted
from qanat.protocols.chain.downstream import Downstream
from qanat.protocols.chain.messages import Ack, ChainMessage, Hello, Knock, Lacks

SCENARIO = Path(__file__).parents[2] / "scenarios/chain_collect.toml"


# Messages of another epoch are refused


class TakesEveryEpoch(Chain):
    def on_message(self, now_us: int, sender: Address, message: ChainMessage) -> None:
        match message:
            case Hello():
                self._on_hello(now_us, sender, message)
            case Ack():
                self._on_ack(now_us, sender, message)
            case Knock() | Lacks():
                pass
            case _:
                if self._leader is not None and sender == self._leader.at() and message.round == self._round:
                    self._on_leader(now_us, message)


def the_head_has_not_heard_of_the_new_epoch(chain: type[Chain]) -> Story:
    """The tail is cut off and removed. The middle knows, the head does not yet; and something is
    published."""
    story = Story(SCENARIO, chain, replicas=3)
    story.run_until(lambda: story.serves(3))
    head, middle, tail = story.chain
    assert story.publish(head, 1, "a", 1) is not None
    story.cut(tail, "*")
    epoch = chain_of(story.node(head)).epoch
    story.run(0.55)
    story.cut(head, COORDINATOR)
    story.run_until(lambda: chain_of(story.node(middle)).epoch > epoch)
    assert chain_of(story.node(head)).epoch == epoch
    story.publish(head, 2, "a", 2, wait_s=0.3)
    return story


@pytest.mark.paper("S9")
def test_a_head_takes_no_acknowledgement_of_an_epoch_that_it_does_not_know() -> None:
    story = the_head_has_not_heard_of_the_new_epoch(Chain)
    assert story.answer(2) is None


def test_a_head_that_took_one_would_answer_for_a_replica_that_has_nothing() -> None:
    with pytest.raises(BrokenPromise, match="answered"):
        the_head_has_not_heard_of_the_new_epoch(TakesEveryEpoch)


# What is answered is on every disk


@pytest.mark.paper("S9")
@pytest.mark.parametrize("place", [0, 1])
def test_nothing_is_answered_or_shown_while_the_disk_of_one_replica_is_stuck(place: int) -> None:
    story = Story(SCENARIO)
    story.run_until(lambda: story.serves(2))
    head, stuck = story.chain[0], story.node(story.chain[place])
    stuck.stick_disk(True)
    assert story.publish(head, 1, "a", 1) is None
    assert history_of(stuck).counter(STREAM) == 1
    assert not [item for _, item in story.told if isinstance(item, Stable)]
    stuck.stick_disk(False)
    story.run_until(lambda: story.answer(1) is not None)
    story.run_until(lambda: any(isinstance(item, Stable) for _, item in story.told))


# The token


class GivesTheTokenTooEarly(Chain):
    """As soon as everything is sent."""

    def _hand_over(self, now_us: int) -> None:
        down = self.down
        if down is not None and down.joining and down.welcomed:
            down.acked = dict(down.sent)
        super()._hand_over(now_us)


def the_tail_dies_while_another_joins(chain: type[Chain]) -> Story:
    """One replica has everything; the other is joining when what it was sent is lost on the way."""
    story = Story(SCENARIO, chain)
    story.begin_alone(ONE)
    assert story.publish(ONE, 1, "a", 1) is not None
    story.node(TWO).restart()

    def is_being_sent() -> bool:
        down = chain_of(story.node(ONE)).down
        return down is not None and bool(down.sent.get(STREAM))

    story.run_until(is_being_sent)
    story.cut(ONE, TWO)
    story.run(0.3)
    story.crash(ONE)
    story.run(4)
    return story


@pytest.mark.paper("S9")
def test_nobody_takes_the_token_who_has_not_everything_on_disk() -> None:
    story = the_tail_dies_while_another_joins(Chain)
    assert story.publish(TWO, 2, "b", 1) is None
    story.node(ONE).restart()
    story.run(2)
    assert story.publish(ONE, 3, "b", 1) is not None
    assert story.rows(ONE) == [b"a:1", b"b:1"]


def test_the_token_too_early_would_lose_what_was_answered() -> None:
    story = the_tail_dies_while_another_joins(GivesTheTokenTooEarly)
    with pytest.raises(BrokenPromise, match="stable"):
        story.publish(TWO, 2, "b", 1)


# Collection


class CollectsForWhatMayBeLost(Chain):
    """Collection runs ahead of the chain: for the sake of events that only this replica has."""

    def settled(self, stream: int) -> int:
        return self.history.counter(stream)


def the_head_collects_and_dies(chain: type[Chain]) -> Story:
    """The tail lags behind. The head numbers an event and a later one of its key, and collects; then it sends
    the first part of that, is acknowledged, answers for it, and dies."""

    class OneBatchAtATime(chain):  # type: ignore[misc, valid-type]
        held = False

        def _has_room(self, down: Downstream) -> bool:
            return not self.held and super()._has_room(down)

    story = Story(SCENARIO, OneBatchAtATime, window_bytes=1, frame_bytes=1, failure_ms=5000.0)
    story.run_until(lambda: story.serves(2))
    head, tail = story.chain
    sender, log = chain_of(story.node(head)), history_of(story.node(head)).logs
    assert story.publish(head, 1, "first", 1) is not None
    OneBatchAtATime.held = True
    story.publish(head, 2, "a", 1)
    later = Batch.build(
        STREAM, [b"z:1"], keys=[b"k"]
    )  # without a source, so the two are never joined to one batch
    story.node(head).request(Publish(3, later))
    story.run(0.1)
    for _ in range(2):
        log[STREAM].collect(everything=True, settled=sender.settled(STREAM))
    OneBatchAtATime.held = False
    story.node(head).request(Publish(4, Batch.build(STREAM, [b"y:1"], keys=[b"other"])))
    story.run_until(lambda: history_of(story.node(tail)).counter(STREAM) == 2)
    OneBatchAtATime.held = True
    story.run(0.1)
    assert story.answer(2) is not None
    assert history_of(story.node(tail)).counter(STREAM) == 2
    story.crash(head)
    story.run(3)
    assert chain_of(story.node(tail)).is_head
    return story


@pytest.mark.paper("S9", "S10")
def test_what_was_answered_is_not_collected_for_an_event_that_the_chain_may_lose() -> None:
    story = the_head_collects_and_dies(Chain)
    assert story.rows(story.chain[0])[1] == b"a:1"


def test_collection_ahead_of_the_chain_would_lose_the_last_event_of_a_key() -> None:
    story = the_head_collects_and_dies(CollectsForWhatMayBeLost)
    assert story.rows(story.chain[0])[1] is None


# The wanted length, and leaving


@pytest.mark.paper("S9")
def test_a_chain_is_shortened_and_lengthened_while_it_works() -> None:
    story = Story(SCENARIO, replicas=3)
    story.run_until(lambda: story.chain == [ONE, TWO, THREE])
    for position, chain in enumerate(([ONE, TWO], [ONE], [ONE, TWO, THREE]), 1):
        for address in (THREE, TWO, ONE):
            story.node(address).request(Wanted(len(chain)))
        story.run_until(lambda chain=chain: story.chain == chain)  # type: ignore[misc]
        story.run(3)
        assert story.chain == chain
        assert story.publish(ONE, position, "a", position) is not None
    assert story.rows(THREE) == [b"a:1", b"a:2", b"a:3"]


def test_replicas_that_differ_about_the_length_do_not_quarrel() -> None:
    story = Story(SCENARIO, replicas=3)
    story.run_until(lambda: story.chain == [ONE, TWO, THREE])
    story.node(THREE).request(Wanted(1))
    story.run(2)
    assert story.chain == [ONE, TWO, THREE]


@pytest.mark.paper("S9")
@pytest.mark.parametrize("place", [0, 1])
def test_who_leaves_is_out_at_once(place: int) -> None:
    story = Story(SCENARIO, replicas=2)
    story.run_until(lambda: story.serves(2))
    story.crash(*({ONE, TWO, THREE} - set(story.chain)))
    leaves, stays = story.chain[place], story.chain[1 - place]
    story.node(leaves).request(Leave())
    assert not story.is_serving(leaves)
    story.run(0.2)  # the session's timeout is 0.8 s
    assert story.chain == [stays]
    assert story.publish(stays, 1, "a", 1, wait_s=0.2) is not None
    assert [address for address, item in story.told if isinstance(item, Stable)][-1] == stays
    story.run(2)
    assert story.chain == [stays]


# Publishers of a stream that holds nothing


class LooksOnlyAtWhatItHolds(Chain):
    def _advance_all(self, now_us: int) -> None:
        self._advance(now_us, self.history.streams())


def the_lease_lapses_while_a_stream_is_opened(chain: type[Chain]) -> Story:
    """A client asks how far a stream is that nobody published to, which is an empty publish; and the head has
    no lease then."""
    story = Story(SCENARIO, chain)
    story.run_until(lambda: story.serves(2))
    head = story.chain[0]
    heal = story.cut(head, COORDINATOR)
    node = story.node(head)
    story.run_until(lambda: not chain_of(node)._leased(node.now_us))
    node.request(Publish(1, Batch.build(STREAM, [])))
    story.run(0.01)
    assert story.answer(1) is None
    heal()
    story.run(3)
    return story


@pytest.mark.paper("S9")
def test_a_publisher_of_an_empty_stream_is_answered_when_the_lease_is_back() -> None:
    assert the_lease_lapses_while_a_stream_is_opened(Chain).answer(1) is not None


def test_a_head_that_looked_only_at_what_it_holds_would_never_answer() -> None:
    assert the_lease_lapses_while_a_stream_is_opened(LooksOnlyAtWhatItHolds).answer(1) is None

"""A replica that comes empty: tombstones, positions of sources, the token; and what goes wrong without
each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.chain_story import ONE, STREAM, THREE, TWO, BrokenPromise, Story

from qanat.checks.chain_hosts import chain_of, history_of
from qanat.events.batch import Batch
from qanat.protocols.chain import Chain, Placed, Stable
from qanat.protocols.chain.downstream import Downstream
from qanat.protocols.chain.flow import has_tombstone
from qanat.protocols.chain.messages import Positions

SCENARIO = Path(__file__).parents[2] / "scenarios/chain_collect.toml"


def alone_then_joined(chain: type[Chain] = Chain) -> Story:
    """One replica has collected all events of a source; an empty one joins it."""
    story = Story(SCENARIO, chain)
    story.begin_alone(ONE)
    assert story.publish(ONE, 1, "a", 1, 4) is not None
    assert story.publish(ONE, 2, "b", 1) is not None
    history_of(story.node(ONE)).logs[STREAM].collect(everything=True)
    story.node(TWO).restart()
    story.run(3)
    return story


@pytest.mark.paper("S9")
def test_an_empty_replica_catches_up_takes_the_tail_and_then_knows_retries() -> None:
    story = alone_then_joined()
    tails = [address for address, item in story.told if isinstance(item, Placed) and item.is_tail]
    assert tails[-1] == TWO
    assert has_tombstone(history_of(story.node(TWO)).read(STREAM, 1, 1 << 20)[0])
    assert history_of(story.node(TWO)).counter(STREAM) == 5
    story.crash(ONE)
    story.run(3)
    answer = story.publish(TWO, 3, "a", 4)
    assert answer is not None
    assert (answer.dropped, answer.upto) == (1, 5)
    assert story.publish(TWO, 4, "a", 5) is not None
    assert history_of(story.node(TWO)).counter(STREAM) == 6


@pytest.mark.paper("S9")
def test_positions_that_were_told_survive_a_crash_of_who_learned_them() -> None:
    story = alone_then_joined()
    story.crash(ONE, TWO)
    story.run(0.1)
    story.node(TWO).restart()
    story.run(3)
    answer = story.publish(TWO, 3, "a", 4)
    assert answer is not None
    assert answer.dropped == 1


class DoesNotAdoptPositions(Chain):
    def _on_positions(self, message: Positions) -> None:
        pass


def test_without_the_positions_a_retry_would_be_a_duplicate() -> None:
    story = alone_then_joined(DoesNotAdoptPositions)
    story.crash(ONE)
    story.run(3)
    with pytest.raises(BrokenPromise, match="stable"):
        story.publish(TWO, 3, "a", 4)


class LosesTombstones(Chain):
    def _send(self, down: Downstream, batches: tuple[Batch, ...], stream: int, safe: int) -> None:
        super()._send(down, tuple(batch for batch in batches if not has_tombstone(batch)), stream, safe)


def test_without_its_tombstones_a_replica_never_becomes_the_tail() -> None:
    story = alone_then_joined(LosesTombstones)
    assert chain_of(story.node(ONE)).is_tail
    assert not [address for address, item in story.told if isinstance(item, Stable) and address == TWO]


@pytest.mark.paper("S9")
def test_events_that_the_chain_never_had_are_discarded_with_their_history() -> None:
    """The head numbers events that nobody gets, is cut off and removed, and comes back."""
    story = Story(SCENARIO)
    story.run(3)
    head = next(address for address in (ONE, TWO, THREE) if chain_of(story.node(address)).is_head)
    tail = next(address for address in (ONE, TWO, THREE) if chain_of(story.node(address)).is_tail)
    assert story.publish(head, 1, "a", 1) is not None
    head_chain = chain_of(story.node(head))
    head_chain.down = None  # its forwards are lost
    head_chain._leased = lambda now_us: False
    assert story.publish(head, 2, "b", 1, 3) is None
    assert history_of(story.node(head)).counter(STREAM) == 4
    story.crash(head)
    story.run(2)
    assert story.publish(tail, 3, "c", 1) is not None
    story.node(head).restart()
    story.run(1)
    others = [address for address in (ONE, TWO, THREE) if address not in (head, tail)]
    story.crash(*others)
    story.run(4)
    rows = [
        batch.payload(row)
        for batch in history_of(story.node(head)).read(STREAM, 1, 1 << 20)
        for row in range(batch.count)
    ]
    assert rows == [b"a:1", b"c:1"]


def test_what_retention_dropped_is_a_tombstone_for_who_joins() -> None:
    story = Story(SCENARIO)
    story.begin_alone(ONE)
    assert story.publish(ONE, 1, "a", 1, 2) is not None
    store = history_of(story.node(ONE)).logs[STREAM]._store
    store.roll()
    assert story.publish(ONE, 2, "a", 3) is not None
    store.drop(1)
    story.node(TWO).restart()
    story.run_until(lambda: story.serves(2))
    assert story.rows(TWO) == [None, None, b"a:3"]
    story.crash(ONE)
    story.run(2)
    answer = story.publish(TWO, 9, "a", 3)
    assert answer is not None
    assert answer.dropped == 1

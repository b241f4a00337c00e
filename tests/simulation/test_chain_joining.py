"""A replica that comes empty: tombstones, positions of sources, the token; and what goes wrong without each."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.chain import Answered, Chain, Placed, Publish, Stable
from qanat.protocols.chain.downstream import Downstream
from qanat.protocols.chain.flow import has_tombstone
from qanat.protocols.chain.messages import Positions
from qanat.sim import SimNode, World
from qanat.sim.run import build
from qanat.studies.chain_hosts import OWNED, SimReplica, builder, chain_of, history_of
from qanat.studies.scenarios import load_scenario

ROOT = Path(__file__).parents[2]
S = 1_000_000
ONE, TWO, THREE = (Address(f"eu/proxy-{number}") for number in (1, 2, 3))
STREAM = OWNED[0]


class Story:
    """A world without faults but those that the test makes."""

    def __init__(self, chain: type[Chain] = Chain) -> None:
        scenario = load_scenario(ROOT / "scenarios/chain_collect.toml")
        replica = type("Told", (SimReplica,), {"chain_type": chain})
        kit = dataclasses.replace(scenario.kit, build=builder(replica))
        self.world: World = build(
            dataclasses.replace(scenario, kit=kit, swarm=None, workload=None, faults=()), 1
        )
        self.told: list[tuple[Address, Any]] = []
        self.world.deliver_hooks.append(self._note)
        self.world.start()
        self.world.run(1)

    def _note(self, world: World, node: SimNode, item: Any) -> None:
        self.told.append((node.address, item))

    def node(self, address: Address) -> SimNode:
        return self.world.nodes[address]

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + round(seconds * S))
        assert self.world.violations == []

    def crash(self, *addresses: Address) -> None:
        for address in addresses:
            self.world.crash(self.node(address))

    def publish(
        self, to: Address, ticket: int, source: str, position: int, count: int = 1
    ) -> Answered | None:
        payloads = [f"{source}:{position + at}".encode() for at in range(count)]
        batch = Batch.build(STREAM, payloads, keys=[b"k"] * count, source=source, position=position)
        self.node(to).request(Publish(ticket, batch))
        self.run(0.5)
        answers = [item for _, item in self.told if isinstance(item, Answered) and item.ticket == ticket]
        return answers[0] if answers else None

    def alone_then_joined(self) -> None:
        """One replica has collected all events of a source; an empty one joins it."""
        self.crash(TWO, THREE)
        self.run(2)
        assert self.publish(ONE, 1, "a", 1, 4) is not None
        assert self.publish(ONE, 2, "b", 1) is not None
        history_of(self.node(ONE)).logs[STREAM].collect(everything=True)
        self.node(TWO).restart()
        self.run(3)


@pytest.mark.paper("S9")
def test_an_empty_replica_catches_up_takes_the_tail_and_then_knows_retries() -> None:
    story = Story()
    story.alone_then_joined()
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
    story = Story()
    story.alone_then_joined()
    story.crash(ONE, TWO)
    story.run(0.1)
    story.node(TWO).restart()
    story.run(3)
    answer = story.publish(TWO, 3, "a", 4)
    assert answer is not None
    assert answer.dropped == 1


class DoesNotAdoptPositions(Chain):
    def _on_positions(self, now_us: int, message: Positions) -> None:
        pass


def test_without_the_positions_a_retry_would_be_a_duplicate() -> None:
    story = Story(DoesNotAdoptPositions)
    story.alone_then_joined()
    story.crash(ONE)
    story.run(3)
    with pytest.raises(AssertionError):
        story.publish(TWO, 3, "a", 4)
    assert story.world.violations[0].checker == "stable"


class LosesTombstones(Chain):
    def _send(self, down: Downstream, batches: tuple[Batch, ...], stream: int, safe: int) -> None:
        super()._send(down, tuple(batch for batch in batches if not has_tombstone(batch)), stream, safe)


def test_without_its_tombstones_a_replica_never_becomes_the_tail() -> None:
    story = Story(LosesTombstones)
    story.alone_then_joined()
    assert chain_of(story.node(ONE)).is_tail
    assert not [address for address, item in story.told if isinstance(item, Stable) and address == TWO]


@pytest.mark.paper("S9")
def test_events_that_the_chain_never_had_are_discarded_with_their_history() -> None:
    """The head numbers events that nobody gets, is cut off and removed, and comes back."""
    story = Story()
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

"""Regions told step by step: failover between regions, streams and peers that change, a region that was
away."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.checks.chain_hosts import chain_of, history_of
from qanat.checks.region_checkers import rows
from qanat.checks.region_hosts import (
    RegionStudy,
    builder,
    region_of,
    replicas_in,
    stream_of,
)
from qanat.checks.scenarios import load_scenario
from qanat.events.batch import Batch, stream_id
from qanat.events.tombstones import gc_event
from qanat.kernel import Address
from qanat.log.checker import Event, Grave
from qanat.log.config import Policy
from qanat.protocols.chain import Answered, Publish
from qanat.protocols.proxy_level.sending import Sending
from qanat.protocols.region import Peers, RegionReplica, StreamsChanged
from qanat.sim import SimNode, World
from qanat.sim.faults import Undo
from qanat.sim.paths import Condition
from qanat.sim.run import build
from qanat.sim.units import S

SCENARIO = Path(__file__).parents[2] / "scenarios/region_swarm.toml"
EU, US, AP = "eu", "us", "ap"


class Story:
    """Three regions without faults but those that the test makes."""

    def __init__(self, sending: type[Sending] = Sending, **settings: Any) -> None:
        scenario = load_scenario(SCENARIO)
        replica = type("Told", (RegionReplica,), {"sending_type": sending})
        study = msgspec.structs.replace(scenario.config, **settings)
        assert isinstance(study, RegionStudy)
        kit = dataclasses.replace(scenario.kit, build=builder(replica))
        quiet = dataclasses.replace(scenario, config=study, kit=kit, swarm=None, workload=None, faults=())
        self.world: World = build(quiet, 1)
        self.answered: dict[int, Answered] = {}
        self._tickets = 0
        self.world.deliver_hooks.append(self._note)
        self.world.start()
        self.until(lambda: all(map(self.tail, (EU, US, AP))))

    def _note(self, world: World, node: SimNode, item: Any) -> None:
        if isinstance(item, Answered):
            self.answered[item.ticket] = item

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + round(seconds * S))
        assert self.world.violations == []

    def until(self, condition: Callable[[], Any], within_s: float = 10.0) -> float:
        """How long it took, in seconds."""
        began, deadline = self.world.now, self.world.now + round(within_s * S)
        while not condition():
            assert self.world.now < deadline, f"it did not happen within {within_s} s"
            self.run(0.005)
        return (self.world.now - began) / S

    def heads(self, region: str) -> list[SimNode]:
        return [node for node in replicas_in(self.world, region) if node.up and chain_of(node).is_head]

    def head(self, region: str) -> SimNode:
        return self.heads(region)[0]

    def tail(self, region: str) -> SimNode | None:
        """Whoever shows events there now, in a chain of two."""
        for node in replicas_in(self.world, region):
            if node.up and chain_of(node).serves(node.now_us) and not chain_of(node).is_head:
                return node
        return None

    def publish(self, region: str, batch: Batch) -> None:
        self._tickets += 1
        self.head(region).request(Publish(self._tickets, batch))
        self.until(lambda: self._tickets in self.answered)

    def events(self, region: str, first: int, last: int, key: bytes = b"k") -> None:
        for number in range(first, last + 1):
            batch = Batch.build(
                stream_of(region), [f"{region}:{number}".encode()], keys=[key], source=region, position=number
            )
            self.publish(region, batch)

    def shows(self, region: str, stream: int) -> int:
        tail = self.tail(region)
        return 0 if tail is None else chain_of(tail).shown(stream)

    def cut(self, one: str, other: str) -> Undo:
        sides = (
            frozenset(node.index for node in self.world.node_list if node.region == region)
            for region in (one, other)
        )
        condition = Condition(*sides, both_ways=True, cut=True)
        self.world.network.worsen(condition)
        return lambda: self.world.network.better(condition)


@pytest.mark.paper("S4", "S9")
def test_an_event_reaches_every_tail_of_every_region() -> None:
    story = Story()
    for region in (EU, US, AP):
        story.events(region, 1, 3)
    story.until(
        lambda: all(story.shows(at, stream_of(of)) == 3 for at in (EU, US, AP) for of in (EU, US, AP))
    )
    for region in (EU, US, AP):
        heads = [node for node in replicas_in(story.world, region) if region_of(node).receiving.active]
        tails = [node for node in replicas_in(story.world, region) if region_of(node).sending.active]
        assert (heads, tails) == ([story.head(region)], [story.tail(region)])


class SaysNothing(Sending):
    """Those who had subscribed are not told that this replica serves nobody any more."""

    def stop(self) -> None:
        self.active = False
        self.cursors = {stream: {} for stream in self.cursors}
        self.flows = {}


@pytest.mark.parametrize(("sending", "soon"), [(Sending, True), (SaysNothing, False)])
def test_subscribers_of_a_former_tail_find_the_new_one(sending: type[Sending], soon: bool) -> None:
    """eu's third replica takes the tail when the second was lost, and the second when it is back is head for
    nobody."""
    story = Story(sending)
    story.events(EU, 1, 1)
    story.until(lambda: story.shows(US, stream_of(EU)) == 1)
    old = story.tail(EU)
    assert old is not None
    other = next(node for node in replicas_in(story.world, EU) if not chain_of(node).is_member)
    story.world.crash(story.head(EU))  # the old tail is alone, then its successor takes its place
    story.until(lambda: story.tail(EU) is other)
    assert chain_of(old).is_head
    story.run(0.15)  # more than the news takes
    source = region_of(story.head(US)).receiving.expects[stream_of(EU)]
    assert (source.source != old.address) is soon
    story.events(EU, 2, 2)
    took_s = story.until(lambda: story.shows(US, stream_of(EU)) == 2)
    assert source.source == other.address
    assert took_s < 0.6 or not soon


@pytest.mark.paper("S4")
def test_a_new_head_goes_on_from_what_the_chain_has() -> None:
    story = Story()
    story.events(US, 1, 5)
    story.until(lambda: story.shows(AP, stream_of(US)) == 5)
    story.world.crash(story.head(AP))
    story.events(US, 6, 8)
    story.until(lambda: story.heads(AP))
    story.until(lambda: chain_of(story.head(AP)).shown(stream_of(US)) == 8)
    seen = rows(history_of(story.head(AP)), stream_of(US), 1, 8)
    assert [row.payload for row in seen if isinstance(row, Event)] == [b"us:%d" % n for n in range(1, 9)]


def change_streams(story: Story, owners: dict[int, str]) -> None:
    for node in everyone(story):  # not as a request of the simulator, which could not write down such a table
        node.machine.on_request(node.now_us, StreamsChanged(owners))


def everyone(story: Story) -> list[SimNode]:
    return [node for region in (EU, US, AP) for node in replicas_in(story.world, region)]


def test_streams_come_and_go_while_regions_run() -> None:
    story = Story()
    extra = stream_id("extra")
    owners = {stream_of(region): region for region in (EU, US, AP)}
    change_streams(story, {**owners, extra: AP})
    story.publish(AP, Batch.build(extra, [b"new:1"]))
    story.until(lambda: all(story.shows(region, extra) == 1 for region in (EU, US, AP)))
    change_streams(story, {**owners, stream_of(EU): US})  # an owner is for ever
    for node in everyone(story):
        assert region_of(node).owners == owners
        assert extra not in region_of(node).sending.cursors
        assert extra not in region_of(node).receiving.expects
    story.events(EU, 1, 1)
    story.until(lambda: story.shows(US, stream_of(EU)) == 1)


def test_a_region_comes_and_goes_while_the_others_run() -> None:
    story = Story()
    addresses = {
        region: tuple(node.address for node in replicas_in(story.world, region)) for region in (EU, US, AP)
    }

    def tell(without: str) -> None:
        for node in everyone(story):
            known: tuple[Address, ...] = ()
            if node.region != without:
                known = sum((addresses[r] for r in (EU, US, AP) if r not in (without, node.region)), ())
            node.request(Peers(known))

    story.events(EU, 1, 2)
    story.until(lambda: story.shows(AP, stream_of(EU)) == 2)
    tell(without=AP)
    story.events(EU, 3, 4)
    story.until(lambda: story.shows(US, stream_of(EU)) == 4)
    story.run(1)
    assert story.shows(AP, stream_of(EU)) == 2
    tell(without="")
    story.until(lambda: story.shows(AP, stream_of(EU)) == 4)


@pytest.mark.paper("S2", "S3")
@pytest.mark.paper("S10")
def test_a_region_that_was_away_gets_what_is_left_and_its_owner_remembers_nothing_of_it() -> None:
    story = Story(policy=Policy(by_key=True))
    story.events(EU, 1, 3)
    story.until(lambda: story.shows(AP, stream_of(EU)) == 3)
    heal = [story.cut(AP, EU), story.cut(AP, US)]
    story.events(EU, 4, 60)
    story.publish(EU, gc_event(stream_of(EU), "upto 59", payload=b"eu:61", source=EU, position=61))
    story.run(20)
    tail = story.tail(EU)
    assert tail is not None
    assert not [peer for peer in region_of(tail).sending.flows if peer.startswith(AP)]
    for node in filter(lambda node: chain_of(node).is_member, replicas_in(story.world, EU)):
        for _ in range(2):
            log = history_of(node).logs[stream_of(EU)]
            log.collect(everything=True, settled=chain_of(node).settled(stream_of(EU)))
    received = sum(path.sent_bytes for path in tail.paths.values() if path.target.region == AP)
    for mend in heal:
        mend()
    story.until(lambda: story.shows(AP, stream_of(EU)) == 61, within_s=20)
    away = story.tail(AP)
    assert away is not None
    left = rows(history_of(away), stream_of(EU), 1, 61)
    assert left[-3] == Grave(left[-3].first, 59) if isinstance(left[-3], Grave) else False
    assert [row.payload for row in left[-2:] if isinstance(row, Event)] == [b"eu:60", b"eu:61"]
    sent = sum(path.sent_bytes for path in tail.paths.values() if path.target.region == AP) - received
    assert sent < 5_000


@pytest.mark.paper("S11")
def test_a_stream_in_memory_that_its_region_lost_goes_on_above_what_others_have() -> None:
    story = Story(mode="memory")
    story.events(EU, 1, 5)
    story.until(lambda: story.shows(US, stream_of(EU)) == story.shows(AP, stream_of(EU)) == 5)
    for node in replicas_in(story.world, EU):
        story.world.crash(node)
    story.run(0.5)
    for node in replicas_in(story.world, EU):
        node.restart()
    story.until(lambda: story.tail(EU))
    assert history_of(story.head(EU)).counter(stream_of(EU)) in (0, 5)
    story.until(lambda: history_of(story.head(EU)).counter(stream_of(EU)) == 5, within_s=2)
    story.events(EU, 6, 7)
    story.until(lambda: story.shows(US, stream_of(EU)) == story.shows(AP, stream_of(EU)) == 7)
    tail = story.tail(US)
    assert tail is not None
    seen = rows(history_of(tail), stream_of(EU), 1, 7)
    assert [row.payload for row in seen if isinstance(row, Event)] == [b"eu:%d" % n for n in range(1, 8)]

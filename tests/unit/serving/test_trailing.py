"""Subscribers of a stream who have fallen behind share readers of its log; what each gets is what it would
have got alone."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.serving.laggards import PLENTY, Peer, Stream, numbers
from tests.waiting import run, until

from qanat.serving import subscriber, trailing
from qanat.serving.subscriber import Subscriber, passing
from qanat.wire.streams import Refused


def caught_up(stream: Stream, *subscribers: Subscriber) -> bool:
    return not stream.trailing.laggards and all(one.at == stream.log.next for one in subscribers)


@pytest.mark.paper("W7")
def test_twenty_who_begin_together_far_behind_are_read_for_once() -> None:
    async def scenario() -> None:
        stream = Stream()
        joined = [stream.join(f"c{number}") for number in range(20)]
        await until(lambda: caught_up(stream, *(subscriber for _, subscriber in joined)))
        for peer, _ in joined:
            assert peer.numbers == list(range(1, 2_001)), "each event once, in order"
        size = stream.log.stats().bytes
        assert stream.trailing.read_bytes + stream.alone_bytes <= 1.1 * size
        assert stream.trailing.sent_bytes > 15 * size
        assert len(stream.reads_seen) == len(set(stream.reads_seen)), "no piece was read twice"
        assert stream.live == 20
        stream.grow(10)
        assert all(peer.numbers[-1] == 2_010 for peer, _ in joined), "and they are live"
        assert list(stream.trailing.caravans.all) == [0], "the edge alone is left"

    run(scenario())


@pytest.mark.paper("W7")
def test_a_slow_one_gets_off_and_nobody_waits_for_it() -> None:
    async def scenario() -> None:
        stream = Stream()
        slow_peer, slow = stream.join("slow", credit=6_000)
        fast = [stream.join(f"c{number}") for number in range(5)]
        await until(lambda: all(one.at == stream.log.next for _, one in fast))
        assert len(slow_peer.numbers) < 200, "its window is what bounds it"
        assert stream.trailing.fallen == 1
        said = [one for one in stream.trailing.caravans.decisions if one.what == "leave"]
        assert "slow/1" in said[0].why
        stream.give(slow, PLENTY)
        await until(lambda: caught_up(stream, slow))
        for peer in (slow_peer, *(peer for peer, _ in fast)):
            assert numbers(peer) == list(range(1, 2_001))

    run(scenario())


def test_a_little_slower_one_is_served_from_the_wake_without_another_read() -> None:
    async def scenario() -> None:
        stream = Stream(1_000, wake_bytes=1 << 20)
        fast_peer, fast = stream.join("fast")
        slow_peer, slow = stream.join("slow", credit=1)
        await until(lambda: fast.at == stream.log.next)
        reads = len(stream.reads_seen)
        assert slow_peer.numbers, "one piece"
        stream.give(slow, PLENTY)
        await until(lambda: caught_up(stream, slow))
        assert len(stream.reads_seen) == reads
        assert slow_peer.numbers == fast_peer.numbers

    run(scenario())


def test_a_caravan_of_which_nobody_takes_anything_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trailing, "_IDLE_US", 20_000)

    async def scenario() -> None:
        stream = Stream()
        peer, subscriber = stream.join("stalled", credit=6_000)
        await until(lambda: bool(peer.numbers) and list(stream.trailing.caravans.all) == [0])
        assert [one.what for one in stream.trailing.caravans.decisions] == ["split", "disband"]
        stream.give(subscriber, PLENTY)
        await until(lambda: caught_up(stream, subscriber))
        assert numbers(peer) == list(range(1, 2_001))

    run(scenario())


def test_a_filter_is_asked_once_for_all_who_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counting(batch: Any, where: Any) -> Any:
        asked.append(batch.first)
        return passing(batch, where)

    monkeypatch.setattr(subscriber, "passing", counting)

    async def scenario() -> None:
        stream = Stream()
        joined = [stream.join(f"c{number}", where="parity = 1") for number in range(10)]
        await until(lambda: caught_up(stream, *(subscriber for _, subscriber in joined)))
        for peer, _ in joined:
            assert peer.numbers == list(range(1, 2_001, 2))
            covered = [(batch.first, batch.last) for batch in peer.events]
            assert covered[0][0] == 1
            assert all(after[0] == before[1] + 1 for before, after in pairwise(covered))
        assert len(asked) == len(set(asked)), "each batch once"

    run(scenario())


def test_what_the_log_no_longer_has_is_told_to_each_from_where_it_is() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.cut = 501
        early, one = stream.join("early", at=1)
        later, two = stream.join("later", at=100)
        await until(lambda: caught_up(stream, one, two))
        assert (early.lost, later.lost) == ([(1, 500)], [(100, 500)])
        assert numbers(early) == numbers(later) == list(range(501, 2_001))

    run(scenario())


def test_damage_ends_those_who_need_what_is_damaged_and_no_others() -> None:
    async def scenario() -> None:
        stream = Stream(near_bytes=1 << 20)
        stream.damage = 60
        early, one = stream.join("early", at=1)
        later, two = stream.join("later", at=100)
        await until(lambda: caught_up(stream, two))
        assert any(isinstance(word, Refused) for word in early.said)
        assert one not in stream.subscribers
        assert numbers(later, 100) == list(range(100, 2_001))
        assert not any(isinstance(word, Refused) for word in later.said)

    run(scenario())


@pytest.mark.paper("W7")
def test_there_are_never_more_readers_than_allowed() -> None:
    async def scenario() -> None:
        stream = Stream(caravans_max=3, near_bytes=1)
        most = 0
        joined = [(at, *stream.join(f"c{at}", at=at)) for at in range(1, 1_800, 100)]

        def done() -> bool:
            nonlocal most
            most = max(most, len(stream.trailing.caravans.all))
            return caught_up(stream, *(subscriber for _, _, subscriber in joined))

        await until(done, every_s=0)
        assert most == 3, "the edge and two more"
        for at, peer, _ in joined:
            assert numbers(peer, at) == list(range(at, 2_001))

    run(scenario())


@pytest.mark.paper("W7")
def test_caravans_read_no_faster_than_they_may() -> None:
    async def scenario() -> None:
        stream = Stream(total_bytes_s=20_000.0)
        joined = [stream.join(f"c{number}") for number in range(3)]
        await until(lambda: stream.trailing.read_bytes > 0)
        await until(lambda: any(name.startswith("read/") for name in stream.trailing._timers))
        assert stream.trailing.read_bytes < stream.log.stats().bytes / 2, "it waits for its turn"
        stream.trailing.control.change({"total_bytes_s": 0.0})
        await until(lambda: caught_up(stream, *(subscriber for _, subscriber in joined)))
        assert all(numbers(peer) == list(range(1, 2_001)) for peer, _ in joined)

    run(scenario())


@pytest.mark.paper("W7")
def test_an_operator_keeps_some_together_against_the_policy() -> None:
    async def scenario() -> None:
        stream = Stream(total_bytes_s=50_000.0)
        control, all_ = stream.trailing.control, stream.trailing.caravans.all
        joined = [stream.join(name) for name in ("a", "b", "c")]
        await until(lambda: len(all_) == 2)
        control.keep_together({"night": ("b", "c/1")})
        stream.trailing.plan()
        companies = {one.company: sorted(each.client for each in one.travellers) for one in all_.values()}
        assert companies == {"": ["a"], "night": ["b", "c"]} or companies == {"": [], "night": ["b", "c"]}
        control.keep_together({})
        control.change({"total_bytes_s": 0.0})
        await until(lambda: caught_up(stream, *(subscriber for _, subscriber in joined)))
        assert all(numbers(peer) == list(range(1, 2_001)) for peer, _ in joined)

    run(scenario())


def test_ranges_are_read_alone() -> None:
    async def scenario() -> None:
        stream = Stream()
        joined = [stream.join(f"c{at}", at=at, upto=at + 99) for at in (1, 501, 1_001)]
        await until(lambda: all(one.at > one.upto for _, one in joined))
        assert stream.trailing.reads == 0
        assert stream.alone_reads > 0

    run(scenario())


class Reader:
    """Takes at a speed of its own, leaves, comes again."""

    def __init__(self, stream: Stream, number: int, rng: random.Random) -> None:
        self.start = rng.randrange(1, stream.log.next)
        self.odd = rng.random() < 0.3
        self.credit = rng.choice([PLENTY, 20_000, 3_000])
        where = "parity = 1" if self.odd else ""
        self.peer: Peer
        self.peer, self.subscriber = stream.join(f"c{number}", self.start, self.credit, where)

    def step(self, stream: Stream, rng: random.Random) -> None:
        chance = rng.random()
        if chance < 0.4:
            stream.give(self.subscriber, max(0, self.credit - self.subscriber.credit))
        elif chance < 0.5:
            self.peer.writable = not self.peer.writable
            if self.peer.writable:
                stream.pump_soon(self.subscriber)

    def expected(self, end: int) -> list[int]:
        return [number for number in range(self.start, end) if not self.odd or number % 2]


@pytest.mark.paper("W7")
@pytest.mark.parametrize("seed", range(6))
def test_whatever_speeds_filters_and_limits_each_gets_exactly_its_events(seed: int) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        policy = rng.choice(["threshold", "least-waiting"])
        near, wake = rng.choice([1, 16_000, 1 << 20]), rng.choice([4_000, 32_000])
        stream = Stream(
            600, caravans_max=rng.choice([2, 3, 8]), near_bytes=near, wake_bytes=wake, policy=policy
        )
        readers = [Reader(stream, number, rng) for number in range(10)]
        steps = 0

        def go_on() -> bool:
            nonlocal steps
            steps += 1
            for reader in readers:
                reader.step(stream, rng)
            if rng.random() < 0.2 and steps < 100:
                stream.grow(rng.randrange(1, 60))
            control = stream.trailing.control
            if steps in (20, 50, 80) and control.config.caravans_max > 2:
                control.keep_together({} if control.companies else {"night": ("c1", "c2")})
            assert len(stream.trailing.caravans.all) <= control.config.caravans_max
            return steps > 150 and all(reader.subscriber.at == stream.log.next for reader in readers)

        await until(go_on, every_s=0, say=lambda: [reader.subscriber.at for reader in readers])
        for reader in readers:
            assert numbers(reader.peer, reader.start) == reader.expected(stream.log.next)
        assert not stream.trailing.laggards

    run(scenario())

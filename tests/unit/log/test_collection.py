"""Garbage collection: what policies and GC events collect, and what they must leave."""

from __future__ import annotations

import random

import pytest
from tests.unit.log.collecting import STREAM, alive, collect, events, opened, rows

from qanat.events.batch import Batch, Kind
from qanat.events.tombstones import GC_ATTRIBUTE, gc_event, tombstone
from qanat.log import Policy, StreamLog
from qanat.log.checker import Event, Grave, check_history, check_merged


def test_nothing_is_collected_for_the_sake_of_an_event_that_may_still_be_taken_back() -> None:
    log = opened(policy=Policy(by_key=True))
    log.append(events(2, key=lambda i: b"k"))
    log.append(events(1, key=lambda i: b"other"))
    step = log.collect(everything=True, settled=2)
    assert (step.rewritten_bytes, step.more) == (0, False)
    log.append(events(1, key=lambda i: b"k"))
    assert alive(log) == [1, 2, 3, 4]
    log.collect(everything=True, settled=3)  # what it waits for was known when it began: 4 is not among it
    assert alive(log) == [2, 3, 4]
    log.collect(everything=True, settled=3)
    assert alive(log) == [2, 3, 4]
    log.collect(everything=True, settled=4)
    assert alive(log) == [3, 4]


@pytest.mark.paper("S10")
def test_the_key_policy_keeps_the_last_event_of_each_key() -> None:
    log = opened(policy=Policy(by_key=True))
    rng = random.Random(3)
    keys = [b"k%d" % min(int(rng.paretovariate(0.8)), 300) for _ in range(4000)]
    for i in range(0, 4000, 250):
        log.append(events(250, key=lambda n: keys[n], first=i))
    before = log.stats().bytes
    collect(log)
    last = {key: i + 1 for i, key in enumerate(keys)}
    assert alive(log) == sorted(last.values())
    assert log.stats().bytes < before / 4
    check_merged(rows(log))
    assert log.first == 1


@pytest.mark.paper("S10")
def test_events_without_a_key_are_not_collected_by_key() -> None:
    log = opened(policy=Policy(by_key=True))
    log.append(events(6, key=lambda i: b"" if i % 2 else b"same"))
    collect(log)
    assert alive(log) == [2, 4, 5, 6]


@pytest.mark.paper("S10")
def test_keep_last_keeps_exactly_that_many() -> None:
    log = opened(policy=Policy(keep_last=100))
    for i in range(0, 2000, 50):
        log.append(events(50, first=i))
    collect(log)
    assert alive(log) == list(range(1901, 2001))
    assert rows(log)[0] == Grave(1, 1900)


@pytest.mark.paper("S10")
def test_one_event_among_tombstones_is_collected_by_a_prefix_too_and_the_segment_rewritten_once() -> None:
    log = opened()
    log.append(events(1))
    log.append_numbered(tombstone(STREAM, 2, 40))
    log.append(events(6, first=40))
    log.append(gc_event(STREAM, "upto 1", time_us=0))
    log.collect(everything=True)
    assert alive(log) == list(range(41, 48))
    assert log.collect(everything=True).rewritten_bytes == 0


@pytest.mark.paper("S10")
def test_age_is_told_by_the_events_own_time() -> None:
    log = opened(policy=Policy(age_ms=1))
    for i in range(0, 1000, 50):
        log.append(events(50, first=i, time_us=lambda n: n * 10))
    collect(log)
    oldest = min(alive(log))
    # By whole index entries: some are kept longer than they must be, none less long.
    assert 700 < oldest <= 1000 - 100
    late = Batch.build(STREAM, [b"late"], time_us=0)
    log.append(late)
    collect(log)
    assert alive(log)[-1] == 1001


@pytest.mark.paper("S3")
@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("upto 3", [4, 5, 6, 7]),
        ("keep last 2", [6, 7]),
        ("same key", [2, 4, 6, 7]),
        ("older than 3us", [4, 5, 6, 7]),
        ("colour = red", [2, 3, 5, 6, 7]),
        ("colour = red and upto 3", [2, 3, 4, 5, 6, 7]),
        ("colour ~ 'e'", [7]),
        ("not exists colour", [1, 2, 3, 4, 5, 6, 7]),
        ("all", [7]),
    ],
)
@pytest.mark.parametrize("indexed", [(), ("colour",)])
def test_a_gc_event_collects_what_its_predicate_matches(
    predicate: str, left: list[int], indexed: tuple[str, ...]
) -> None:
    log = opened(indexed=indexed)
    log.append(
        events(
            6,
            key=lambda i: b"ab"[i % 2 : i % 2 + 1],
            time_us=lambda i: 10 + i,
            attributes=[{"colour": ["red", "blue", "green"][i % 3]} for i in range(6)],
        )
    )
    log.append(gc_event(STREAM, predicate, key=b"a", time_us=16))
    collect(log)
    assert alive(log) == left


@pytest.mark.paper("S2")
def test_a_gc_event_never_matches_the_future() -> None:
    log = opened()
    log.append(gc_event(STREAM, "colour = red or upto 1000", time_us=5))
    log.append(events(3, attributes=[{"colour": "red"}] * 3))
    collect(log)
    assert alive(log) == [1, 2, 3, 4]


@pytest.mark.paper("S2")
def test_a_gc_event_goes_only_when_the_next_one_implies_it() -> None:
    log = opened()
    log.append(events(1, attributes=[{"colour": "red", "size": 1}]))
    log.append(events(1, attributes=[{"colour": "blue", "size": 1}]))
    log.append(gc_event(STREAM, "colour = red", attributes={"size": 9}))
    log.append(gc_event(STREAM, "size = 9"))  # matches the GC event, but not all that it collected
    collect(log)
    assert alive(log) == [2, 3, 4]
    log.append(gc_event(STREAM, "colour in (red, green) or size = 9"))
    collect(log)
    assert alive(log) == [2, 4, 5]
    check_history(_published(log, 5), rows(log))


def _published(log: StreamLog, count: int) -> list[Event]:
    """What the test above published, for the checker."""
    size: list[dict[str, object]] = [
        {"colour": "red", "size": 1},
        {"colour": "blue", "size": 1},
        {GC_ATTRIBUTE: "colour = red", "size": 9},
        {GC_ATTRIBUTE: "size = 9"},
        {GC_ATTRIBUTE: "colour in (red, green) or size = 9"},
    ]
    payload = [b"00000000" + bytes(92)] * 2 + [b""] * 3
    kinds = [Kind.DATA] * 2 + [Kind.GC] * 3
    return [Event(i + 1, payload[i], b"", 0, kinds[i], size[i]) for i in range(count)]


@pytest.mark.paper("S2")
def test_under_a_policy_a_gc_event_must_be_implied_with_what_the_policy_collects() -> None:
    log = opened(policy=Policy(by_key=True))
    log.append(events(1, key=lambda _: b"a"))
    log.append(
        gc_event(STREAM, "keep last 3", key=b"a", attributes={"colour": "red"})
    )  # by its key it collects 1
    log.append(gc_event(STREAM, "colour = red"))  # matches 2, but says nothing of 1
    collect(log)
    assert alive(log) == [2, 3]


@pytest.mark.paper("S2")
def test_under_the_age_policy_the_newest_event_stays_until_another_proves_the_same() -> None:
    log = opened(policy=Policy(by_key=True, age_ms=1))

    def publish(key: bytes, time_us: int) -> None:
        log.append(Batch.build(STREAM, [bytes(2000)], keys=[key], time_us=time_us))

    publish(b"x", 0)
    publish(b"k", 5000)  # makes 1 old
    publish(b"k", 100)  # collects 2 by its key, but does not make 1 old
    collect(log)
    assert alive(log) == [2, 3] and rows(log)[0] == Grave(1, 1)
    publish(b"z", 5000)
    collect(log)
    assert alive(log) == [3, 4]


def test_an_event_dated_ahead_of_the_clock_makes_no_other_older_than_it_is() -> None:
    for options in ({"policy": Policy(age_ms=10)}, {"retain_age_ms": 10}):
        log = opened(**options)
        for i in range(0, 1000, 50):
            log.append(events(50, first=i, time_us=lambda n: n))
        log.append(events(1, first=1000, time_us=lambda _: 1 << 60))
        log.collect(everything=True, now_us=1_000)
        assert (log.first, len(alive(log))) == (1, 1001)
        log.collect(everything=True, now_us=60_000_000)
        assert log.first > 500 or len(alive(log)) < 100

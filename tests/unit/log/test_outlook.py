"""What is said of a log: which numbers are kept and which collected, what collection did, and what it will do
and why not yet."""

from __future__ import annotations

import random
from itertools import groupby

import pytest
from tests.unit.log.collecting import STREAM, events, opened, rows

from qanat.events.tombstones import gc_event
from qanat.log import StreamLog
from qanat.log.checker import Event
from qanat.log.config import Policy
from qanat.log.outlook import Outlook, Span, outlook, spans


def naive(log: StreamLog, start: int, upto: int) -> list[Span]:
    alive = {row.seq for row in rows(log, log.first) if isinstance(row, Event)}
    found = []
    for kept, group in groupby(range(max(start, log.first), upto + 1), alive.__contains__):
        numbers = list(group)
        found.append(Span(numbers[0], numbers[-1], kept))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_spans_are_those_that_a_reader_finds(seed: int) -> None:
    random_ = random.Random(seed)
    log = opened(rewrite_dead_fraction=0.05)
    for i in range(30):
        log.append(events(random_.randint(1, 200), key=lambda k: b"%d" % (k % 90), first=i * 1000))
        if random_.random() < 0.5:
            log.append(gc_event(STREAM, "same key", key=b"%d" % random_.randint(0, 90)))
        if random_.random() < 0.2:
            log.append(gc_event(STREAM, f"upto {random_.randint(1, log.next)}"))
        if random_.random() < 0.3:
            log.collect(everything=random_.random() < 0.5)
    last = log.next - 1
    whole = spans(log, 1, last, 100_000)
    assert (whole.spans, whole.upto, whole.whole) == (naive(log, 1, last), last, True)
    for _ in range(20):
        start = random_.randint(1, last)
        upto = random_.randint(start, last)
        assert spans(log, start, upto, 100_000).spans == naive(log, start, upto)


def test_many_spans_come_in_parts_which_together_are_all() -> None:
    log = opened(rewrite_dead_fraction=0.01)
    log.append(events(2_000, key=lambda k: b"odd" if k % 2 else b"%d" % k))
    log.append(gc_event(STREAM, "same key", key=b"odd"))
    while log.collect(everything=True).more:
        pass
    last, at, found = log.next - 1, 1, list[Span]()
    rounds = 0
    while at <= last:
        part = spans(log, at, last, 50, budget_bytes=100_000)
        assert part.upto >= at
        assert len(part.spans) <= 52
        found += part.spans
        at, rounds = part.upto + 1, rounds + 1
    assert rounds > 10
    joined = [
        (kept, sum(each.last - each.first + 1 for each in group))
        for kept, group in groupby(found, lambda s: s.kept)
    ]
    assert joined == [(each.kept, each.last - each.first + 1) for each in naive(log, 1, last)]


def told(log: StreamLog) -> Outlook:
    return outlook(log)


def test_it_is_said_what_waits_and_what_was_done() -> None:
    log = opened(policy=Policy(by_key=True))
    log.append(events(100, key=lambda _: b"k"))
    before = told(log)
    assert (before.kept_events, before.collected_events, before.dead_events, before.soon_events) == (
        100,
        0,
        99,
        0,
    )
    assert [each.events for each in before.waits] == [99]
    assert "newest segment" in before.waits[0].why
    log.collect()  # too small to be worth it: still the same
    assert told(log).waits == before.waits
    assert (told(log).removed_events, told(log).idle_s) == (0, None)
    log.collect(everything=True)
    after = told(log)
    assert (after.kept_events, after.collected_events, after.dead_events, after.removed_events) == (
        1,
        99,
        0,
        99,
    )
    assert after.waits == []
    assert after.freed_bytes > 5_000
    assert after.idle_s is not None


def test_dead_events_in_a_segment_that_is_mostly_alive_wait_for_more() -> None:
    log = opened(policy=Policy(by_key=True))
    log.append(events(550, key=lambda k: b"%d" % min(k, 500)))
    log.append(events(550, key=lambda k: b"x%d" % k))
    assert [(each.events, each.why) for each in told(log).waits] == [
        (49, "lie in segments that are not synced yet")
    ]
    log.sync()
    found = told(log)
    assert (found.kept_events, found.dead_events, found.soon_events) == (1_100, 49, 0)
    assert [each.events for each in found.waits] == [49]
    assert "less than 50 % is dead" in found.waits[0].why


def test_a_predicate_that_still_looks_is_counted() -> None:
    log = opened()
    log.append(events(10))
    log.append(gc_event(STREAM, "colour = red"))
    assert told(log).predicates == 1
    log.collect()
    assert told(log).predicates == 0


def test_what_retention_dropped_is_no_tombstone() -> None:
    log = opened(retain_bytes=65_536)
    for i in range(40):
        log.append(events(50, first=i * 50))
    log.sync()
    log.collect()
    found = told(log)
    assert found.dropped_events == log.first - 1 > 0
    assert found.collected_events == 0
    assert spans(log, 1, log.next - 1, 10).spans == [Span(log.first, log.next - 1, True)]

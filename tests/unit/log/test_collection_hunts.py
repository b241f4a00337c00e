"""How collection finds its matches: by indexes, in steps, within bounds."""

from __future__ import annotations

import pytest
from tests.unit.log.collecting import STREAM, alive, collect, events, opened

from qanat.events.tombstones import gc_event
from qanat.log import Policy, collector
from qanat.log.crash_disk import CrashDisk


@pytest.mark.paper("S3")
def test_an_index_finds_matches_without_scanning_history() -> None:
    log = opened(indexed=("order",), segment_bytes=256 * 1024)
    for i in range(0, 3000, 20):
        log.append(events(20, first=i, attributes=[{"order": 10_000 + n} for n in range(i, i + 20)]))
    log.append(gc_event(STREAM, "order = 10500"))
    history = log.stats().bytes
    log.collect()  # makes the index
    before = log.stats().dead_rows
    log.append(gc_event(STREAM, "order in (10700, '12000', 5)"))
    step = log.collect()
    assert step.hunted_bytes < history / 20
    assert log.stats().dead_rows == before + 1
    collect(log)
    gone = set(range(1, 3003)) - set(alive(log))
    assert gone == {501, 701}


@pytest.mark.paper("S3")
@pytest.mark.parametrize("predicate", ["order = {}", "@key = 'k{}'"])
def test_history_is_read_once_for_an_index_however_many_predicates_come(predicate: str) -> None:
    """What they read of the disk, too: the last entry of the segment that is being written, and where there
    is a match."""
    read = 0

    class Watched(CrashDisk):
        def read_copy(self, path: str, offset: int, n: int) -> bytes:
            nonlocal read
            read += n
            return super().read_copy(path, offset, n)

    def asked(value: int) -> int:
        nonlocal read
        read = 0
        log.append(gc_event(STREAM, predicate.format(value)))
        while log.collect().more:
            pass
        return read

    options = {"rewrite_dead_fraction": 0.01, "rewrite_batch_bytes": 1024}
    log = opened(Watched(), indexed=("order",), segment_bytes=256 * 1024, **options)

    def publish(first: int, count: int) -> None:
        for i in range(first, first + count, 20):
            numbers = range(i, i + 20)
            log.append(
                events(20, first=i, key=lambda n: b"k%d" % n, attributes=[{"order": n} for n in numbers])
            )

    publish(0, 6000)
    entry = 4 * 1024
    assert asked(-1) > log.stats().bytes / 2  # makes the index
    assert [asked(-i) for i in range(2, 5)] < [entry] * 3
    assert max(asked(i) for i in (500, 3500)) < 3 * entry
    publish(6000, 3000)
    new = asked(-5)
    assert log.stats().bytes / 5 < new < log.stats().bytes / 2  # what is new to the index
    log.append(gc_event(STREAM, "upto 1000"))
    while log.collect().more:
        pass
    assert log.stats().rows < 8500  # rewritten, and indexed by that
    assert asked(-6) < entry
    assert max(asked(i) for i in (2000, 7000)) < 3 * entry


@pytest.mark.paper("S3")
def test_age_finds_its_matches_without_reading_what_is_younger() -> None:
    log = opened(segment_bytes=256 * 1024)
    for i in range(0, 3000, 20):
        log.append(events(20, first=i, time_us=lambda n: 1000 + n))
    log.append(events(1, first=3000, time_us=lambda _: 0))  # a publisher whose clock is late
    log.append(gc_event(STREAM, "older than 1000us", time_us=4000))
    step = log.collect()
    assert step.hunted_bytes < 10_000
    collect(log)
    assert alive(log) == [*range(2001, 3001), 3002]


@pytest.mark.paper("S3")
def test_same_key_finds_all_earlier_events_of_a_key_that_has_many() -> None:
    log = opened(segment_bytes=256 * 1024)
    for i in range(0, 3000, 20):
        log.append(events(20, first=i, key=lambda n: b"k%d" % (n % 700)))
    log.append(gc_event(STREAM, "same key", key=b"k5"))
    log.collect()
    log.append(gc_event(STREAM, "same key", key=b"k6"))
    assert log.collect().hunted_bytes < log.stats().bytes / 10
    log.append(gc_event(STREAM, "same key", key=b"k5"))  # only its predecessor is left: no hunt at all
    assert log.collect().hunted_bytes == 0
    collect(log)
    assert set(range(1, 3004)) - set(alive(log)) == {n + 1 for n in range(3000) if n % 700 in (5, 6)} | {3001}


@pytest.mark.paper("S3")
def test_keys_beyond_the_bound_are_forgotten_and_their_events_stay() -> None:
    log = opened(policy=Policy(by_key=True), index_keys_max=20)
    log.append(events(1, key=lambda _: b"early"))
    for i in range(10):
        log.append(events(8, first=i * 8, key=lambda n: b"k%d" % n))
    assert log.stats().keys <= 20 + 8
    log.append(events(1, key=lambda _: b"early"))
    log.append(events(1, key=lambda _: b"k79"))
    collect(log)
    assert 1 in alive(log) and 81 not in alive(log)
    forgetful = opened(index_keys_max=20)
    forgetful.append(events(1, key=lambda _: b"early"))
    for i in range(10):
        forgetful.append(events(8, first=i * 8, key=lambda n: b"k%d" % n))
    forgetful.append(gc_event(STREAM, "same key", key=b"early"))  # a GC event is hunted instead
    collect(forgetful)
    assert 1 not in alive(forgetful)


def test_gc_events_that_find_no_room_are_hunted_in_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "HUNTS_MAX", 3)
    log = opened()
    log.append(events(10, attributes=[{"n": i} for i in range(10)]))
    for i in range(10):
        log.append(gc_event(STREAM, f"n = {i}"))
    assert log.stats().hunts == 3
    collect(log)
    assert alive(log) == list(range(11, 21))


def test_gc_events_that_found_no_room_are_looked_for_outside_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may lie anywhere in a long log, and appends and reads go on meanwhile: at most an index entry is
    read under the lock."""
    monkeypatch.setattr(collector, "HUNTS_MAX", 3)
    reads: list[tuple[bool, int]] = []

    class Watched(CrashDisk):
        def read_copy(self, path: str, offset: int, n: int) -> bytes:
            reads.append((log._lock._is_owned(), n))  # type: ignore[attr-defined]
            return super().read_copy(path, offset, n)

    disk = CrashDisk()
    log = opened(disk, segment_bytes=512 * 1024, tail_bytes=0)
    disk.__class__ = Watched
    log.append(events(10, attributes=[{"n": i} for i in range(10)]))
    for i in range(10):
        log.append(gc_event(STREAM, f"n = {i}"))
        for j in range(20):
            log.append(events(50, first=1000 * i + 50 * j))
    reads.clear()
    assert log.collect(1).more
    log.append(gc_event(STREAM, "size = 1"))  # one that comes meanwhile is found behind the others
    collect(log)
    assert alive(log)[0] == 11
    assert sum(n for _, n in reads) > 1_000_000
    assert max((n for held, n in reads if held), default=0) < 10_000


def test_hunting_respects_its_budget_and_says_that_there_is_more() -> None:
    log = opened()
    for i in range(0, 3000, 100):
        log.append(events(100, first=i, attributes=[{"n": n % 7} for n in range(i, i + 100)]))
    log.append(gc_event(STREAM, "n = 3"))
    steps = 0
    while log.collect(1).more:
        steps += 1
    assert steps >= 4
    collect(log)
    assert len(alive(log)) == 3001 - len([n for n in range(3000) if n % 7 == 3])


@pytest.mark.paper("S3")
@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("keys_max", [0, 1000])
def test_what_a_key_collects_does_not_depend_on_what_an_index_remembers(before: int, keys_max: int) -> None:
    """Whether the key index has the event itself, only knows of several, or is not there: the same are
    collected."""
    log = opened(index_keys_max=keys_max)
    for _ in range(before):
        log.append(events(1, key=lambda _: b"k"))
    log.append(gc_event(STREAM, "same key and colour = red", key=b"k"))  # another one's own: stays
    log.append(gc_event(STREAM, "same key", key=b"k"))
    log.append(gc_event(STREAM, "same key", key=b"k"))
    collect(log)
    assert alive(log) == [before + 1, before + 3]

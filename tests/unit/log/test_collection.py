"""Garbage collection: policies, GC events, indexes, rewriting, crashes in the middle, retention."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.tombstones import GC_ATTRIBUTE, gc_event
from qanat.log import Chunk, DiskFull, LogConfig, Policy, StreamLog, Truncated, collector
from qanat.log.checker import Event, Grave, check_history, check_merged, rows_of
from qanat.log.crash_disk import CrashDisk, PowerCut

STREAM = stream_id("collection")


def opened(disk: CrashDisk | None = None, **options: Any) -> StreamLog:
    defaults: dict[str, Any] = {"mode": "interval", "segment_bytes": 64 * 1024, "index_stride_bytes": 1024}
    return StreamLog.open(disk or CrashDisk(), "log", STREAM, LogConfig(**{**defaults, **options}))


def events(count: int, *, key: Any = None, time_us: Any = None, first: int = 0, **columns: Any) -> Batch:
    """Numbered payloads of 100 bytes; `key` and `time_us` are functions of the number."""
    numbers = range(first, first + count)
    return Batch.build(
        STREAM,
        [b"%08d" % i + bytes(92) for i in numbers],
        keys=None if key is None else [key(i) for i in numbers],
        times=None if time_us is None else [time_us(i) for i in numbers],
        **columns,
    )


def rows(log: StreamLog, start: int = 1) -> list[Event | Grave]:
    found: list[Batch] = []
    while start < log.next:
        chunk = log.read(start, 1 << 20)
        assert isinstance(chunk, Chunk)
        found += chunk.batches()
        start = chunk.last + 1
    return rows_of(found)


def alive(log: StreamLog) -> list[int]:
    return [row.seq for row in rows(log) if isinstance(row, Event)]


def collect(log: StreamLog) -> None:
    while log.collect(everything=True).more:
        pass


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


def workload(disk: CrashDisk, acknowledged: list[int]) -> StreamLog:
    log = opened(disk, mode="always", policy=Policy(by_key=True), rewrite_batch_bytes=4096)
    for i in range(0, 1200, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n * n % 97)))
        acknowledged[0] = log.sync()
        if i % 300 == 200:
            log.collect(everything=i > 600)
    log.append(gc_event(STREAM, "upto 150"))
    acknowledged[0] = log.sync()
    collect(log)
    return log


def published_by_workload() -> list[Event]:
    found = [Event(n + 1, b"%08d" % n + bytes(92), b"k%d" % (n * n % 97)) for n in range(1200)]
    return [*found, Event(1201, b"", b"", 0, Kind.GC, {GC_ATTRIBUTE: "upto 150"})]


@pytest.mark.paper("S2")
@pytest.mark.parametrize("orderly", [True, False])
def test_a_power_cut_at_any_operation_of_collecting_loses_nothing(orderly: bool) -> None:
    disk = CrashDisk()
    acknowledged = [0]
    workload(disk, acknowledged)
    published = published_by_workload()
    policy = Policy(by_key=True)
    for cut_at in range(1, disk.operations + 1):
        crashing = CrashDisk(cut_at, orderly=orderly)
        crashing.cut_at = cut_at
        acknowledged = [0]
        with pytest.raises(PowerCut):
            workload(crashing, acknowledged)
        crashing.crash()
        log = opened(crashing, mode="always", policy=policy, rewrite_batch_bytes=4096)
        survived = log.next - 1
        assert survived >= acknowledged[0]
        check_history(published[:survived], rows(log), policy)
        collect(log)
        check_history(published[:survived], rows(log), policy)


def test_a_disk_too_full_to_rewrite_harms_nothing() -> None:
    disk = CrashDisk()
    log = opened(disk, policy=Policy(by_key=True))
    for i in range(0, 1000, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n % 300)))
    log.sync()
    disk.capacity = sum(len(inode.data) for inode in disk.names.values()) + 9000
    with pytest.raises(DiskFull):
        collect(log)
    assert len(alive(log)) == 1000
    disk.capacity = None
    collect(log)
    assert alive(log) == list(range(701, 1001))


def test_files_do_not_multiply_and_the_disk_is_given_back() -> None:
    disk = CrashDisk()
    log = opened(disk, policy=Policy(by_key=True))
    for i in range(0, 20_000, 200):
        log.append(events(200, first=i, key=lambda n: b"k%d" % (n % 50)))
        log.collect()
    while log.collect().more:
        pass
    assert log.stats().segments <= 4
    assert sum(len(inode.data) for inode in disk.names.values()) < 200 * 1024
    assert len(disk.list("log")) <= 5


def test_readers_keep_their_views_while_segments_are_rewritten() -> None:
    log = opened(policy=Policy(by_key=True), tail_bytes=0)
    log.append(events(500, key=lambda n: b"k%d" % (n % 10)))
    log.append(events(500, first=500, key=lambda n: b"k%d" % (n % 10)))
    chunk = log.read(1, 1 << 20)
    assert isinstance(chunk, Chunk)
    collect(log)
    assert [row.seq for row in rows_of(chunk.batches()) if isinstance(row, Event)] == list(
        range(1, chunk.last + 1)
    )
    assert alive(log) == list(range(991, 1001))


def test_appends_reads_and_collection_in_threads(tmp_path: Any) -> None:
    from qanat.log import OsDisk

    config = LogConfig(
        mode="interval", policy=Policy(by_key=True), segment_bytes=64 * 1024, tail_bytes=16 * 1024
    )
    log = StreamLog.open(OsDisk(), str(tmp_path / "log"), STREAM, config)
    done = threading.Event()
    trouble: list[BaseException] = []

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                while not done.is_set():
                    work()
            except BaseException as error:
                trouble.append(error)

        return threading.Thread(target=run)

    def read() -> None:
        seen = 0
        for row in rows(log):
            first = row.first if isinstance(row, Grave) else row.seq
            assert first == seen + 1
            seen = row.last if isinstance(row, Grave) else row.seq

    threads = [guarded(read), guarded(read), guarded(log.sync), guarded(lambda: log.collect(everything=True))]
    for thread in threads:
        thread.start()
    for i in range(0, 12_000, 100):
        log.append(events(100, first=i, key=lambda n: b"k%d" % (n % 61)))
    done.set()
    for thread in threads:
        thread.join(60)
    assert not trouble
    collect(log)
    assert alive(log) == list(range(12_000 - 60, 12_001))
    log.close()


def test_retention_drops_whole_segments_and_says_what_is_lost() -> None:
    disk = CrashDisk()
    log = opened(disk, retain_bytes=200 * 1024)
    for i in range(0, 6000, 100):
        log.append(events(100, first=i, source="w", position=1 + i))
    log.collect()
    lost = log.read(1, 1000)
    assert isinstance(lost, Truncated) and lost.first == 1
    assert log.first == lost.last + 1 > 1
    assert log.stats().bytes < 300 * 1024
    again = opened(disk, retain_bytes=200 * 1024)
    assert again.read(5, 1000) == Truncated(5, lost.last)
    assert again.append(events(100, first=5900, source="w", position=5901)).dropped == 100
    assert [row.seq for row in rows(again, again.first) if isinstance(row, Event)] == list(
        range(again.first, 6001)
    )


def test_retention_by_age_is_relative_to_the_newest_event() -> None:
    log = opened(retain_age_ms=1)
    for i in range(0, 6000, 100):
        log.append(events(100, first=i, time_us=lambda n: n))
    log.collect()
    assert 4000 < log.first < 5002

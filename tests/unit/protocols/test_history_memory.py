"""A history in memory: numbers, drops, gaps, tombstones, bounds."""

import pytest

from qanat.events.batch import Batch, Kind
from qanat.events.filters import FilterError
from qanat.events.tombstones import gc_event, tombstone
from qanat.log.checker import Event, check_history, rows_of
from qanat.protocols.history import History, HistoryGap, HistoryTruncated, Numbered
from qanat.protocols.history_memory import MemoryHistory, NotPublishable, PositionGap

STREAM = 7


def some(*payloads: bytes, **columns: object) -> Batch:
    return Batch.build(STREAM, list(payloads), **columns)


def test_it_is_a_history_that_numbers_from_one() -> None:
    history: History = MemoryHistory()
    assert history.counter(STREAM) == 0
    assert history.append(some(b"a", b"b")) == Numbered(1, 2, 0)
    assert history.append(some(b"c")) == Numbered(3, 3, 0)
    assert (history.counter(STREAM), history.durable(STREAM)) == (3, 3)
    assert [batch.payload(0) for batch in history.read(STREAM, 1, 1 << 20)] == [b"a", b"c"]
    assert history.read(STREAM, 4, 1 << 20) == []


def test_what_a_source_sends_again_is_dropped_and_a_gap_refused() -> None:
    history = MemoryHistory()
    history.append(some(b"a", b"b", source="s", position=1))
    assert history.append(some(b"b", b"c", source="s", position=2)) == Numbered(3, 3, 1)
    assert history.append(some(b"b", source="s", position=2)) == Numbered(4, 3, 1)
    with pytest.raises(PositionGap):
        history.append(some(b"z", source="s", position=9))
    assert history.positions(STREAM) == {"s": (3, 0)}
    history.adopt_positions(STREAM, {"s": (2, 0), "t": (5, 1)})
    assert history.positions(STREAM) == {"s": (3, 0), "t": (5, 1)}


def test_numbered_batches_continue_or_are_refused() -> None:
    owner, other = MemoryHistory(), MemoryHistory()
    owner.append(some(b"a", b"b", b"c", source="s", position=1))
    batch = owner.read(STREAM, 1, 1)[0]
    other.append_numbered(batch.slice(0, 2))
    other.append_numbered(batch)
    other.append_numbered(batch)
    assert other.counter(STREAM) == 3
    assert [bytes(p) for b in other.read(STREAM, 1, 1 << 20) for p in b.payloads().to_pylist()] == [
        b"a",
        b"b",
        b"c",
    ]
    assert other.positions(STREAM) == {"s": (3, 0)}
    with pytest.raises(HistoryGap):
        other.append_numbered(some(b"x", first=5))
    with pytest.raises(HistoryGap):
        other.append_numbered(some(b"x", b"y", first=4).take([1]))
    with pytest.raises(NotPublishable):
        other.append(tombstone(STREAM, 4, 5))


def test_a_tombstone_that_begins_before_the_counter_is_shortened() -> None:
    history = MemoryHistory()
    history.append_numbered(some(b"a", b"b", first=1))
    history.append_numbered(tombstone(STREAM, 1, 9))
    grave = history.read(STREAM, 3, 1)[0]
    assert (grave.first, grave.last, grave.kind(0)) == (3, 9, Kind.TOMBSTONE)


def test_gc_events_bury_what_they_match() -> None:
    history = MemoryHistory()
    published: list[Event] = []
    for i in range(12):
        published.append(Event(i + 1, b"%d" % i, b"k%d" % (i % 3)))
        history.append(some(b"%d" % i, keys=[b"k%d" % (i % 3)]))
    before = history.stored_bytes(STREAM)
    history.append(gc_event(STREAM, "upto 9"))
    history.append(gc_event(STREAM, "same key", key=b"k0"))
    held = history.read(STREAM, 1, 1 << 20)
    assert history.stored_bytes(STREAM) < before
    assert (held[0].first, held[0].last, held[0].kind(0)) == (1, 10, Kind.TOMBSTONE)
    rows = rows_of(held)
    check_history([*published, *(row for row in rows[-2:] if isinstance(row, Event))], rows)
    with pytest.raises(FilterError):
        history.append(gc_event(STREAM, "((("))
    assert history.counter(STREAM) == 14


def test_it_is_bounded_and_says_what_it_dropped() -> None:
    history = MemoryHistory(limit_bytes=1000)
    for _ in range(100):
        history.append(some(bytes(100)))
    assert history.stored_bytes(STREAM) <= 1000
    with pytest.raises(HistoryTruncated) as caught:
        history.read(STREAM, 1, 1)
    assert history.read(STREAM, caught.value.last + 1, 1 << 20)[-1].last == 100


def test_reading_stops_at_bytes_and_at_upto_and_ghosts_count_in_full() -> None:
    history = MemoryHistory()
    for _ in range(10):
        history.append(Batch.build(STREAM, (10, 1000), ghost=True))
    assert history.stored_bytes(STREAM) < 2000
    assert [b.first for b in history.read(STREAM, 15, 25_000)] == [11, 21]
    assert [b.first for b in history.read(STREAM, 15, 1)] == [11]
    assert [b.first for b in history.read(STREAM, 15, 1 << 20, upto=35)] == [11, 21]
    assert history.read(STREAM, 15, 1 << 20, upto=15) == []

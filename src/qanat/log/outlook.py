"""What is kept of a stream, what was collected, and what is to be collected next: for people, in a bounded
number of steps.

Segments know how many events they have. Where that is as many as the numbers that they cover, or none,
nothing is read; only the others are looked through for their tombstones, about `budget_bytes` of them at a
time.
"""

import time
from typing import NamedTuple

import msgspec
import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.encode import Array
from qanat.log.collection import ROLL_MIN_BYTES
from qanat.log.reader import Truncated
from qanat.log.rewrite import choose, dead_rows
from qanat.log.stream_log import StreamLog

_READ_BYTES = 256 * 1024


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Numbers that are next to each other and share one fate."""

    first: int
    last: int
    kept: bool
    """False: collected, and a tombstone stands for them."""


class Spans(NamedTuple):
    """In order. `upto` is how far it was looked; `looked` whether that is all that was asked for."""

    spans: list[Span]
    upto: int
    whole: bool


class _Joined:
    """Spans as they come, neighbours of one fate made one."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, first: int, last: int, *, kept: bool) -> None:
        if last < first:
            return
        if self.spans and self.spans[-1].kept == kept:
            first = self.spans.pop().first
        self.spans.append(Span(first, last, kept))


def spans(log: StreamLog, start: int, upto: int, most: int, budget_bytes: int = 4 << 20) -> Spans:
    """What is kept from `start` to `upto`, and what is collected; at most about `most` spans."""
    at = max(start, log.first)
    found = _Joined()
    for first, last, rows in _shapes(log, at, upto):
        if len(found.spans) >= most or budget_bytes <= 0:
            return Spans(found.spans, at - 1, False)
        if rows in (0, last - first + 1):
            found.add(max(at, first), min(last, upto), kept=rows > 0)
            at = min(last, upto) + 1
            continue
        last = min(last, upto)
        while at <= last:
            if len(found.spans) >= most or budget_bytes <= 0:
                return Spans(found.spans, at - 1, False)
            chunk = log.read(at, _READ_BYTES, upto=log.next - 1)  # whole batches alone are read
            if isinstance(chunk, Truncated) or not chunk.data:  # dropped meanwhile
                return Spans(found.spans, at - 1, False)
            budget_bytes -= chunk.size
            for batch in chunk.batches():
                at = _add(found, batch, at, min(batch.last, upto), most)
                if at <= min(batch.last, upto):
                    return Spans(found.spans, at - 1, False)
    return Spans(found.spans, max(at - 1, min(start, upto) - 1), True)


def _shapes(log: StreamLog, start: int, upto: int) -> list[tuple[int, int, int]]:
    """First and last number of each segment, and how many events it has."""
    store = log.parts.store
    with store.lock:
        segments = [segment for segment in store.segments if segment.last >= start and segment.first <= upto]
        return [(segment.first, segment.last, segment.rows) for segment in segments]


def _add(found: _Joined, batch: Batch, at: int, last: int, most: int) -> int:
    """The batch from `at` on; returns what comes next, which is within the batch if there were too many."""
    first, last = max(at, batch.first), min(last, batch.last)
    graves = _graves(batch)
    for begin, end in graves:
        if end < first:
            continue
        if len(found.spans) >= most:
            return first
        found.add(first, min(begin - 1, last), kept=True)
        found.add(max(first, begin), min(end, last), kept=False)
        first = min(end, last) + 1
    found.add(first, last, kept=True)
    return last + 1


def _graves(batch: Batch) -> list[tuple[int, int]]:
    """First and last number of each tombstone; runs of neighbours are one."""
    kinds = batch.kinds
    if kinds is None:
        return []
    rows = np.flatnonzero(kinds == Kind.TOMBSTONE)
    if not len(rows):
        return []
    ends: Array = batch.seqs()[rows]
    ranges = batch.ranges
    begins = ends if ranges is None else ends - ranges[rows] + np.uint64(1)
    heads = np.concatenate(([True], begins[1:] != ends[:-1] + np.uint64(1)))
    tails = np.concatenate((heads[1:], [True]))
    return list(zip(begins[heads].tolist(), ends[tails].tolist(), strict=True))


class Waits(msgspec.Struct, frozen=True):
    """Dead events that are still there, and why."""

    events: int
    why: str


class Outlook(msgspec.Struct, frozen=True):
    """What garbage collection did since the log was opened, and what it will do. Counts of the dead are
    estimates within a segment."""

    kept_events: int
    """Still there, dead ones included."""
    collected_events: int
    """Numbers below `next` for which a tombstone stands."""
    dead_events: int
    """Still there, and named by a GC event or the policy."""
    soon_events: int
    """Of these, those that the next round replaces by tombstones."""
    waits: list[Waits]
    predicates: int
    """GC events that still look for what they match."""
    removed_events: int
    """Replaced by tombstones since the log was opened."""
    dropped_events: int
    """Dropped by retention since then."""
    rewritten_bytes: int
    freed_bytes: int
    idle_s: float | None
    """Since something was rewritten or dropped; None if nothing was."""


def outlook(log: StreamLog) -> Outlook:
    store, _, collector, collection = log.parts
    config, totals = log.config, collection.totals
    with store.lock:
        if collection.step is None:
            collection.bury_marks()
        sealed, open_, prefix = list(store.sealed), store.segments[len(store.sealed) :], collector.prefix
        dead = sum(dead_rows(segment, prefix) for segment in sealed)
        newest = [dead_rows(segment, prefix) for segment in open_]
        rows = sum(segment.rows for segment in (*sealed, *open_))
        collected = log.next - log.first - rows
        unburied = collector.marks_waiting
    soon = sum(dead_rows(segment, prefix) for group in choose(sealed, prefix, config) for segment in group)
    share = round(config.rewrite_dead_fraction * 100)
    waits = [
        (dead - soon, f"lie in segments of which less than {share} % is dead (rewrite_dead_fraction)"),
        (
            sum(newest[:-1]),
            "lie in segments that are not synced yet",
        ),
        (unburied, "are found, and put to their segments in the next round"),
    ]
    active = open_[-1]
    if newest[-1] >= config.rewrite_dead_fraction * active.rows and active.bytes >= ROLL_MIN_BYTES:
        soon += newest[-1]
    else:
        rule = f"it has {ROLL_MIN_BYTES >> 20} MiB, and {share} % of it is dead"
        why = f"lie in the newest segment ({active.bytes:,} bytes), rewritten once {rule}"
        waits.append((newest[-1], why))
    return Outlook(
        kept_events=rows,
        collected_events=max(0, collected),
        dead_events=dead + sum(newest) + unburied,
        soon_events=soon,
        waits=[Waits(events, why) for events, why in waits if events > 0],
        predicates=len(collector.hunts),
        removed_events=totals.removed_events,
        dropped_events=totals.dropped_events,
        rewritten_bytes=totals.rewritten_bytes,
        freed_bytes=totals.freed_bytes,
        idle_s=None if totals.last_s is None else round(time.monotonic() - totals.last_s, 1),
    )

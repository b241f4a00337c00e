"""Garbage-collection events and tombstones as rows of a batch (Sprinkler, sections 2.1 and 3.1).

A GC event is a row of kind `GC` whose attribute `@gc` holds its predicate in the filter language; its key,
time, payload and other attributes are the application's. A tombstone is a row of kind `TOMBSTONE` that stands
for the `range` sequence numbers up to its own; it has neither key, payload nor attributes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.events.attributes import Value
from qanat.events.batch import Batch, Kind, from_draft
from qanat.events.encode import Array, strings
from qanat.events.errors import MalformedBatch

GC_ATTRIBUTE = "@gc"
"""The attribute of a GC event that holds its predicate."""


def gc_event(
    stream: int,
    predicate: object,
    *,
    payload: bytes = b"",
    key: bytes = b"",
    time_us: int = 0,
    attributes: Mapping[str, Value] | None = None,
    **columns: Any,
) -> Batch:
    """A batch of one GC event; `predicate` is a filter or its text, `columns` go to `Batch.build` (a source,
    say)."""
    return Batch.build(
        stream,
        [payload],
        keys=[key] if key else None,
        time_us=time_us,
        kinds=[Kind.GC],
        attributes=[{**(attributes or {}), GC_ATTRIBUTE: str(predicate)}],
        **columns,
    )


def predicates(batch: Batch) -> pa.Array | None:
    """The predicate's text of each row, null where there is none; None if no row has one."""
    arrays = batch.attributes().get(GC_ATTRIBUTE, [])
    texts = [a for a in arrays if pa.types.is_dictionary(a.type) or pa.types.is_string(a.type)]
    if not texts:
        return None
    return texts[0].dictionary_decode() if pa.types.is_dictionary(texts[0].type) else texts[0]


def tombstone(stream: int, first: int, last: int, time_us: int = 0) -> Batch:
    """A batch of one tombstone for first..last."""
    if not 1 <= first <= last:
        raise MalformedBatch(f"a tombstone stands for at least one event, not for {first}..{last}")
    span = last - first + 1
    return Batch.build(
        stream,
        [b""],
        first=first,
        time_us=time_us,
        kinds=[Kind.TOMBSTONE],
        seqs=np.array([last], np.uint64),
        ranges=[span],
        span=span,
    )


def bury(
    batch: Batch, dead: Array, start: int, *, since_us: int | None = None, open_end: bool = False
) -> Batch | None:
    """The batch with each run of dead rows (and tombstones already there) as one tombstone.

    `dead` is a flag per row. The first tombstone reaches back to `start`, which is the batch's first number
    or, when the batch before it ended inside a run of dead rows, where that run began (`since_us`: its newest
    time). A tombstone's time is the newest of the events that it stands for, so looking for a time never
    passes over one. With `open_end` the last run is left out, because it goes on in the next batch: the
    result then ends before it. None if nothing is left. Returns the batch itself if nothing changes.
    """
    kinds = batch.kinds
    if kinds is not None:
        dead = dead | (kinds == Kind.TOMBSTONE)
    if not dead.any():
        return batch
    ends = dead.copy()
    ends[:-1] &= ~dead[1:]  # the last row of each run
    if open_end and dead[-1]:
        ends[-1] = False
    rows = np.flatnonzero(~dead | ends)
    if not len(rows):
        return None
    seqs, graves = batch.seqs()[rows], ends[rows]
    # A tombstone reaches back to the row kept before it.
    before = np.concatenate(([np.uint64(start - 1)], seqs[:-1]))
    ranges = np.where(graves, seqs - before, np.uint64(1))
    times = _newest_of_runs(batch.times(), dead, since_us)[rows]
    picks = pa.array(rows, mask=graves)  # a null row has no key, no payload, no attributes
    draft = batch.draft()

    def taken(column: Array | None) -> Array | None:
        return None if column is None else column[rows]

    keys, positions = batch.keys(), batch.positions()
    span = int(seqs[-1]) - start + 1
    new_kinds = np.zeros(len(rows), np.uint8) if kinds is None else kinds[rows].copy()
    new_kinds[graves] = Kind.TOMBSTONE
    return from_draft(
        draft._replace(
            payloads=strings(batch.payloads().take(picks), "payloads"),
            first=start,
            span=span,
            times=None if draft.times is None and (times == batch.time_us).all() else times,
            kinds=new_kinds if new_kinds.any() else None,
            seqs=None if span == len(rows) else seqs,
            ranges=None if span == len(rows) else ranges,
            keys=None if keys is None else strings(keys.take(picks), "keys"),
            attributes={k: [a.take(picks) for a in v] for k, v in (draft.attributes or {}).items()},
            source_codes=taken(draft.source_codes),
            position=None,
            positions=None if positions is None else (positions[0][rows], positions[1][rows]),
        )
    )


def _newest_of_runs(times: Array, dead: Array, since_us: int | None) -> Array:
    """Each row's time; for the dead the newest of their run, which may have begun before the batch."""
    times = times.copy()
    if since_us is not None and dead[0]:
        times[0] = max(int(times[0]), since_us)
    starts = np.flatnonzero(dead & ~np.concatenate(([False], dead[:-1])))
    lengths = np.flatnonzero(dead & ~np.concatenate((dead[1:], [False]))) - starts + 1
    bounds = np.stack((starts, starts + lengths), axis=1).reshape(-1)
    newest = np.maximum.reduceat(np.append(times, times[-1]), bounds)[::2]
    times[dead] = np.repeat(newest, lengths)
    return times


def newest_at_end(batch: Batch, dead: Array, since_us: int | None) -> int | None:
    """The newest time of the run of dead rows at a batch's end; None if its last row lives."""
    if not dead[-1]:
        return None
    alive = np.flatnonzero(~dead)
    newest = int(batch.times()[alive[-1] + 1 if len(alive) else 0 :].max())
    return newest if len(alive) or since_us is None else max(newest, since_us)


def from_sequence(batch: Batch, start: int) -> Batch:
    """The part of a batch from `start` on, as a view where it can be; a tombstone that begins before it is
    shortened."""
    if start <= batch.first:
        return batch
    row = int(np.searchsorted(batch.seqs(), np.uint64(start)))
    part = batch.slice(row, batch.count)
    ranges = part.ranges
    if ranges is None or not part.count or int(ranges[0]) == 1:
        return part
    shortened = ranges.copy()
    shortened[0] = min(int(ranges[0]), int(part.seqs()[0]) - start + 1)
    return from_draft(
        part.draft()._replace(first=start, span=part.last - start + 1, seqs=part.seqs(), ranges=shortened)
    )


def to_sequence(batch: Batch, last: int) -> Batch | None:
    """The part of a batch up to `last`, as a view where it can be; a tombstone that reaches over it is
    shortened. None if nothing is left."""
    if batch.last <= last:
        return batch
    seqs, ranges = batch.seqs(), batch.ranges
    starts = seqs if ranges is None else seqs - ranges + 1
    rows = int(np.searchsorted(starts, np.uint64(last), side="right"))
    if not rows:
        return None
    part = batch.slice(0, rows)
    if int(seqs[rows - 1]) <= last or part.ranges is None:
        return part
    shortened, ends = part.ranges.copy(), part.seqs().copy()
    shortened[-1] -= ends[-1] - np.uint64(last)
    ends[-1] = last
    return from_draft(part.draft()._replace(span=last - part.first + 1, seqs=ends, ranges=shortened))

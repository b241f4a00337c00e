"""The workload of S14 cut into spans that any number of processes work on at once.

Chunks are drawn from their numbers, so what a span draws depends on nobody. What its ranks mean does: new
keys of earlier spans stand in the line. So a span begins with a line of its own, in which everybody who was
there before is called by the rank where he stood at that moment. These ranks, each once, then walk back
through the lines of the earlier spans, the latest first: each either finds its key there, or moves up by
those new keys that stood before it. A line is two sorted columns of the span's new keys, and the walk through
it one bulk search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from qanat.studies.s14.curves import cut
from qanat.studies.s14.popularity import RANK_LIMIT, Ints, Popularity
from qanat.studies.s14.storage import CountedStorage
from qanat.studies.s14.workload import Chunk, Floats, Model, Ranks, Start, events

SPAN_CHUNKS = 32
"""Chunks of a span: at 2^20 arrivals each some 10 s of work, and a few hundred MB at work for distinct
keys."""
_SURE = 12
"""Standard deviations by which more chunks are looked at than are needed on average."""


_NARROW = 2**31 - 1


class Workload(NamedTuple):
    """A stream: which model, drawn from which seed, in chunks of which size."""

    model: Model
    seed: int
    chunk: int


class Total(NamedTuple):
    """What a chunk adds: new keys, and ticks."""

    new: int
    ticks: float


class Span(NamedTuple):
    """A run of chunks, and how many events came before it."""

    start: Start
    chunks: int
    events: int


class Line(NamedTuple):
    """New keys of a span as they stand at its end: ranks, rising, and which of the span's insertions each
    was."""

    first: int
    """New keys before the span."""
    ranks: Ints
    keys: Ints
    born: Floats
    """When each came, by its number within the span; empty if nobody asked."""
    last_tick: float


# --- cutting --------------------------------------------------------------------------------------------


def chunks_for(work: Workload, arrivals: float) -> int:
    """Chunks that surely have so many arrivals; a Poisson process is as long as it likes."""
    return int(np.ceil((arrivals + _SURE * np.sqrt(arrivals)) / work.chunk)) + 1


def arrivals_for(model: Model, events_wanted: int) -> float:
    share = 1.0 if model.announced else model.rate / (model.rate + model.new_rate)
    return events_wanted / share


def total(work: Workload, number: int, *, timed: bool) -> Total:
    drawn = Chunk(work.model, work.seed, number, work.chunk)
    return Total(int(drawn.new.sum()), float(drawn.ticks()[-1]) if timed else 0.0)


def spans(
    work: Workload,
    totals: Sequence[Total],
    *,
    upto: int = 0,
    ticks: float | None = None,
    chunks: int = SPAN_CHUNKS,
) -> list[Span]:
    """Spans that reach `upto` events, and beyond so many `ticks`."""
    new = np.array([0, *(one.new for one in totals)], np.int64).cumsum()
    tick = np.array([0.0, *(one.ticks for one in totals)]).cumsum()
    number = np.arange(len(new))
    before = number * work.chunk - (0 if work.model.announced else new)
    needed = int(np.searchsorted(before, upto))
    if ticks is not None:
        needed = max(needed, int(np.searchsorted(tick, ticks, side="right")))
    if needed == len(new):
        raise ValueError(
            f"{len(totals)} chunks end at {before[-1]} events and {tick[-1]:.0f} ticks, too early"
        )
    return [
        Span(Start(at, int(new[at]), float(tick[at])), min(chunks, needed - at), int(before[at]))
        for at in range(0, needed, chunks)
    ]


# --- names ----------------------------------------------------------------------------------------------


def line_of(work: Workload, span: Span, *, timed: bool) -> Line:
    """Where the new keys of a span stand at its end; invalidations are not drawn for it."""
    ranks, line = Ranks(work.model.skew), Popularity()
    nobody = np.zeros(0, np.int64)
    born, tick = [np.zeros(0)], span.start.tick
    for number in range(span.start.number, span.start.number + span.chunks):
        drawn = Chunk(work.model, work.seed, number, work.chunk)
        at = drawn.inserted_at(ranks, span.start.inserted + line.inserted)
        line.step(np.minimum(at, RANK_LIMIT).astype(np.int64), nobody, nobody)
        if timed:
            ticks = tick + drawn.ticks()
            born.append(ticks[drawn.new])
            tick = float(ticks[-1])
    stand = line.new_keys()
    return Line(
        span.start.inserted,
        _narrow(stand.ranks),
        (-1 - stand.keys).astype(np.int32),
        np.concatenate(born),
        tick,
    )


def _narrow(ranks: Ints) -> Ints:
    """Half the bytes where they are enough, for lines travel."""
    return ranks.astype(np.int32) if not len(ranks) or ranks[-1] < _NARROW else ranks


def walk_back(ranks: Ints, lines: Iterable[Line]) -> Iterator[tuple[Line | None, Ints, Ints]]:
    """Finds who stood at these ranks (rising) at a span's start, given the lines of earlier spans, the latest
    first.

    Yields (a line, which of the ranks were found in it, which of its span's insertions each is), and at last
    (None, which were found in none, where these stood before the first of the lines).
    """
    left, rank = np.arange(len(ranks)), ranks
    for line in lines:
        if not len(line.ranks) or not len(left):
            continue
        asked = rank if line.ranks.dtype == rank.dtype else np.minimum(rank, _NARROW).astype(np.int32)
        found = np.searchsorted(line.ranks, asked)
        at = np.minimum(found, len(line.ranks) - 1)
        hit = line.ranks[at] == rank
        yield line, left[hit], line.keys[at[hit]].astype(np.int64)
        left, rank = left[~hit], (rank - found)[~hit]
    yield None, left, rank


def named(keys: Ints, span: Span, lines: Iterable[Line]) -> Ints:
    """Keys (rising) as the span calls them, by the names they have in the whole stream."""
    first_old, first_far = np.searchsorted(keys, (0, RANK_LIMIT))
    names = keys.copy()
    names[:first_old] -= span.start.inserted
    old = names[first_old:first_far]
    for line, which, value in walk_back(keys[first_old:first_far], lines):
        old[which] = value if line is None else -1 - line.first - value
    return names


# --- measuring ------------------------------------------------------------------------------------------


def distinct(work: Workload, span: Span, at: Ints, lines: Sequence[Line]) -> Iterator[tuple[int, Ints]]:
    """(point, keys): the keys that the span saw since the point before, each once, however often before
    that."""
    runs = islice(events(work.model, work.seed, chunk=work.chunk, start=span.start, timed=False), span.chunks)
    counted, point = CountedStorage(), 0
    for done, keys, is_point in cut(runs, at, span.events):
        counted.add(keys)
        point = int(np.searchsorted(at, done))
        if is_point:
            yield point, named(counted.keys(), span, reversed(lines))
            counted = CountedStorage()
    if counted.kept():
        yield point, named(counted.keys(), span, reversed(lines))


def ages(work: Workload, span: Span, *, ticks: int, age_max: int, lines: Sequence[Line]) -> Ints:
    """Invalidations of the span by age of their keys; the last count is of older ones, and not complete."""
    by_age = np.zeros(age_max + 2, np.int64)
    near = [line for line in reversed(lines) if line.last_tick >= span.start.tick - age_max - 1]

    def add(age: Floats) -> None:
        nonlocal by_age
        whole = np.clip(np.ceil(age), 1, age_max + 1).astype(np.int64)
        by_age += np.bincount(whole, minlength=age_max + 2)

    for run in islice(events(work.model, work.seed, chunk=work.chunk, start=span.start), span.chunks):
        within = run.ticks <= ticks
        fresh = within & np.isfinite(run.born)
        add(run.ticks[fresh] - run.born[fresh])
        old = np.flatnonzero(within & (run.keys > 0) & (run.keys < RANK_LIMIT))
        old = old[np.argsort(run.keys[old])]
        for line, which, key in walk_back(run.keys[old], near):
            if line is not None:
                add(run.ticks[old[which]] - line.born[key])
    return by_age

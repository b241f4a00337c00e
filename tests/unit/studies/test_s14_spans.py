"""The workload of section 5.4 cut into spans: whoever works on them, and however they are cut, the stream is
the same."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from qanat.studies.s14.curves import age_curve, ages_of, points, storage_curve
from qanat.studies.s14.popularity import RANK_LIMIT
from qanat.studies.s14.spans import (
    Line,
    Span,
    Workload,
    ages,
    arrivals_for,
    chunks_for,
    distinct,
    line_of,
    named,
    spans,
    total,
    walk_back,
)
from qanat.studies.s14.workload import Model, Start, events

pytestmark = [pytest.mark.paper("S14"), pytest.mark.paper("D8")]

CHUNK, UPTO = 3_000, 40_000
MODELS = [
    Model(skew=1.1, new_rate=10),
    Model(skew=1.5, keys=1_000),
    Model(skew=1.1, keys=1_000, new_rate=20),
    Model(skew=1.2, keys=1_000, new_rate=20, announced=True),
    Model(skew=1.1, new_rate=100, rank_max=2**31 - 1),
]
LENGTHS = [1, 4, 100]


def quiet(_line: str) -> None: ...


def cut_into(work: Workload, chunks: int, *, upto: int = 0, ticks: int | None = None) -> list[Span]:
    arrivals = (
        arrivals_for(work.model, upto) if ticks is None else ticks * (work.model.rate + work.model.new_rate)
    )
    totals = [total(work, number, timed=ticks is not None) for number in range(chunks_for(work, arrivals))]
    return spans(work, totals, upto=upto, ticks=ticks, chunks=chunks)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("chunks", LENGTHS)
def test_every_key_has_the_name_that_it_has_in_the_whole_stream(model: Model, chunks: int) -> None:
    work = Workload(model, 1, CHUNK)
    parts = cut_into(work, chunks, upto=UPTO)
    lines = [line_of(work, part, timed=False) for part in parts]
    whole = iter(events(model, 1, chunk=CHUNK))
    for index, part in enumerate(parts):
        mine = islice(events(model, 1, chunk=CHUNK, start=part.start), part.chunks)
        for expected, run in zip(islice(whole, part.chunks), mine, strict=True):
            order = np.argsort(run.keys, kind="stable")
            assert np.array_equal(named(run.keys[order], part, lines[:index][::-1]), expected.keys[order])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("chunks", LENGTHS)
def test_keys_first_seen_before_each_point_are_what_one_process_counts(model: Model, chunks: int) -> None:
    work, at = Workload(model, 1, CHUNK), points(UPTO)
    parts = cut_into(work, chunks, upto=UPTO)
    lines = [line_of(work, part, timed=False) for part in parts]
    first: dict[int, int] = {}
    for index, part in enumerate(parts):
        for point, keys in distinct(work, part, at, lines[:index]):
            assert (np.diff(np.sort(keys)) > 0).all()
            for key in keys.tolist():
                first[key] = min(point, first.get(key, point))
    stored = np.bincount(list(first.values()), minlength=len(at)).cumsum()
    local = storage_curve(model, 1, upto=UPTO, log_upto=0, say=quiet, chunk=CHUNK)
    assert stored.tolist() == local.stored.tolist()


@pytest.mark.parametrize("chunks", LENGTHS)
def test_ages_over_spans_are_what_one_process_counts(chunks: int) -> None:
    model, ticks, age_max = MODELS[0], 200, 20
    work = Workload(model, 3, CHUNK)
    parts = cut_into(work, chunks, ticks=ticks)
    lines = [line_of(work, part, timed=True) for part in parts]
    counts = [
        ages(work, part, ticks=ticks, age_max=age_max, lines=lines[:index])
        for index, part in enumerate(parts)
    ]
    found = ages_of(model, np.sum(counts, axis=0), age_max)
    local = age_curve(model, 3, ticks=ticks, age_max=age_max, chunk=CHUNK)
    assert np.array_equal(found.age, local.age)
    assert np.array_equal(found.invalidations, local.invalidations)


def test_spans_cover_the_stream_without_gap() -> None:
    work = Workload(MODELS[0], 1, CHUNK)
    parts = cut_into(work, 4, upto=UPTO)
    assert parts[0].start == Start()
    numbers = [
        number for part in parts for number in range(part.start.number, part.start.number + part.chunks)
    ]
    assert numbers == list(range(len(numbers)))
    runs = list(islice(events(work.model, 1, chunk=CHUNK), len(numbers)))
    assert sum(len(run.keys) for run in runs) >= UPTO > sum(len(run.keys) for run in runs[:-1])
    assert [part.events for part in parts] == [
        sum(len(run.keys) for run in runs[: part.start.number]) for part in parts
    ]


def test_too_few_chunks_are_refused() -> None:
    work = Workload(MODELS[0], 1, CHUNK)
    with pytest.raises(ValueError, match="too early"):
        spans(work, [total(work, 0, timed=True)], upto=CHUNK)


def test_a_narrow_line_is_searched_with_wide_ranks() -> None:
    """A line of ranks below 2^31 has half the bytes; a rank above it must not be folded into them."""
    line = Line(0, np.array([1, 5], np.int32), np.array([1, 0], np.int32), np.zeros(0), 0.0)
    ranks = np.array([1, 5, 6, 2**31 - 1, 2**31, 2**32 + 1, 2**32 + 5, RANK_LIMIT - 1])
    ((found, which, keys), (_, left, stood)) = walk_back(ranks, [line])
    assert found is line
    assert (which.tolist(), keys.tolist()) == ([0, 1], [1, 0])
    assert (ranks[left] - stood).tolist() == [2] * 6

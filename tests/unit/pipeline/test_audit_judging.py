"""The audit's judgement beside a plain one, row by row; and every kind of violation planted, of which exactly
that is found."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.client.record_format import Entry, Heading
from qanat.client.record_reader import Runs
from qanat.pipeline.archive.manifest import Range
from qanat.pipeline.audit import latency
from qanat.pipeline.audit.blocks import DATA, GC, SIZE, TOMBSTONE
from qanat.pipeline.audit.deliveries import SIDE, Place, _blocks
from qanat.pipeline.audit.judge import VIOLATIONS, Scope
from qanat.pipeline.audit.judging import Audited, Stream, judging
from qanat.pipeline.audit.published import _rows

FIRST = 3 * SIZE - 12
"""So that a history of some dozen numbers lies across the border of two blocks."""
LONG = 40


class Delivery(NamedTuple):
    """One entry of a record."""

    kind: int
    first: int
    last: int


class History(NamedTuple):
    """What the archive has: by number its kind, and whether it passes the filter."""

    kinds: dict[int, int]
    passes: dict[int, bool]
    complete: Range


def heading(part: int = 0) -> Heading:
    return Heading(subscriber="s", stream="orders", first=FIRST, began_us=1, run="r", part=part)


def sides_of(history: History, runs: list[list[Delivery]]) -> list[Any]:
    """Both sides as Spark would hand them to judging: sorted by block, side and run."""
    seqs = sorted(history.kinds)
    rows = pa.record_batch(
        {
            "seq": pa.array(seqs, pa.int64()),
            "kind": pa.array([history.kinds[seq] for seq in seqs], pa.int8()),
            "time_us": pa.array([seq * 1000 for seq in seqs], pa.int64()),
            "span": pa.array([1] * len(seqs), pa.int64()),
            "f0": pa.array([history.passes[seq] for seq in seqs]),
        }
    )
    sides = _rows(rows, 0, 0) if seqs else []
    sides += [(0, block, 0, -1, -1, 0, b"") for block in range(FIRST >> 16, (FIRST + LONG) // SIZE + 1)]
    for number, run in enumerate(runs):
        columns = (
            [np.array([row[i] for row in run], np.int64) for i in range(3)] if run else [np.zeros(0)] * 3
        )
        kind, first, last = (column.astype(np.int64) for column in columns)
        times = (last + 2) * 1000
        place = Place(number, 0, (FIRST - 1,))
        for batch in _blocks(heading(), Runs(times, kind, first, last), place):
            sides += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return sorted(sides)


def judged(
    history: History, runs: list[list[Delivery]], scope: Scope
) -> tuple[Counter[Any], dict[str, int], Any]:
    """(violations: kind, run, number → how often listed), sums, latencies."""
    audited = tuple(Audited(number, 0, "eu", scope) for number in range(len(runs)))
    stream = Stream(1, (history.complete,), audited)
    sides = sides_of(history, runs)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, field.type) for c, field in zip(zip(*sides, strict=True), SIDE, strict=True)],
        schema=SIDE,
    )
    found: Counter[Any] = Counter()
    sums: Counter[str] = Counter()
    late = 0
    for out in judging([stream], 10_000)(iter([batch])):
        for row in out.to_pylist():
            if row["what"] == "found":
                found.update((row["name"], row["run"], seq) for seq in range(row["first"], row["last"] + 1))
            elif row["what"] == "total":
                sums[row["name"]] += row["amount"]
            elif row["what"] == "latency":
                late += row["amount"]
    return found, sums, late


def plainly(history: History, runs: list[list[Delivery]], scope: Scope) -> tuple[set[Any], Counter[str]]:
    """The same, one number at a time."""
    found: set[Any] = set()
    sums: Counter[str] = Counter()
    ever: set[int] = set()
    for number, run in enumerate(runs):
        got: Counter[int] = Counter()
        high, told, mine = FIRST - 1, set(), set()
        for kind, first, last in run:
            for seq in range(first, last + 1):
                if kind == Entry.LOST:
                    told.add(seq)
                    continue
                known = history.complete.first <= seq <= history.complete.last
                have = history.kinds.get(seq, 0)
                got[seq] += 1
                if got[seq] > 1:
                    found.add(("duplicate", number, seq))
                    sums["duplicate"] += 1
                elif seq <= high:
                    found.add(("out_of_order", number, seq))
                if kind != Entry.TOMBSTONE and known:
                    right = DATA if kind == Entry.DATA else GC
                    if have not in (right, TOMBSTONE):
                        found.add(("not_in_archive", number, seq))
                    elif have == DATA and scope.filter >= 0 and not history.passes[seq]:
                        found.add(("filtered_delivered", number, seq))
                mine.add(seq)
            if kind != Entry.LOST:
                high = max(high, last)
        for seq in range(
            max(scope.first, history.complete.first), min(scope.last, history.complete.last) + 1
        ):
            have = history.kinds.get(seq, 0)
            wanted = have == GC or (have == DATA and (scope.filter < 0 or history.passes[seq]))
            if (wanted or (have == TOMBSTONE and scope.filter < 0)) and seq not in mine:
                name = "lost" if seq in told else "gap" if scope.filter < 0 else "not_delivered"
                found.add((name, number, seq))
        sums["repeated"] += len(mine & ever)
        ever |= mine
    return found, sums


@st.composite
def histories(draw: Any) -> History:
    kinds = draw(st.lists(st.sampled_from([DATA] * 6 + [GC, TOMBSTONE, 0]), min_size=1, max_size=LONG))
    passes = draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    begin = draw(st.integers(0, 3))
    numbered = {FIRST + i: kind for i, kind in enumerate(kinds) if kind}
    flags = {FIRST + i: passes[i] and kind == DATA for i, kind in enumerate(kinds)}
    return History(numbered, flags, Range(FIRST + begin, FIRST + draw(st.integers(begin, LONG))))


@st.composite
def records(draw: Any) -> list[Delivery]:
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        first = FIRST + draw(st.integers(-2, LONG - 1))
        kind = draw(st.sampled_from([Entry.DATA] * 4 + [Entry.GC, Entry.TOMBSTONE, Entry.LOST]))
        rows.append(Delivery(int(kind), first, first + draw(st.sampled_from([0, 0, 1, 5, 20]))))
    return rows


@given(histories(), st.lists(records(), min_size=1, max_size=3), st.booleans(), st.integers(0, LONG))
def test_any_record_of_any_history_is_judged_as_plainly(
    history: History, runs: list[list[Delivery]], filtered: bool, reach: int
) -> None:
    scope = Scope(FIRST, FIRST + reach, 0 if filtered else -1)
    found, sums, _ = judged(history, runs, scope)
    expected, totals = plainly(history, runs, scope)
    assert set(found) == expected
    assert all(count == 1 for count in found.values())
    assert sums["repeated"] == totals["repeated"]
    assert sums["duplicate"] == totals["duplicate"]
    for name in set(VIOLATIONS) - {"duplicate"}:
        assert sums[name] == sum(1 for kind, _, _ in expected if kind == name)


def faultless(history: History, filtered: bool) -> list[Delivery]:
    """What a subscriber of this history is to be given."""
    rows = []
    for seq in range(FIRST, FIRST + LONG):
        kind = history.kinds[seq]
        if kind != DATA or not filtered or history.passes[seq]:
            rows.append(
                Delivery({DATA: Entry.DATA, GC: Entry.GC, TOMBSTONE: Entry.TOMBSTONE}[kind], seq, seq)
            )
    return rows


def full_history() -> History:
    """Every kind of row, on both sides of the border, some of which pass."""
    kinds = {FIRST + i: GC if i % 7 == 3 else TOMBSTONE if i % 11 == 5 else DATA for i in range(LONG)}
    passes = {FIRST + i: i % 3 == 0 and kinds[FIRST + i] == DATA for i in range(LONG)}
    return History(kinds, passes, Range(FIRST, FIRST + LONG - 1))


def test_a_faultless_record_is_found_so() -> None:
    history = full_history()
    for filtered in (False, True):
        run = faultless(history, filtered)
        scope = Scope(FIRST, FIRST + LONG - 1, 0 if filtered else -1)
        found, sums, late = judged(history, [run, run], scope)
        assert not found
        events = sum(1 for row in run if row.kind != Entry.TOMBSTONE)
        assert sums["delivered"] == 2 * events
        assert sums["repeated"] == len(run)
        assert late == 2 * events


@pytest.mark.paper("D7")
@pytest.mark.parametrize("at", [0, 5, 11, 12, 13, 30, LONG - 1])
@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_planted_violation_is_found_and_nothing_else(violation: str, at: int) -> None:
    """Before, at and behind the border of two blocks."""
    history = full_history()
    filtered = violation in ("not_delivered", "filtered_delivered")
    data = [
        seq
        for seq in range(FIRST + at, FIRST + LONG)
        if history.kinds[seq] == DATA and (not filtered or history.passes[seq])
    ]
    seq = data[0] if data else FIRST
    run = faultless(history, filtered)
    here = next(i for i, row in enumerate(run) if row.first >= seq)
    scope = Scope(FIRST, FIRST + LONG - 1, 0 if filtered else -1)
    if violation in ("gap", "not_delivered"):
        run = [row for row in run if row.first != seq]
    elif violation == "lost":
        run[here] = Delivery(Entry.LOST, seq, seq)
    elif violation == "duplicate":
        run.insert(here + 1, run[here])
    elif violation == "out_of_order":
        moved = run.pop(here)
        run.insert(here + 1 if here < len(run) else here - 1, moved)
        seq = next(b.first for a, b in pairwise(run) if b.first < a.first)
    elif violation == "not_in_archive":
        del history.kinds[seq]
    else:
        seq = next(
            s
            for s in [*range(FIRST + at, FIRST + LONG), FIRST + 1]
            if history.kinds[s] == DATA and not history.passes[s]
        )
        run = sorted([*run, Delivery(Entry.DATA, seq, seq)], key=lambda row: row.first)
    found, sums, _ = judged(history, [run], scope)
    assert set(found) == {(violation, 0, seq)}
    assert sums[violation] == 1


def test_latencies_are_within_a_hundredth() -> None:
    taken = np.random.default_rng(1).lognormal(8, 2, 100_000).astype(np.int64) + 1
    counts = latency.histogram(taken[:40_000]) + latency.histogram(taken[40_000:])
    for share in (0.5, 0.9, 0.99, 0.999):
        exact = float(np.quantile(taken, share))
        assert abs(latency.percentile(counts, share) - exact) <= 0.011 * exact + 1
    assert list(latency.summary(counts)) == ["p50", "p90", "p99", "p99_9"]
    assert latency.percentile(latency.histogram(np.array([-5, 0])), 0.5) == 0
    assert latency.percentile(np.zeros(latency.BUCKETS, np.int64), 0.5) == 0

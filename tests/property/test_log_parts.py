"""The parts of garbage collection, each against a naive model: key index, graves, tombstones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.events.batch import Batch, Kind, stream_id
from qanat.events.tombstones import bury, tombstone
from qanat.log.checker import Event, Grave, check_merged, rows_of
from qanat.log.graves import Graves
from qanat.log.key_index import KeyIndex

STREAM = stream_id("parts")
KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"dd"])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.lists(st.tuples(KEYS, st.booleans(), st.booleans()), min_size=1, max_size=12), max_size=12),
    st.booleans(),
)
def test_the_key_index_collects_what_a_list_of_live_events_would(
    batches: list[list[tuple[bytes, bool, bool]]], policy: bool
) -> None:
    index = KeyIndex(1000, hunts=not policy)
    live: list[tuple[int, bytes, bool]] = []  # number, key, immune
    seq = 1
    for rows in batches:
        keys = [row[0] for row in rows]
        collects = [True if policy else row[1] for row in rows]
        immune = [row[2] and not (row[1] and not policy) for row in rows]
        seqs = np.arange(seq, seq + len(rows), dtype=np.uint64)
        plain = policy and not any(immune)
        replaced = index.replace(
            pa.array(keys, pa.binary()),
            seqs,
            None if policy else np.array(collects),
            None if plain else np.array(immune),
        )
        dead = set(replaced.dead.tolist())
        assert len(dead) == len(replaced.dead)
        hunted = {key: seq + row for key, row in replaced.to_hunt}
        expected: set[int] = set()
        for i, key in enumerate(keys):
            if key and collects[i]:
                gone = {n for n, other, safe in live if other == key and not safe}
                expected |= gone
                live = [event for event in live if event[0] not in gone]
            live.append((seq + i, key, immune[i]))
        found = dead | {n for n in expected if any(n < limit for limit in hunted.values())}
        assert dead <= expected == found & expected
        if policy:
            assert dead == expected and not hunted
        seq += len(rows)


@settings(max_examples=examples(100), deadline=None)
@given(
    first=st.integers(1, 1 << 40),
    spans=st.lists(
        st.tuples(st.integers(1, 60), st.sets(st.integers(0, 59)), st.booleans()), min_size=1, max_size=6
    ),
)
def test_graves_hold_what_was_put_in(first: int, spans: list[tuple[int, set[int], bool]]) -> None:
    graves = Graves()
    expected: set[int] = set()
    last = first - 1
    sparse = False
    for grown, dead, thins in spans:
        last += grown
        sparse |= thins
        numbers = {first + at for at in dead if first + at <= last}
        rows = last - first + 1 - (1 if sparse else 0)
        graves.add(np.array(sorted(numbers, reverse=True), np.uint64), first, last, rows)
        expected |= numbers
        everything = np.arange(first, last + 1, dtype=np.uint64)
        assert set(everything[graves.among(everything)].tolist()) == expected
        assert graves.seqs().tolist() == sorted(expected)


ROWS = st.lists(
    st.tuples(st.sampled_from(["live", "dead", "grave"]), st.integers(0, 99), st.integers(1, 4)), min_size=1
)


@settings(max_examples=examples(200), deadline=None)
@given(rows=ROWS, reach=st.integers(0, 3), open_end=st.booleans(), timed=st.booleans(), sourced=st.booleans())
def test_burying_covers_the_same_numbers_with_one_tombstone_for_each_run(
    rows: list[tuple[str, int, int]], reach: int, open_end: bool, timed: bool, sourced: bool
) -> None:
    first = 10
    seqs, ranges, at = [], [], first
    for what, _, width in rows:
        width = width if what == "grave" else 1
        at += width
        seqs.append(at - 1)
        ranges.append(width)
    columns: dict[str, Any] = {"times": [row[1] for row in rows]} if timed else {"time_us": 50}
    if sourced:
        columns |= {"source": "s", "positions": (np.arange(len(rows)), np.zeros(len(rows)))}
    batch = Batch.build(
        STREAM,
        [b"" if row[0] == "grave" else b"p%d" % i for i, row in enumerate(rows)],
        keys=[b"" if row[0] == "grave" else b"k%d" % i for i, row in enumerate(rows)],
        attributes=[{} if row[0] == "grave" else {"n": i} for i, row in enumerate(rows)],
        kinds=[Kind.TOMBSTONE if row[0] == "grave" else Kind.DATA for row in rows],
        first=first,
        seqs=seqs,
        ranges=ranges if max(ranges) > 1 else None,
        **columns,
    )
    gone = np.array([row[0] != "live" for row in rows])
    reach = reach if gone[0] else 0
    before = rows_of([batch])
    left = bury(batch, gone, first - reach, since_us=70 if reach else None, open_end=open_end)
    after = [] if left is None else rows_of([left])
    kept = [row for row in before if isinstance(row, Event) and not gone[seqs.index(row.seq)]]
    assert [row for row in after if isinstance(row, Event)] == kept
    if gone.any():
        check_merged(after)
    expected, end = first - reach, at - 1
    if open_end and gone[-1]:
        end = kept[-1].seq if kept else first - reach - 1
    for row in after:
        begin, expected_end = (row.first, row.last) if isinstance(row, Grave) else (row.seq, row.seq)
        assert begin == expected
        expected = expected_end + 1
    assert expected == end + 1
    if left is not None and left is not batch:
        assert Batch.decode(bytes(left.encode())).count == left.count  # well-formed in every respect
        times = dict(zip(left.seqs().tolist(), left.times().tolist(), strict=True))
        for row in after:
            if isinstance(row, Grave):
                inside = [batch.times()[i] for i, seq in enumerate(seqs) if row.first <= seq <= row.last]
                assert times[row.last] == max([*inside, *([70] if row.first < first else [])])


def test_a_tombstone_of_very_many_numbers() -> None:
    batch = tombstone(STREAM, 5, (1 << 40) + 4)
    assert (batch.first, batch.last, batch.count) == (5, (1 << 40) + 4, 1)
    assert rows_of([Batch.decode(bytes(batch.encode()))]) == [Grave(5, (1 << 40) + 4)]

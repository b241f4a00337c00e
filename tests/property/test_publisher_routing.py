"""Which updates of a read are whose, compared with a loop over rows."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from qanat.events.batch import Batch
from qanat.events.filters import evaluate, parse
from qanat.events.position import Position
from qanat.protocols.publisher.records import (
    Began,
    Ended,
    Marked,
    Missed,
    Moved,
    Noticed,
    Record,
    compact,
    encode,
    replay,
)
from qanat.protocols.publisher.routing import EVERY, Filters, Router, base_shard, first_after, part_of
from qanat.protocols.publisher.witness import Witness

shards = st.one_of(st.none(), st.sampled_from(["", "a", "b", "42", "#1"]))
rows = st.lists(
    st.tuples(shards, st.sampled_from(["insert", "update", "truncate", "delete_range"])),
    min_size=1,
    max_size=12,
)


def batch(found: list[tuple[str | None, str]], **columns: Any) -> Batch:
    return Batch.build(
        1,
        [b""] * len(found),
        attributes={
            "#S": [pa.array([shard for shard, _ in found], pa.string())],
            "#op": [pa.array([op for _, op in found], pa.string())],
        },
        source="log",
        **columns,
    )


@given(rows)
def test_codes_are_those_of_the_shards(found: list[tuple[str | None, str]]) -> None:
    router = Router(1)
    router.code("a")
    codes = router.codes(batch(found, position=1)).tolist()
    for (shard, op), code in zip(found, codes, strict=True):
        if shard is None and op in ("truncate", "delete_range"):
            assert code == EVERY
        else:
            assert router.names[code] == (shard or "")


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8), st.booleans())
def test_shards_that_are_numbers_are_called_as_they_are_written(numbers: list[int], encoded: bool) -> None:
    column = pa.array(numbers, pa.int64())
    built = Batch.build(
        1,
        [b""] * len(numbers),
        attributes={"#S": [column.dictionary_encode() if encoded else column]},
        position=1,
        source="log",
    )
    router = Router(1)
    assert [router.names[code] for code in router.codes(built).tolist()] == list(map(str, numbers))


positions = st.tuples(st.integers(0, 6), st.integers(0, 3)).map(lambda pair: Position(*pair))


@given(st.sets(positions, min_size=1), positions)
def test_the_first_row_after_a_position(found: set[Position], wanted: Position) -> None:
    order = sorted(found)
    built = Batch.build(
        1,
        [b""] * len(order),
        source="log",
        positions=(
            np.array([p.sequence for p in order], np.uint64),
            np.array([p.index for p in order], np.uint32),
        ),
    )
    assert first_after(built, wanted) == bisect_right(order, wanted)


@given(rows)
def test_filters_together_pass_what_each_passes_alone(found: list[tuple[str | None, str]]) -> None:
    texts = [
        "#op = insert",
        "exists #S and #op in ('update', 'truncate')",
        "not #S = a",
        "#S = 42 or #S = ''",
    ]
    filters, built = Filters(), batch(found, position=1)
    for number, text in enumerate(texts):
        filters.set(number, parse(text))
    filters.set(9, None)
    passed = filters.passed(built, [0, 1, 2, 3, 9])
    assert sorted(passed) == [0, 1, 2, 3]
    for number, text in enumerate(texts):
        assert passed[number].tolist() == evaluate(parse(text), built).tolist()
    filters.set(0, parse("#op = truncate"))
    assert filters.passed(built, [0])[0].tolist() == [op == "truncate" for _, op in found]


@given(st.text(max_size=4), st.integers(1, 9))
def test_every_shard_is_in_one_part_and_each_part_has_its_own(shard: str, parts: int) -> None:
    assert 0 <= part_of(shard, parts) < parts
    assert [part_of(base_shard(part, parts), parts) for part in range(parts)] == list(range(parts))


names = st.sampled_from(["cache", "index"])
some = st.lists(st.sampled_from("abcd"), unique=True, max_size=3).map(tuple)
ranges = st.tuples(positions, positions)
seen = st.one_of(st.none(), st.builds(Witness, positions, st.sampled_from([b"a", b"b"])))
records: st.SearchStrategy[list[Record]] = st.lists(
    st.one_of(
        st.builds(Began, names, st.integers(0, 1), positions, st.just(-1), seen),
        st.builds(Noticed, names, st.integers(0, 1), some, positions, st.one_of(st.none(), ranges), seen),
        st.builds(Missed, names, st.integers(0, 1), st.sampled_from("abcd"), ranges),
        st.builds(
            Marked,
            names,
            st.lists(st.tuples(positions, some), max_size=2).map(tuple),
            st.lists(st.tuples(st.integers(0, 1), positions), max_size=2).map(tuple),
            st.lists(seen, max_size=4).map(tuple),
        ),
        st.builds(Moved, names, positions, some),
        st.builds(Ended, names),
    ),
    max_size=12,
)


@given(records)
def test_a_shorter_journal_says_the_same(found: list[Record]) -> None:
    saved = [encode(record) for record in found]
    assert replay(compact(saved)) == {
        name: kept for name, kept in replay(saved).items() if kept.floors or kept.flows or kept.lost
    }
    assert len(compact(saved)) <= 2 * 2 + 4 * 2

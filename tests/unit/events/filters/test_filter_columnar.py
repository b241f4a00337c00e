"""What values equal what, row by row of the table in docs/filters.md; and the predicates of garbage
collection."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.events.batch import Batch, Kind
from qanat.events.filters import Context, ContextError, FilterIndex, collects, evaluate, parse

VALUES: list[Any] = [
    "5",
    "5.0",
    "05",
    5,
    5.0,
    b"5",
    "five",
    True,
    "true",
    float("nan"),
    2**53 + 1,
    2**64 - 1,
    b"\xff",
    None,
]


def matching(text: str) -> list[Any]:
    batch = Batch.build(
        1, [b""] * len(VALUES), first=1, attributes=[{} if v is None else {"k": v} for v in VALUES]
    )
    flags = evaluate(parse(text), batch)
    index = FilterIndex()
    index.add(1, parse(text))
    np.testing.assert_array_equal(np.diff(index.match(batch).offsets), flags)
    return [v for v, flag in zip(VALUES, flags, strict=True) if flag]


@pytest.mark.paper("W8")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k = 5", ["5", "5.0", "05", 5, 5.0, b"5"]),
        ("k = 5.0", ["5", "5.0", "05", 5, 5.0, b"5"]),
        ("k = '5'", ["5", b"5"]),
        ("k = five", ["five"]),
        ("k = true", [True, "true"]),
        ("k = 'true'", ["true"]),
        ("k = 1", []),
        ("k in (five, true)", ["five", True, "true"]),
        ("k in 5..5.5", ["5", "5.0", "05", 5, 5.0, b"5"]),
        ("k = 9007199254740993", [2**53 + 1]),
        ("k = 9007199254740992", []),
        ("k in 9007199254740993..", [2**53 + 1, 2**64 - 1]),
        ("k in 9007199254740994..", [2**64 - 1]),
        ("k in ..18446744073709551614 and k in 6..", [2**53 + 1]),
        ("k ~ '^5'", ["5", "5.0", b"5"]),
        ("k ~ 'e$'", ["five", "true"]),
        ("not exists k", [None]),
        (
            "k != 5 and k not in 6.. and exists k and not k ~ 'e'",
            [True, pytest.approx(float("nan"), nan_ok=True), b"\xff"],
        ),
    ],
)
def test_values(text: str, expected: list[Any]) -> None:
    assert matching(text) == expected


@pytest.mark.paper("W8")
def test_a_test_of_a_missing_attribute_is_false_and_its_negation_true() -> None:
    batch = Batch.build(1, [b"", b""], first=1, attributes=[{"a": 1}, {}])
    for text in ("exists k", "k = 5", "k in 1..2", "k in (a, b)", "k ~ ''"):
        assert evaluate(parse(text), batch).tolist() == [False, False]
        assert evaluate(parse(f"not {text}"), batch).tolist() == [True, True]
    assert evaluate(parse("not a = 5"), batch).tolist() == [True, True]


def test_an_event_s_own_columns() -> None:
    batch = Batch.build(
        1,
        [b"", b"xx", b"xxx"],
        first=10,
        keys=[b"", b"user-1", b"\xff\xfe"],
        times=[100, 200, 300],
        kinds=[Kind.DATA, Kind.GC, Kind.DATA],
        source="shard-7",
    )
    for text, expected in {
        "@seq = 11": [0, 1, 0],
        "upto 11": [1, 1, 0],
        "@time in 200..": [0, 1, 1],
        "@kind = gc": [0, 1, 0],
        "@size in 2..": [0, 1, 1],
        "@source ~ '^shard'": [1, 1, 1],
        "exists @key": [0, 1, 1],
        "@key ~ '^user'": [0, 1, 0],
        "@key = 'user-1'": [0, 1, 0],
        "@key ~ ''": [0, 1, 0],
    }.items():
        assert evaluate(parse(text), batch).tolist() == list(map(bool, expected)), text
    bare = Batch.build(1, [b"x"], first=1)
    assert not evaluate(parse("exists @key or exists @source"), bare).any()
    assert evaluate(parse("@kind = data"), bare).all()


def test_keys_of_one_width_and_ghosts() -> None:
    batch = Batch.build(
        1, (3, 500), first=1, keys=np.array([[97, 98], [97, 99], [97, 98]], np.uint8), ghost=True
    )
    assert evaluate(parse("@key = ab and @size = 500"), batch).tolist() == [True, False, True]
    assert evaluate(parse("same key"), batch, Context(9, b"ab")).tolist() == [True, False, True]


def test_a_few_rows_of_a_large_dictionary() -> None:
    words = pa.array([f"w{i}" for i in range(5000)])
    codes = pa.array(np.arange(10_000) % 5000)
    column = pa.DictionaryArray.from_arrays(codes, words)
    batch = Batch.build(1, np.zeros((10_000, 1), np.uint8), first=1, attributes={"k": column})
    part = batch.slice(4998, 5003)
    assert evaluate(parse("k in (w4999, w1) or k ~ '^w2$'"), part).tolist() == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_where_two_columns_hold_a_value_the_later_counts() -> None:
    columns = {"k": [pa.array(["x", "x"]), pa.array([None, 5])]}
    batch = Batch.build(1, [b"", b""], first=1, attributes=columns)
    assert [batch.attribute_row(i)["k"] for i in range(2)] == ["x", evaluate_one(batch, 1)]
    assert evaluate(parse("k = x"), batch).tolist() == [batch.attribute_row(i)["k"] == "x" for i in range(2)]


def evaluate_one(batch: Batch, row: int) -> Any:
    return 5 if evaluate(parse("k = 5"), batch)[row] else "x"


def test_no_rows() -> None:
    batch = Batch.build(1, [], first=1)
    index = FilterIndex()
    index.add(1, parse("k = 5 or all"))
    assert evaluate(parse("k = 5 or not exists k"), batch).tolist() == []
    assert index.match(batch).offsets.tolist() == [0]


# --- garbage collection -----------------------------------------------------------------------------------

STREAM = Batch.build(1, [b""] * 5, first=1, keys=[b"a", b"b", b"a", b"", b"a"], times=[10, 20, 30, 40, 50])


@pytest.mark.paper("S3")
@pytest.mark.parametrize(
    ("text", "gc", "seqs"),
    [
        ("upto 3", Context(6), [1, 2, 3]),
        ("same key", Context(6, b"a"), [1, 3, 5]),
        ("same key", Context(5, b"a"), [1, 3]),  # never itself, nor the future
        ("same key", Context(6, b""), []),  # an empty key is no key
        ("keep last 2", Context(6), [1, 2, 3, 4]),
        ("keep last 0", Context(4), [1, 2, 3]),
        ("keep last 9", Context(6), []),
        ("keep last 6", Context(6), []),
        ("older than 20us", Context(6, b"", 50), [1, 2]),
        ("older than 0us", Context(6, b"", 50), [1, 2, 3, 4]),
        ("older than 1d", Context(6, b"", 50), []),
        ("older than 18446744073709551615us", Context(6, b"", -(2**63)), []),
        ("same key and not keep last 4", Context(6, b"a"), [3, 5]),
        ("not older than 20us or same key and upto 1", Context(6, b"a", 50), [1, 3, 4, 5]),
    ],
)
def test_what_a_garbage_collection_event_collects(text: str, gc: Context, seqs: list[int]) -> None:
    assert STREAM.seqs()[collects(parse(text), STREAM, gc)].tolist() == seqs


@pytest.mark.parametrize("text", ["same key", "keep last 5", "older than 5s", "k = 1 or not same key"])
def test_a_contextual_filter_needs_its_event(text: str) -> None:
    with pytest.raises(ContextError, match="speaks of a garbage collection event"):
        evaluate(parse(text), STREAM)
    with pytest.raises(ContextError, match="cannot be a subscription"):
        FilterIndex().add(1, parse(text))

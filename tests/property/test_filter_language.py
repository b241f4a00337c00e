"""The language itself: printing is read back, any text is read or refused with a place, and nesting means
what it says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.events.batch import Batch
from qanat.events.filters import FilterError, evaluate, parse
from qanat.events.filters import model as m
from qanat.events.filters.words import BUILT_IN

unicode_text = st.text(max_size=6)  # Hypothesis draws no lone surrogates from text() that is to be encoded
names = (
    st.sampled_from(
        ["k", "#S", "a.b", "a..b", "and", "NOT", "5", "-1", "all", "Upto", "x y", 'say "hi"', "été"]
    )
    | st.sampled_from(sorted(BUILT_IN))
    | unicode_text.filter(lambda s: s != "" and s[0] != "@")
)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
literals = st.one_of(
    unicode_text.map(m.Text),
    st.sampled_from(["it's", "''", "and", "true", "5", "1..2"]).map(m.Text),
    numbers.map(m.Number),
    st.booleans().map(m.Truth),
)


@st.composite
def intervals(draw: st.DrawFn) -> m.Test:
    low, high = draw(numbers), draw(numbers)
    low, high = min(low, high), max(low, high)
    return m.between(draw(names), *draw(st.sampled_from([(low, high), (None, high), (low, None)])))


tests: st.SearchStrategy[m.Test] = st.one_of(
    st.builds(m.Exists, names),
    st.builds(m.Among, names, st.lists(literals, min_size=1, max_size=4).map(tuple)),
    intervals(),
    st.builds(m.Regex, names, st.sampled_from(["^a'b$", "", "[0-9]+", "(?i)x|y", "\\pL", "a b"])),
    st.builds(m.UpTo, st.integers(0, 2**64 - 1)),
    st.just(m.SameKey()),
    st.builds(m.KeepLast, st.integers(0, 2**64 - 1)),
    st.builds(
        m.OlderThan, st.integers(0, 2**64 - 1) | st.sampled_from([0, 1000, 60_000_000, 86_400_000_000])
    ),
)
filters = st.lists(st.lists(st.builds(m.Term, tests, st.booleans()), max_size=4), max_size=4).map(m.Filter)


@pytest.mark.paper("W8")
@given(filters)
@settings(max_examples=examples(400))
def test_what_is_printed_reads_back(f: m.Filter) -> None:
    again = parse(str(f))
    assert again == f
    assert again.conjunctions == f.conjunctions
    assert hash(again) == hash(f)
    assert str(again) == str(f)


PIECES = (
    "k #S a.b \"x y\" 'it''s' 5 -1.5 1e3 1..5 .. ..5 5.. = != ~ ( ) , and or not in exists all true upto same"
    " key keep last older than 10m '^a' @seq @key @x < ' \" ! é 漢"
)
pieces = st.sampled_from(PIECES.split())


@given(
    st.lists(pieces, max_size=12).map(" ".join)
    | st.lists(pieces, max_size=8).map("".join)
    | st.text(max_size=20)
)
@settings(max_examples=examples(600))
def test_any_text_is_read_or_refused_at_a_column(text: str) -> None:
    try:
        f = parse(text)
    except FilterError as error:
        refusal = error
    else:
        assert parse(str(f)) == f
        return
    assert refusal.column is not None
    assert 1 <= refusal.column <= len(text) + 1
    first, shown, caret = str(refusal).split("\n")
    assert first == f"filter error at column {refusal.column}: {refusal.reason}"
    assert caret.strip() == "^"
    assert shown.startswith("  ")


# --- nesting: a random expression, evaluated by hand, against the filter that its text is read to ---------

leaves = [f"{name} = {value}" for name in "abc" for value in (0, 1)] + ["exists a", "a in 0..1", "all"]
expressions: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(leaves),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner, inner),
    ),
    max_leaves=8,
)
TABLE = [
    {k: v for k, v in zip("abc", (a, b, c), strict=True) if v is not None}
    for a in (None, 0, 1)
    for b in (None, 0, 1)
    for c in (None, 0, 1)
]
BATCH = Batch.build(1, [b""] * len(TABLE), first=1, attributes=TABLE)


def written(e: Any) -> str:
    match e:
        case str():
            return e
        case ("not", part):
            return f"not ({written(part)})"
        case (joint, *parts):
            return "(" + f" {joint} ".join(map(written, parts)) + ")"
    raise AssertionError(e)


def holds(e: Any, row: dict[str, int]) -> bool:
    match e:
        case "all":
            return True
        case "exists a" | "a in 0..1":
            return "a" in row
        case str():
            name, value = e.split(" = ")
            return row.get(name) == int(value)
        case ("not", part):
            return not holds(part, row)
        case ("and", *parts):
            return all(holds(p, row) for p in parts)
        case ("or", *parts):
            return any(holds(p, row) for p in parts)
    raise AssertionError(e)


@given(expressions)
@settings(max_examples=examples(300))
def test_nesting_is_unfolded_without_changing_its_meaning(e: Any) -> None:
    f = parse(written(e))
    assert parse(str(f)) == f
    np.testing.assert_array_equal(evaluate(f, BATCH), [holds(e, row) for row in TABLE])

"""The implication rule: what is proved, and that nothing false is, over every pair of a small world."""

import itertools
from typing import Any

import numpy as np
import pytest

from qanat.events.batch import Batch
from qanat.events.filters import Context, ContextError, Filter, evaluate, implies, parse

GC = Context(100, b"k", 1_000_000)


@pytest.mark.paper("S2")
@pytest.mark.parametrize(
    ("f", "g"),
    [
        ("a = 1", "all"),
        ("not all", "a = 1"),
        ("a = 1 and b = 2", "a = 1"),
        ("a = 1", "a = 1 or b = 2"),
        ("a = 1", "a in (1, 2)"),
        ("a in (1, 2)", "a in (1, 2, 3)"),
        ("a in (1, 2)", "a = 1 or a = 2"),
        ("a = 1", "exists a"),
        ("a = 1", "a in 0..5"),
        ("a = '1'", "a = 1"),
        ("a = x", "a ~ '^x'"),
        ("a = x", "not a = y"),
        ("a = x", "not a in 1..5"),
        ("a = 1", "not a = 'x'"),
        ("a in 1..5", "a in 0..5"),
        ("a in 1..5", "a in ..5"),
        ("a in 1..5", "not a in 6.."),
        ("a in 1..5", "not a in (7, x)"),
        ("a in 1..5 and a in 3..9", "a in 3..5"),
        ("a in 1..5 and a in 6..9", "b = 1"),
        ("a = 1 and a = 2", "b = 1"),
        ("a ~ 'x'", "a ~ 'x'"),
        ("a ~ 'x'", "exists a"),
        ("not exists a", "not a = 1"),
        ("not a in 0..5", "not a in 1..2"),
        ("not a in 0..5", "not a = 3"),
        ("a = true", "not a = 1"),
        ("all", "exists @seq"),
        ("upto 5", "upto 6"),
        ("upto 5", "@seq in ..7"),
        ("@seq in 2..4", "upto 4"),
        ("all", "upto 99"),  # what comes before event 100
        ("same key", "@key = k"),
        ("@key = k", "same key"),
        ("same key", "same key and exists @key"),
        ("keep last 10", "keep last 5"),
        ("keep last 10", "upto 90"),
        ("older than 2s", "older than 1s"),
        ("older than 500ms", "@time in ..499999"),
        ("same key and color = red", "color in (red, blue)"),
    ],
)
def test_proved(f: str, g: str) -> None:
    assert implies(parse(f), GC, parse(g), GC)


@pytest.mark.parametrize(
    ("f", "g"),
    [
        ("all", "a = 1"),
        ("all", "not all"),
        ("a = 1", "a = '1'"),  # 1.0 equals 1 and is not the text 1
        ("a = 1", "not a = '1'"),
        ("a = 1", "a ~ '1'"),
        ("a = 1", "b = 1"),
        ("a in 1..5", "a in 1..4"),
        ("a in 1..5", "not a in 5..9"),
        ("not a = 1", "exists a"),
        ("not a = 1", "a = 2"),
        ("upto 6", "upto 5"),
        ("keep last 5", "keep last 10"),
        ("older than 1s", "older than 2s"),
        ("a ~ 'x'", "a ~ 'y'"),
        ("a = true", "a ~ 'true'"),
        ("exists @key", "same key"),
    ],
)
def test_not_proved(f: str, g: str) -> None:
    assert not implies(parse(f), GC, parse(g), GC)


@pytest.mark.paper("S2")
def test_a_later_collection_of_the_same_key_covers_an_earlier_one() -> None:
    earlier, later, other = Context(5, b"k"), Context(9, b"k"), Context(9, b"j")
    same = parse("same key")
    assert implies(same, earlier, same, later)
    assert implies(same, later, same, earlier)  # as predicates; that nothing after 5 is matched is ≺'s affair
    assert not implies(same, earlier, same, other)
    assert implies(parse("keep last 3"), earlier, parse("keep last 3"), later)
    assert not implies(parse("keep last 3"), later, parse("keep last 3"), earlier)
    assert implies(parse("all"), earlier, parse("keep last 3"), later)
    odd = Context(5, b"\xff")
    assert implies(same, odd, same, Context(9, b"\xff"))
    assert implies(same, odd, parse("exists @key and not @key = k and not @key ~ ''"), later)
    assert implies(parse("@key = k"), None, parse("not same key"), odd)
    assert implies(parse("same key"), Context(5, b""), parse("not all"), None)  # an empty key matches nothing


def test_contexts_are_asked_for() -> None:
    assert implies(parse("a = 1"), None, parse("exists a"), None)
    with pytest.raises(ContextError):
        implies(parse("same key"), None, parse("all"), None)
    with pytest.raises(ContextError):
        implies(parse("all"), None, parse("same key"), None)


def test_two_filters_near_the_limits_are_given_up_on() -> None:
    f = parse(" or ".join(f"a{i} = 1 and b{i} = 2 and c{i} = 3" for i in range(900)))
    g = parse(" or ".join(f"a{i} = 1 and b{i} = 2 and d{i} = 3" for i in range(900)))
    assert not implies(f, GC, g, GC)
    lists = parse(f"a in ({', '.join(f'x{i}' for i in range(5000))})")
    assert not implies(lists, GC, parse(f"a in ({', '.join(f'y{i}' for i in range(5000))})"), GC)
    assert implies(lists, GC, lists, GC)
    assert implies(lists, GC, parse(f"b = 1 or a in ({', '.join(f'x{i}' for i in range(5001))})"), GC)
    assert implies(f, GC, parse(f"{f} or z = 1"), GC)


# --- every pair of a small world --------------------------------------------------------------------------

ATTRIBUTES: list[Any] = [
    None,
    "",
    "x",
    "xy",
    "1",
    "1.0",
    "2",
    "-1",
    "true",
    "false",
    0,
    1,
    1.0,
    1.5,
    2,
    3,
    True,
    False,
    b"x",
    b"\xff",
    float("nan"),
    float("inf"),
]
KEYS = [b"", b"k", b"j", b"5", b"\xff"]
SMALL = [
    *[
        "exists a",
        "a = 1",
        "a = '1'",
        "a = x",
        "a = true",
        "a in (1, x)",
        "a in (1, 2)",
        "a in ('1', '1.0', 2)",
    ],
    *["a in 0..1", "a in 1..2", "a in ..1", "a in 1.5..", "a in 3..4", "a ~ 'x'", "a ~ '^1'", "a ~ ''"],
    *["a = false", "a = 'true'", "a in (false, true)", "a = -1", "a in (x, xy)"],
]
EVENTS = [
    *[
        "same key",
        "exists @key",
        "@key = k",
        "@key = 5",
        "@key ~ 'k'",
        "@key in 1..9",
        "upto 2",
        "upto 7",
        "keep last 3",
    ],
    *[
        "keep last 6",
        "older than 3us",
        "older than 5us",
        "@seq in 2..4",
        "@seq = 3",
        "@time in ..4",
        "exists @time",
        "all",
    ],
]


def check(texts: list[str], batch: Batch, contexts: list[Context]) -> tuple[int, int]:
    """(proved, true in this batch) over all pairs of terms and contexts; fails where a proof is refuted."""
    filters: list[Filter] = [parse(prefix + text) for text in texts for prefix in ("", "not ")]
    proved = true = 0
    for gc_f, gc_g in itertools.product(contexts, contexts):
        before = batch.seqs() < np.uint64(gc_f.seq)
        answers_f = [evaluate(f, batch, gc_f) & before for f in filters]
        answers_g = [evaluate(g, batch, gc_g) for g in filters]
        for (f, mine), (g, theirs) in itertools.product(
            zip(filters, answers_f, strict=True), zip(filters, answers_g, strict=True)
        ):
            holds = not (mine & ~theirs).any()
            true += holds
            if implies(f, gc_f, g, gc_g):
                assert holds, f"{f} does not imply {g} with {gc_f} and {gc_g}"
                proved += 1
    return proved, true


@pytest.mark.paper("S2")
def test_no_false_proof_about_attributes() -> None:
    rows = [{} if v is None else {"a": v} for v in ATTRIBUTES]
    batch = Batch.build(1, [b""] * len(rows), first=1, attributes=rows)
    proved, true = check(SMALL, batch, [Context(1000)])
    assert proved > 0.75 * true  # it proves most of what holds, else it would be of no use


@pytest.mark.paper("S2")
def test_no_false_proof_about_events() -> None:
    batch = Batch.build(1, [b""] * 10, first=1, keys=KEYS * 2, times=[9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    contexts = [Context(8, b"k", 9), Context(5, b"\xff", 7), Context(11, b"", 12), Context(0, b"5", 0)]
    proved, true = check(EVENTS, batch, contexts)
    assert proved > 0.5 * true

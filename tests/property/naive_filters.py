"""Filters and events as Hypothesis draws them, and a naive model that looks at one event at a time: what
every back end is held to."""

import re
from typing import Any

from hypothesis import strategies as st

from qanat.events.batch import Batch, Kind
from qanat.events.filters import Context
from qanat.events.filters import model as m

NAMES = ["a", "b", "#S", "weird name"]
WORDS = [
    "",
    "x",
    "5",
    "05",
    "5.0",
    "-0",
    "0",
    "1e2",
    "100",
    "true",
    "false",
    "é漢",
    "x'y",
    "X",
    "1e999",
    "+5",
    "5 ",
    "a\nb",
]
BIG = [2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), -(2**53) - 1, 0, 5, 100, -1]
FLOATS = [
    0.0,
    -0.0,
    5.0,
    5.5,
    float(2**53),
    float(2**63),
    float(2**64),
    float("nan"),
    float("inf"),
    float("-inf"),
    1e300,
]
PATTERNS = ["x", "^x$", "^$", "[0-9]", "(?i)X", ".", "é", "^5", "tr?ue"]  # the same in RE2 and in Python's re

texts = st.sampled_from([*WORDS, *map(str, BIG)]) | st.text(max_size=3)
values = (
    texts
    | st.sampled_from(BIG)
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from(FLOATS)
    | st.floats()
    | st.booleans()
    | texts.map(str.encode)
    | st.binary(max_size=3)
)
literal_numbers = (
    st.sampled_from(BIG) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-10, 10)
)
literals = st.one_of(texts.map(m.Text), literal_numbers.map(m.Number), st.booleans().map(m.Truth))
names = st.sampled_from([*NAMES, "@key", "@seq", "@time", "@kind", "@size", "@source"])


@st.composite
def intervals(draw: st.DrawFn) -> m.Test:
    low, high = draw(st.none() | literal_numbers), draw(st.none() | literal_numbers)
    if low is None and high is None:
        low = 0
    if low is not None and high is not None:
        low, high = min(low, high), max(low, high)
    return m.between(draw(names), low, high)


plain_tests: st.SearchStrategy[m.Test] = st.one_of(
    st.builds(m.Exists, names),
    st.builds(m.Among, names, st.lists(literals, min_size=1, max_size=3).map(tuple)),
    intervals(),
    st.builds(m.Regex, names, st.sampled_from(PATTERNS)),
    st.builds(m.UpTo, st.integers(0, 12)),
)
contextual_tests: st.SearchStrategy[m.Test] = st.one_of(
    st.just(m.SameKey()),
    st.builds(m.KeepLast, st.integers(0, 12)),
    st.builds(m.OlderThan, st.integers(0, 30)),
)


def filters(tests: st.SearchStrategy[m.Test]) -> st.SearchStrategy[m.Filter]:
    terms = st.builds(m.Term, tests, st.booleans())
    return st.lists(st.lists(terms, max_size=4), max_size=3).map(m.Filter)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    rows = draw(st.integers(1, 8))
    keys = st.sampled_from([b"", b"x", b"5", b"\xff", "é".encode()])
    options: dict[str, Any] = {}
    if draw(st.booleans()):
        options["keys"] = draw(st.lists(keys, min_size=rows, max_size=rows))
    if draw(st.booleans()):
        options["times"] = draw(st.lists(st.integers(0, 40), min_size=rows, max_size=rows))
    if draw(st.booleans()):
        options["source"] = draw(st.sampled_from(["x", "5", "shard-1"]))
    if draw(st.booleans()):
        kinds = st.sampled_from([Kind.DATA, Kind.GC])
        options["kinds"] = draw(st.lists(kinds, min_size=rows, max_size=rows))
    some = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)
    options["attributes"] = draw(st.lists(some, min_size=rows, max_size=rows))
    payloads = draw(st.lists(st.binary(max_size=6), min_size=rows, max_size=rows))
    batch = Batch.build(7, payloads, first=draw(st.integers(1, 6)), **options)
    i = draw(st.integers(0, rows - 1)) if draw(st.booleans()) else 0
    return batch.slice(i, rows)


# --- the model: one event, one test at a time, in plain Python --------------------------------------------


def value_of(batch: Batch, i: int, name: str) -> Any:
    match name:
        case "@key":
            return batch.key(i) or None
        case "@seq":
            return int(batch.seqs()[i])
        case "@time":
            return int(batch.times()[i])
        case "@size":
            return len(batch.payload(i))
        case "@kind":
            return batch.kind(i).name.lower()
        case "@source":
            names, codes = batch.source_names, batch.source_codes()
            return None if not names else names[0 if codes is None else int(codes[i])]
        case _:
            return batch.attribute_row(i).get(name)


def as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def as_number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return None if value != value else value
    text = as_text(value)
    if text is None or not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text):
        return None
    if re.fullmatch("-?[0-9]+", text) and -(2**63) <= int(text) < 2**64:
        return int(text)
    return None if abs(float(text)) == float("inf") else float(text)


def passes(test: m.Test, batch: Batch, i: int, gc: Context | None) -> bool:
    match test:
        case m.UpTo(seq):
            return int(batch.seqs()[i]) <= seq
        case m.SameKey():
            assert gc is not None
            return batch.key(i) == gc.key != b""
        case m.KeepLast(count):
            assert gc is not None
            return int(batch.seqs()[i]) <= gc.seq - count
        case m.OlderThan(age_us):
            assert gc is not None
            return int(batch.times()[i]) < gc.time_us - age_us
    value = value_of(batch, i, test.name)
    if value is None:
        return False
    text, number = as_text(value), as_number(value)
    match test:
        case m.Exists():
            return True
        case m.Among(_, wanted):
            for w in wanted:
                match w:
                    case m.Text(t):
                        if text == t:
                            return True
                    case m.Number(n):
                        if number is not None and number == n:
                            return True
                    case m.Truth(b):
                        if value is b or text == ("true" if b else "false"):
                            return True
            return False
        case m.Between(_, low, high):
            return number is not None and (low is None or low <= number) and (high is None or number <= high)
        case m.Regex(_, pattern):
            return text is not None and re.search(pattern.replace("$", r"\Z"), text) is not None
    raise AssertionError(test)


def naive(f: m.Filter, batch: Batch, gc: Context | None = None) -> list[bool]:
    return [
        any(all(passes(t.test, batch, i, gc) != t.negated for t in c) for c in f.conjunctions)
        for i in range(batch.count)
    ]


contexts = st.builds(
    Context, st.integers(0, 14), st.sampled_from([b"", b"x", b"5", b"\xff"]), st.integers(0, 50)
)

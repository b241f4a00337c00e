"""The three back ends of the filter language give the same answers: columnar, index, Spark columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.property.naive_filters import batches, contexts, contextual_tests, filters, names, plain_tests

from qanat.events.filters import Context, ContextError, FilterIndex, evaluate, parse
from qanat.events.filters import model as m
from qanat.events.filters.patterns import refusal
from qanat.pipeline.columns import DDL, arrow_of
from qanat.pipeline.filters.java_patterns import java_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from qanat.events.batch import Batch

Drawn = TypeVar("Drawn")
BATCHES, AT_ONCE = 50, 60

pieces = st.sampled_from(
    [
        "a",
        "5",
        "x",
        "é",
        "𝒳",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\W",
        r"\.",
        "[0-9]",
        "[^a-z]",
        r"[\d_]",
        "[é漢]",
        " ",
        r"\$",
    ]
)
repeats = st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{0,2}", "{1,}", "??", "*?"])
patterns = st.tuples(
    st.sampled_from(["", "^"]),
    st.lists(st.tuples(pieces, repeats).map("".join), max_size=4).map("".join),
    st.sampled_from(["", "$"]),
).map("".join)
regexes = st.builds(m.Regex, names, patterns.filter(lambda pattern: refusal(pattern) is None))


def drawn(strategy: st.SearchStrategy[Drawn], count: int) -> list[Drawn]:
    """So many examples, of which Spark then answers for all at once."""
    found: list[Drawn] = []

    @settings(
        max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(one: Drawn) -> None:
        found.append(one)

    collect()
    return found


def frame_of(spark: SparkSession, some: list[Batch]) -> DataFrame:
    table = pa.Table.from_batches([arrow_of("s", batch) for batch in some])
    table = table.append_column("row", pa.array(np.arange(len(table))))
    return spark.createDataFrame(table, f"{DDL}, row bigint").coalesce(1)


def answers(frame: DataFrame, columns: list[Column]) -> list[list[bool]]:
    found: list[list[bool]] = []
    for start in range(0, len(columns), AT_ONCE):
        named = [column.alias(f"f{i}") for i, column in enumerate(columns[start : start + AT_ONCE])]
        table = frame.select("row", *named).toArrow().sort_by("row")
        found += [table.column(i + 1).to_pylist() for i in range(len(named))]
    return found


@pytest.mark.paper("D3")
@pytest.mark.paper("W8")
def test_three_back_ends_give_one_answer(spark: SparkSession) -> None:
    from qanat.pipeline.filters.columns import column_of

    some = drawn(filters(st.one_of(plain_tests, regexes)), settings().max_examples)
    events = drawn(batches(), BATCHES)
    index = FilterIndex()
    for number, f in enumerate(some):
        index.add(number, f)
    indexed = np.zeros((len(some), 0), bool)
    for batch in events:
        matches, part = index.match(batch), np.zeros((len(some), batch.count), bool)
        part[matches.ids, np.repeat(np.arange(batch.count), np.diff(matches.offsets))] = True
        indexed = np.concatenate([indexed, part], axis=1)
    given = answers(frame_of(spark, events), [column_of(f) for f in some])
    for f, by_spark, by_index in zip(some, given, indexed, strict=True):
        columnar = np.concatenate([evaluate(f, batch) for batch in events]).tolist()
        assert by_index.tolist() == columnar, f
        assert by_spark == columnar, difference(f, events, by_spark, columnar)
    assert any(java_pattern(t.pattern) is None for f in some for t in f.tests if isinstance(t, m.Regex))


def difference(f: m.Filter, events: list[Batch], by_spark: list[bool], columnar: list[bool]) -> str:
    row = next(i for i, (mine, theirs) in enumerate(zip(by_spark, columnar, strict=True)) if mine != theirs)
    for batch in events:
        if row < batch.count:
            return f"{f}: Spark says {not columnar[row]} to {batch.key(row)!r} {batch.attribute_row(row)}"
        row -= batch.count
    return str(f)


@pytest.mark.paper("D3")
def test_contextual_filters_too(spark: SparkSession) -> None:
    """With the garbage collection event as a value, and as columns of the same row."""
    from pyspark.sql import functions as F

    from qanat.pipeline.filters.columns import ContextColumns, column_of

    some = drawn(st.tuples(filters(contextual_tests | plain_tests), contexts), 60)
    events = drawn(batches(), 20)
    frame = frame_of(spark, events)
    expected = [[v for batch in events for v in evaluate(f, batch, gc).tolist()] for f, gc in some]
    assert answers(frame, [column_of(f, gc) for f, gc in some]) == expected
    gc = Context(9, b"x", 30)
    joined = frame.withColumns({"gc_seq": F.lit(9), "gc_key": F.lit(b"x"), "gc_time": F.lit(30)})
    beside = ContextColumns(F.col("gc_seq"), F.col("gc_key"), F.col("gc_time"))
    expected = [[v for batch in events for v in evaluate(f, batch, gc).tolist()] for f, _ in some]
    assert answers(joined, [column_of(f, beside) for f, _ in some]) == expected


@pytest.mark.paper("D3")
def test_large_filters_go_to_the_evaluator(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every filter were large."""
    from qanat.pipeline.filters import columns as filter_columns

    monkeypatch.setattr(filter_columns, "_LARGE", -1)
    some = drawn(st.tuples(filters(st.one_of(plain_tests, contextual_tests, regexes)), contexts), 40)
    events = drawn(batches(), 20)
    expected = [[v for batch in events for v in evaluate(f, batch, gc).tolist()] for f, gc in some]
    assert answers(frame_of(spark, events), [filter_columns.column_of(f, gc) for f, gc in some]) == expected


def test_what_is_not_there_is_false_and_not_null(spark: SparkSession) -> None:
    from qanat.pipeline.filters.columns import column_of

    empty = spark.createDataFrame([(None,) * 9], DDL)
    texts = [
        "k = 5",
        "k = 'x'",
        "k in 1..5",
        "k ~ 'x'",
        "k ~ '(a|b)'",
        "exists k",
        "k = true",
        "@key = 'x'",
        "@time in 0..",
    ]
    columns = [column_of(parse(text)) for text in texts] + [column_of(parse(f"not {text}")) for text in texts]
    assert list(empty.select(*columns).first() or ()) == [False] * len(texts) + [True] * len(texts)


def test_a_filter_of_a_thousand_alternatives(spark: SparkSession) -> None:
    from qanat.pipeline.filters.columns import column_of

    f = parse(" or ".join(f"a = {i} and b = {i}" for i in range(1000)))
    rows = [
        (None, 1, "data", b"", None, b"", {"a": str(i), "b": str(j)}, {"a": "int"}, None)
        for i, j in ((7, 7), (7, 8), (999, 999))
    ]
    found = spark.createDataFrame(rows, DDL).select(column_of(f).alias("f")).collect()
    assert [row.f for row in found] == [True, False, True]


def test_a_contextual_filter_needs_its_event(spark: SparkSession) -> None:
    from qanat.pipeline.filters.columns import column_of

    with pytest.raises(ContextError, match="garbage collection event"):
        column_of(parse("same key"))

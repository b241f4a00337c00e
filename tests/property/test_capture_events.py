"""Updates become events and come back as they were, with all their types."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.capture import Column, Op, Run, Table, Updates
from qanat.capture.envelope import lines
from qanat.capture.errors import MalformedLog
from qanat.capture.events import batch_of
from qanat.capture.rebuild import updates_of
from qanat.capture.updates import Update
from qanat.events.batch import Batch
from qanat.events.filters import evaluate, parse


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    return st.integers(-top, top).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    *((kind, st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) for bits, kind in
      ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64()))),
    *((kind, st.integers(0, 2**bits - 1)) for bits, kind in
      ((8, pa.uint8()), (16, pa.uint16()), (32, pa.uint32()), (64, pa.uint64()))),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(38, 10), decimals(38, 10)),
    (pa.decimal256(65, 30), decimals(65, 30)),
    (pa.string(), st.text(max_size=12)),
    (pa.large_string(), st.just("x" * 2000)),
    (pa.binary(), st.binary(max_size=12)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("ms"), st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    (pa.duration("us"), st.timedeltas(timedelta(hours=-839), timedelta(hours=839))),
]  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, list[st.SearchStrategy[Any]]]:
    chosen = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5))
    names = draw(
        st.lists(st.text(min_size=1, max_size=5), min_size=len(chosen), max_size=len(chosen), unique=True)
    )
    columns = tuple(
        Column(name, kind, draw(st.sampled_from(["", "json", "varchar(20)"])), draw(st.booleans()))
        for name, (kind, _) in zip(names, chosen, strict=True)
    )
    schema = draw(st.sampled_from(["", "public"]))
    return Table(draw(st.text(max_size=4)), schema, draw(st.text(max_size=4)), columns), [
        v for _, v in chosen
    ]


@st.composite
def runs(draw: st.DrawFn, start: int) -> Run:
    table, values = draw(tables())
    count = draw(st.integers(1, 4))
    ops = draw(st.lists(st.sampled_from(list(Op)), min_size=count, max_size=count))

    def image(there: list[bool]) -> pa.RecordBatch | None:
        if not any(there):
            return None
        columns = [
            pa.array([draw(st.none() | one) if here else None for here in there], column.type)
            for column, one in zip(table.columns, values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=table.arrow)

    afters = [op not in (Op.DELETE, Op.TRUNCATE) for op in ops]
    befores = [op in (Op.DELETE, Op.DELETE_RANGE) or (op is Op.UPDATE and draw(st.booleans())) for op in ops]
    left_out = {
        column.name: np.array([op is Op.UPDATE and draw(st.booleans()) for op in ops])
        for column in table.columns[1:]
    }
    return Run(
        table,
        np.array(ops, np.uint8),
        np.arange(start, start + count, dtype=np.uint64),
        np.array(draw(st.lists(st.integers(0, 2**32 - 1), min_size=count, max_size=count)), np.uint32),
        np.array(draw(st.lists(st.integers(-(10**14), 10**15), min_size=count, max_size=count)), np.int64),
        pa.array(draw(st.lists(st.text(max_size=3), min_size=count, max_size=count))).dictionary_encode(),
        image(afters),
        image(befores),
        np.array(afters),
        np.array(befores),
        draw(st.sampled_from([None, left_out])),
        draw(st.sampled_from([None, np.array(befores)])),
    )


@st.composite
def logs(draw: st.DrawFn) -> Updates:
    parts = [draw(runs(start)) for start in range(1, draw(st.integers(1, 4)) * 10, 10)]
    if len(parts) > 2 and draw(st.booleans()):  # one table in turn with another
        again = parts[0]
        parts.append(
            Run(
                again.table,
                again.ops,
                again.sequences + np.uint64(1000),
                again.indexes,
                again.times_us,
                again.transactions,
                again.after,
                again.before,
                again.has_after,
                again.has_before,
                again.unchanged,
                again.key_only,
            )
        )
    return Updates(parts)


def same(value: Any) -> Any:
    """NaN equals NaN here, and -0.0 is not 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    return value


def comparable(updates: Updates) -> list[Any]:
    def images(update: Update) -> list[Any]:
        return [
            None if image is None else {name: same(value) for name, value in image.items()}
            for image in (update.before, update.after)
        ]

    return [
        (
            update.position,
            update.op,
            update.table,
            update.transaction,
            update.time_us,
            set(update.unchanged),
            images(update),
        )
        for update in updates.rows()
    ]


@pytest.mark.paper("W2")
@settings(max_examples=examples(150), deadline=None)
@given(logs())
def test_updates_survive_as_events(updates: Updates) -> None:
    batch = Batch.decode(bytes(batch_of("changes", "shop", updates).encode()))
    assert comparable(updates_of(batch)) == comparable(updates)
    positions = batch.positions()
    assert positions is not None
    assert list(zip(*map(np.ndarray.tolist, positions), strict=True)) == [
        tuple(update.position) for update in updates.rows()
    ]
    for run in updates.runs:
        for text, update in zip(lines(run).to_pylist(), run.rows(), strict=True):
            line = json.loads(text)
            assert line["position"] == str(update.position)
            assert (line["before"] is None) == (update.before is None)
            assert set(line["after"] or ()) == set(update.after or ())


def sample() -> Updates:
    columns = (
        Column("id", pa.uint64(), "bigint unsigned", True),
        Column("price", pa.decimal128(10, 2)),
        Column("at", pa.timestamp("us", "UTC")),
        Column("day", pa.date32()),
        Column("open", pa.time64("us")),
        Column("note", pa.string()),
        Column("raw", pa.binary()),
    )
    table = Table("shop", "public", "prices", columns)
    row = {
        "id": 2**64 - 1,
        "price": Decimal("12.50"),
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "day": date(2026, 1, 31),
        "open": time(9, 30),
        "note": "",
        "raw": b"\xff",
    }
    return Updates(
        [
            Run(
                table,
                np.array([Op.INSERT, Op.INSERT], np.uint8),
                np.array([7, 7], np.uint64),
                np.array([0, 1], np.uint32),
                np.array([0, 0], np.int64),
                pa.array(["0-1-7"] * 2).dictionary_encode(),
                pa.RecordBatch.from_pylist([row, {"id": 3}], table.arrow),
            )
        ]
    )


@pytest.mark.paper("W2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 18446744073709551615", [True, False]),
        ("price in 12..13 and #op = insert", [True, False]),
        ("day ~ '^2026'", [True, False]),
        ("at ~ '^2026-01-31T12:00:00'", [True, False]),
        ("exists note", [True, False]),
        ("note = ''", [True, False]),
        ("#table = prices and #db = shop and #schema = public", [True, True]),
        ("#tx = 0-1-7 and not exists price", [False, True]),
        ("@key ~ '^shop.public.prices/3$'", [False, True]),
    ],
)
def test_filters_see_what_a_row_holds(text: str, expected: list[bool]) -> None:
    assert evaluate(parse(text), batch_of("changes", "shop", sample())).tolist() == expected


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_events_that_are_no_updates_are_refused(data: st.DataObject) -> None:
    batch = batch_of("changes", "shop", sample())
    payloads = batch.payloads().to_pylist()
    broken = bytearray(payloads[0])
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    columns = batch.attribute_row(0)["#columns"]
    assert isinstance(columns, str)
    if data.draw(st.booleans()):
        columns = columns.replace(
            *data.draw(
                st.sampled_from(
                    [("uint64", "int8"), ("date32", "data32"), ("(10, 2)", "(99, 2)"), ("[[", "[")]
                )
            )
        )
    attributes = pa.array([columns])
    again = Batch.build(1, [bytes(broken)], attributes={"#columns": attributes})
    try:
        list(updates_of(again).rows())
    except MalformedLog as error:
        assert str(error)


def test_other_events_are_told_apart() -> None:
    with pytest.raises(MalformedLog, match="no attribute #columns"):
        updates_of(Batch.build(1, [b"hello"]))
    assert not updates_of(Batch.build(1, []))

"""Decimals as text: every digit, and never an exponent, wherever an update is written."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.capture.decimal_texts import decimal_texts
from qanat.capture.json_text import bare_texts, json_texts
from qanat.capture.sharding import texts

KINDS = [
    pa.decimal128(10, 2),
    pa.decimal128(38, 10),
    pa.decimal128(38, 38),
    pa.decimal128(5, -3),
    pa.decimal256(65, 30),
]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.decimal128(5, -3), "1E+3", "1000"),
        (pa.decimal128(5, -3), "0", "0"),
        (pa.decimal128(38, 10), "1E-7", "0.0000001000"),
        (pa.decimal128(38, 10), "-1E-10", "-0.0000000001"),
        (pa.decimal128(38, 18), "0", "0.000000000000000000"),
        (pa.decimal128(10, 2), "12.5", "12.50"),
        (pa.decimal256(65, 30), "-123.5", "-123.500000000000000000000000000000"),
    ],
)
def test_a_decimal_has_no_exponent_in_events_keys_or_shards(kind: pa.DataType, value: str, text: str) -> None:
    column = pa.array([Decimal(value), None], kind)
    assert bare_texts(column).to_pylist() == [text, None]
    assert json_texts(column).to_pylist() == [f'"{text}"', "null"]
    assert texts(column).to_pylist() == [text, None]


@given(data=st.data())
@settings(max_examples=examples(60))
def test_the_text_is_the_one_that_python_writes_without_an_exponent(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    top = 10**kind.precision - 1
    drawn = data.draw(st.lists(st.none() | st.integers(-top, top), min_size=1, max_size=9))
    values = [
        None if n is None else Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -kind.scale)) for n in drawn
    ]
    column = pa.array([None, *values], kind).slice(1)
    expected = [None if value is None else format(value, "f") for value in values]
    assert decimal_texts(column).to_pylist() == expected

"""Binary columns as text, against the plain way, value by value."""

from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.capture import base64_bytes
from qanat.capture.digits import hexadecimal, quoted_base64

_KINDS = [pa.binary(), pa.large_binary()]


def check(array: pa.Array) -> None:
    plain: list[Any] = array.to_pylist()
    as_hex, as_base64 = hexadecimal(array), quoted_base64(array)
    as_hex.validate(full=True)
    as_base64.validate(full=True)
    assert as_hex.to_pylist() == [None if value is None else value.hex() for value in plain]
    assert as_base64.to_pylist() == [
        None if value is None else f'"{b64encode(value).decode()}"' for value in plain
    ]


@given(st.lists(st.none() | st.binary(max_size=8)), st.sampled_from(_KINDS), st.integers(0, 3))
def test_values_of_any_size(values: list[bytes | None], kind: pa.DataType, skipped: int) -> None:
    check(pa.array(values, kind)[skipped:])


@given(
    st.integers(0, 7).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1)),
    st.integers(0, 3),
)
def test_values_of_one_size(values: list[bytes], skipped: int) -> None:
    check(pa.array(values, pa.binary())[skipped:])


@pytest.mark.parametrize("values", [[b"abcd", b"efgh"], [b"abcd", None, b"efgh"], []])
def test_fixed_widths(values: list[bytes | None]) -> None:
    check(pa.array(values, pa.binary(4)))
    check(pa.array(values, pa.binary(4))[1:])


@pytest.mark.parametrize("values", [[b"ab", b"", b"abcdef", b"\xff" * 7, None], [b"abc"] * 5])
def test_without_the_fast_library(values: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base64_bytes, "_native", lambda: None)
    check(pa.array(values, pa.binary()))


def test_more_than_one_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base64_bytes, "_MOST", 6)
    check(pa.array([bytes(range(40)), b"abc"], pa.binary()))

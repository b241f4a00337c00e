"""Lines of JSON as columns, against the plain reading of each line; framings against a plain loop."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.capture.errors import MalformedLog
from qanat.capture.files.framing import Lines, Prefixed, records
from qanat.capture.files.json_columns import NotJson, json_columns

LIMIT = 1 << 20
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    st.sampled_from(["2026-01-01", "2026-01-01 00:00:00", "1.50", ""]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
ROWS = st.lists(
    st.dictionaries(
        st.one_of(st.sampled_from(["a", "b", "c"]), TEXT), st.one_of(SCALARS, VALUES), max_size=4
    ),
    min_size=1,
    max_size=6,
)
PLAIN_ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 2**64 - 1), "name": TEXT, "at": st.just("2026-01-01T00:00:00Z")}
    ),
    min_size=1,
    max_size=6,
)


def check(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    lines = pa.array([json.dumps(row, ensure_ascii=ascii_only).encode() for row in rows], pa.binary())
    columns = {column.name: column for column in json_columns(lines)}
    if not any(rows):
        return
    assert set(columns) == {name for row in rows for name in row}
    for name, column in columns.items():
        for found, row in zip(column.values.to_pylist(), rows, strict=True):
            wanted = row.get(name)
            if found is not None and column.declared == "json":
                found = json.loads(found)
            assert found == wanted
            assert isinstance(found, bool) == isinstance(wanted, bool)


@given(ROWS, st.booleans())
def test_every_value_survives(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    check(rows, ascii_only)


@given(PLAIN_ROWS, st.booleans())
def test_plain_rows_survive(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    check(rows, ascii_only)


def column(*lines: str) -> tuple[str, str, list[Any]]:
    (made,) = json_columns(pa.array([line.encode() for line in lines], pa.binary()))
    return made.declared, str(made.values.type), made.values.to_pylist()


@pytest.mark.parametrize(
    ("lines", "declared", "kind", "values"),
    [
        (['{"a":1}', '{"a":null}'], "integer", "int64", [1, None]),
        (['{"a":18446744073709551615}', '{"a":1}'], "integer", "uint64", [2**64 - 1, 1]),
        (['{"a":18446744073709551616}', '{"a":-1}'], "json", "string", ["18446744073709551616", "-1"]),
        (['{"a":1.5}', '{"a":2}'], "number", "double", [1.5, 2.0]),
        (['{"a":9007199254740993}', '{"a":0.5}'], "json", "string", ["9007199254740993", "0.5"]),
        (['{"a":"2026-01-01"}'], "string", "string", ["2026-01-01"]),
        (['{"a":{"b": 1.0}}', '{"a":null}'], "json", "string", ['{"b": 1.0}', None]),
        (['{"a":"x"}', '{"a":1}'], "json", "string", ['"x"', "1"]),
        (['{"a":true}', "{}"], "boolean", "bool", [True, None]),
        (['{"a":1,"a":2}'], "integer", "int64", [2]),
    ],
)
def test_types_of_columns(lines: list[str], declared: str, kind: str, values: list[Any]) -> None:
    assert column(*lines) == (declared, kind, values)


@pytest.mark.parametrize(
    "bad", [b"[1]", b"{", b'{"a":1} {"a":2}', b'{"a":1},{"a":2}', b"1", b'{"a":"\xff"}', b'{"a":NaN}', b"x"]
)
def test_the_line_that_is_no_object_is_named(bad: bytes) -> None:
    with pytest.raises(NotJson) as raised:
        json_columns(pa.array([b'{"a":1}', bad, b'{"a":1}'], pa.binary()))
    assert raised.value.row == 1


@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(0, 5), st.sampled_from(["big", "little"]))
def test_prefixed_records_are_cut_as_written(many: list[bytes], half: int, order: Any) -> None:
    data = b"".join(struct.pack(">I" if order == "big" else "<I", len(one)) + one for one in many)
    data = data[: len(data) - half]
    framing = Prefixed(LIMIT, order)
    frames = framing.split(data)
    assert records(data, frames, framing).to_pylist() == many[: len(frames.starts)]
    assert len(frames.starts) >= len(many) - half


@given(st.integers(0, 30), st.integers(1, 3000), st.integers(0, 30))
def test_runs_of_records_of_one_length(length: int, count: int, other: int) -> None:
    many = [bytes(length)] * count + [bytes(other)] * 3 + [bytes(length)] * count
    data = b"".join(struct.pack(">I", len(one)) + one for one in many)
    framing = Prefixed(LIMIT)
    assert records(data, framing.split(data), framing).to_pylist() == many


@given(st.binary(max_size=200))
def test_lines_are_cut_as_bytes_are(data: bytes) -> None:
    framing = Lines(LIMIT)
    frames = framing.split(data)
    assert records(data, frames, framing).to_pylist() == data.split(b"\n")[:-1]
    assert data[frames.consumed :] == data.split(b"\n")[-1]


def test_what_is_too_long_is_an_error_only_where_it_begins() -> None:
    lines, prefixed = Lines(4), Prefixed(4)
    assert lines.split(b"ab\nabcdef\n").consumed == 3
    assert prefixed.split(b"\0\0\0\1a\0\0\0\5abcde").consumed == 5
    for framing, data in ((lines, b"abcdef\n"), (lines, b"abcdef"), (prefixed, b"\0\0\0\5abcde")):
        with pytest.raises(MalformedLog, match="record_limit="):
            framing.split(data)

"""Avro containers against a writer of our own here: any schema, any values, any codec, any cut."""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.capture.errors import MalformedLog
from qanat.capture.files.avro import Header, decode_block, parse_header, split_blocks

SYNC = bytes(range(16))
LIMIT = 1 << 24


def long(value: int) -> bytes:
    plain = value << 1 ^ value >> 63
    out = bytearray()
    while plain > 0x7F:
        out.append(plain & 0x7F | 0x80)
        plain >>= 7
    return bytes([*out, plain])


def value(kind: Any, what: Any) -> bytes:
    """One value as Avro writes it; a union's value is (branch, value)."""
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([what])
        case "int" | "long":
            return long(what)
        case "float":
            return struct.pack("<f", what)
        case "double":
            return struct.pack("<d", what)
        case "bytes":
            return long(len(what)) + what
        case "string":
            return long(len(what.encode())) + what.encode()
        case list():
            return long(what[0]) + value(kind[what[0]], what[1])
        case {"type": "fixed"}:
            return bytes(what)
        case {"type": "enum"}:
            return long(kind["symbols"].index(what))
        case {"type": "array"}:
            body = b"".join(value(kind["items"], one) for one in what)
            return (long(-len(what)) + long(len(body)) + body if what else b"") + long(0)
        case {"type": "map"}:
            body = b"".join(value("string", name) + value(kind["values"], one) for name, one in what.items())
            return (long(len(what)) + body if what else b"") + long(0)
        case {"type": "record"}:
            return b"".join(value(field["type"], what[field["name"]]) for field in kind["fields"])
    return value(kind["type"], what)


def compress(codec: str, data: bytes) -> bytes:
    match codec:
        case "deflate":
            return zlib.compress(data)[2:-4]
        case "snappy":
            crc = zlib.crc32(data).to_bytes(4, "big")
            return bytes(pa.Codec("snappy").compress(data, asbytes=True)) + crc
        case "zstandard":
            return zstandard.compress(data)
        case "bzip2":
            return bz2.compress(data)
        case "xz":
            return lzma.compress(data)
    return data


def container(schema: Any, blocks: list[list[Any]], codec: str = "null") -> bytes:
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    out = b"Obj\x01" + value({"type": "map", "values": "bytes"}, meta) + SYNC
    for rows in blocks:
        body = compress(codec, b"".join(value(schema, row) for row in rows))
        out += long(len(rows)) + long(len(body)) + body + SYNC
    return out


def read(data: bytes) -> tuple[Header, list[dict[str, Any]]]:
    header = parse_header(data)
    assert header is not None
    rows: list[dict[str, Any]] = []
    body = data[header.size :]
    for block in split_blocks(body, header.sync, LIMIT)[0]:
        columns = decode_block(header, body[block.data_start : block.data_end], block.records)
        schema = pa.schema([pa.field(column.name, column.type) for column in header.columns])
        batch = pa.RecordBatch.from_arrays(columns, schema=schema) if columns else None
        rows += batch.to_pylist() if batch is not None else [{}] * block.records
    return header, rows


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=8)),
    ("string", TEXT),
]
ENUM = {"type": "enum", "name": "Colour", "symbols": ["red", "green"]}
FIXED = {"type": "fixed", "name": "Four", "size": 4}


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[tuple[Any, Any]]]:
    """A type, and pairs of a value to write and what is to be read."""
    kind, values = draw(st.sampled_from(PLAIN))
    shape = draw(st.sampled_from(["plain", "optional", "array", "map", "record", "union"]))
    json_safe = kind not in ("bytes", "float", "double")
    if shape == "optional" and kind != "null":
        return ["null", kind], st.one_of(st.just(((0, None), None)), values.map(lambda one: ((1, one), one)))
    if shape == "array" and json_safe:
        return {"type": "array", "items": kind}, st.lists(values, max_size=4).map(
            lambda many: (many, json.dumps(many))
        )
    if shape == "map" and json_safe:
        return {"type": "map", "values": kind}, st.dictionaries(TEXT, values, max_size=4).map(
            lambda many: (many, json.dumps(many))
        )
    if shape == "union" and json_safe and kind not in ("null", "string"):
        return [kind, "string"], st.one_of(
            values.map(lambda one: ((0, one), json.dumps(one))),
            TEXT.map(lambda one: ((1, one), json.dumps(one))),
        )
    return kind, values.map(lambda one: (one, one))


@st.composite
def containers(draw: st.DrawFn) -> tuple[bytes, list[dict[str, Any]]]:
    made = draw(st.lists(columns(), min_size=1, max_size=5))
    fields = [{"name": f"c{at}", "type": kind} for at, (kind, _) in enumerate(made)]
    schema = {"type": "record", "name": "Row", "namespace": "test", "fields": fields}
    row = st.tuples(*(values for _, values in made))
    blocks = draw(st.lists(st.lists(row, max_size=4), max_size=3))
    codec = draw(st.sampled_from(["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]))
    written = [[{f"c{at}": one for at, (one, _) in enumerate(cells)} for cells in rows] for rows in blocks]
    expected = [{f"c{at}": one for at, (_, one) in enumerate(cells)} for rows in blocks for cells in rows]
    return container(schema, written, codec), expected


def same(found: Any, expected: Any, declared: str) -> bool:
    if declared == "json" and found is not None:
        return bool(json.loads(found) == json.loads(expected))
    return bool(found == expected)


@given(containers())
def test_what_was_written_is_read(made: tuple[bytes, list[dict[str, Any]]]) -> None:
    data, expected = made
    header, rows = read(data)
    assert len(rows) == len(expected)
    for found, wanted in zip(rows, expected, strict=True):
        for column in header.columns:
            assert same(found[column.name], wanted[column.name], column.declared)


@given(containers(), st.data())
def test_a_file_cut_anywhere_has_whole_blocks_or_waits(
    made: tuple[bytes, list[dict[str, Any]]], data: st.DataObject
) -> None:
    whole, expected = made
    part = whole[: data.draw(st.integers(0, len(whole)))]
    header = parse_header(part)
    if header is not None:
        _, rows = read(part)
        assert len(rows) <= len(expected)


@settings(max_examples=examples(100))
@given(containers(), st.data())
def test_a_damaged_file_is_an_error_or_other_records(
    made: tuple[bytes, list[dict[str, Any]]], data: st.DataObject
) -> None:
    damaged = bytearray(made[0])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        if parse_header(bytes(damaged)) is not None:
            read(bytes(damaged))
    except MalformedLog:
        pass


def field(kind: Any) -> Any:
    return {"type": "record", "name": "Row", "fields": [{"name": "c", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "written", "read_back"),
    [
        (ENUM, "green", "green"),
        (FIXED, b"abcd", b"abcd"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            b"\xff\x85",
            Decimal("-1.23"),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1}, b"\x01", Decimal("0.1")),
        ({"type": "int", "logicalType": "date"}, 19000, date(2022, 1, 8)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1500,
            datetime(1970, 1, 1, 0, 0, 1, 500000, UTC),
        ),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 1, datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        ({"type": "string", "logicalType": "uuid"}, "x", "x"),
        ({"type": "string", "logicalType": "no such"}, "x", "x"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "d", "type": "double"}]},
            {"d": 0.5},
            '{"d":0.5}',
        ),
        ({"type": "array", "items": "bytes"}, [b"\xff"], '["ÿ"]'),
        ({"type": "map", "values": "float"}, {"a": float("inf")}, '{"a":"Infinity"}'),
    ],
)
def test_types_survive(kind: Any, written: Any, read_back: Any) -> None:
    _, rows = read(container(field(kind), [[{"c": written}]]))
    assert rows == [{"c": read_back}]


def test_a_record_may_contain_itself() -> None:
    node: Any = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    chain = long(1) * 5 + long(0)
    header = parse_header(container(field(node), []))
    assert header is not None
    (column,) = decode_block(header, chain, 1)
    assert column[0].as_py().count("next") == 6
    with pytest.raises(MalformedLog, match="inside each other"):
        decode_block(header, long(1) * 100 + long(0), 1)


def test_a_schema_that_is_no_record_has_one_column() -> None:
    header, rows = read(container("long", [[1, 2], [3]]))
    assert [column.name for column in header.columns] == ["value"]
    assert [row["value"] for row in rows] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("null", b"", 1 << 40),
        ({"type": "array", "items": "null"}, long(1 << 50) + long(0), 1),
        (
            {"type": "array", "items": {"type": "array", "items": "null"}},
            long(4) + (long(1 << 19) + long(0)) * 4,
            1,
        ),
        ("string", long(1 << 40), 1),
        ("string", long(-1), 1),
        ("long", b"\xff" * 20, 1),
    ],
)
def test_what_a_few_bytes_claim_is_not_allocated(kind: Any, body: bytes, count: int) -> None:
    header = parse_header(container(field(kind), []))
    assert header is not None
    with pytest.raises(MalformedLog):
        decode_block(header, body, count)


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "bzip2", "xz", "snappy"])
def test_a_block_that_swells_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qanat.capture.files.avro.BLOCK_LIMIT", 1 << 16)
    data = container(field("bytes"), [[{"c": bytes(1 << 20)}]], codec)
    with pytest.raises(MalformedLog):
        read(data)


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"{",
        b'"row"',
        b"[]",
        b'[["null"]]',
        b'{"type":"record"}',
        b'{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"a","type":"long"}]}',
        b'{"type":"fixed","name":"F","size":-1}',
        b'{"type":"enum","name":"E","symbols":"x"}',
        b'{"type":"array"}',
        b'{"type":' * 60 + b'"null"' + b"}" * 60,
    ],
)
def test_a_schema_that_is_none_is_refused(schema: bytes) -> None:
    meta = value({"type": "map", "values": "bytes"}, {"avro.schema": schema})
    with pytest.raises(MalformedLog):
        parse_header(b"Obj\x01" + meta + SYNC)


def test_another_file_and_another_codec_are_refused() -> None:
    with pytest.raises(MalformedLog, match="does not begin"):
        parse_header(b"PAR1")
    with pytest.raises(MalformedLog, match="lzw"):
        parse_header(container("long", [], "lzw"))

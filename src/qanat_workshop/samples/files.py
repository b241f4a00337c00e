"""Small record files of every format, for the decoders to be tried on (`qanat_workshop.fuzz`).

The first byte of an input says which format the others are to be taken for.
"""

import json
import zlib

import pyarrow as pa
import zstandard

from qanat.capture.files.avro import parse_header
from qanat.capture.files.formats import Avro, Format, Records
from qanat.capture.files.framing import Lines, Prefixed

_LIMIT = 1 << 20
_FORMATS: tuple[Format, ...] = (
    Records(Lines(_LIMIT), json=True, fields=True),
    Records(Lines(_LIMIT)),
    Records(Prefixed(_LIMIT, "big")),
    Records(Prefixed(_LIMIT, "little")),
    Avro(_LIMIT),
)
_SYNC = bytes(range(100, 116))
_SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["red", "green"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "double", "boolean"]}},
        {"name": "next", "type": ["null", "Row"]},
        {"name": "ratio", "type": "float"},
    ],
}


def corpus() -> list[bytes]:
    lines = [
        {"id": 1, "name": "one", "price": 1.5, "at": "2026-01-01"},
        {"id": 2**64 - 1, "name": None, "tags": ["a", {"b": "é"}], "gone": False},
        {"id": "three"},
    ]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    records = [b"", b"abc", bytes(100)] + [b"same"] * 20
    samples = [b"\x00" + text, b"\x01" + text]
    for at, order in ((2, "big"), (3, "little")):
        framed = b"".join(len(one).to_bytes(4, order) + one for one in records)  # type: ignore[arg-type]
        samples.append(bytes([at]) + framed)
    return samples + [b"\x04" + _container(codec) for codec in ("null", "deflate", "snappy", "zstandard")]


def decode_file(data: bytes) -> list[object]:
    """All that a reader would make of it."""
    form = _FORMATS[data[0] % len(_FORMATS) if data else 0]
    body = data[1:]
    header = None
    if isinstance(form, Avro):
        header = parse_header(body)
        if header is None:
            return []
        body = body[header.size :]
    made: list[object] = []
    while (chunk := form.decode(body, header, 0, 1000)) is not None:
        made.append((chunk.offsets.tolist(), chunk.columns, [len(values) for values in chunk.values]))
        if chunk.partial or not chunk.consumed:
            break
        body = body[chunk.consumed :]
    form.is_record(body)
    form.last(body, header)
    return made


def _long(value: int) -> bytes:
    plain = value << 1
    out = bytearray()
    while plain > 0x7F:
        out.append(plain & 0x7F | 0x80)
        plain >>= 7
    return bytes([*out, plain])


def _text(text: bytes) -> bytes:
    return _long(len(text)) + text


def _row(number: int, following: bytes) -> bytes:
    name = _long(1) + _text(b"name") if number % 2 else _long(0)
    tags = _long(2) + _text(b"a") + _text("é".encode()) + _long(0)
    more = _long(2) + _text(b"x") + _long(1) + bytes(8) + _text(b"y") + _long(2) + b"\x01" + _long(0)
    fixed = _long(number % 2) + b"hash" + _text(b"\x00\x7b") + _long(1_700_000_000_000_000)
    return _long(number) + name + fixed + tags + more + following + bytes(4)


def _container(codec: str) -> bytes:
    meta = {b"avro.schema": json.dumps(_SCHEMA).encode(), b"avro.codec": codec.encode()}
    head = (
        b"Obj\x01"
        + _long(len(meta))
        + b"".join(_text(k) + _text(v) for k, v in meta.items())
        + b"\x00"
        + _SYNC
    )
    rows = [_row(number, _long(1) + _row(9, _long(0)) if number == 1 else _long(0)) for number in range(3)]
    body = b"".join(rows)
    match codec:
        case "deflate":
            body = zlib.compress(body)[2:-4]
        case "snappy":
            checksum = zlib.crc32(body).to_bytes(4, "big")
            body = bytes(pa.Codec("snappy").compress(body, asbytes=True)) + checksum
        case "zstandard":
            body = zstandard.compress(body)
    return head + (_long(3) + _long(len(body)) + body + _SYNC) * 2

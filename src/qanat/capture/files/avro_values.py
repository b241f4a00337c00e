"""Avro binary into Arrow columns: one small reader per type, put together once per schema.

Pure. Every way to run out of bytes or of allowance is a `MalformedLog`; what is allocated is bounded by the
bytes of the block, and by `MOST_EMPTY` for values that take no bytes at all.
"""

import math
from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.files.avro_schema import DEEPEST, Type
from qanat.capture.json_text import encode

MOST_EMPTY = 1 << 20
"""Values without a byte (null, records and fixed without content) in one block."""

Value = Callable[["Bytes"], Any]
Arrow = Callable[[list[Any]], pa.Array]

_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}


class Bytes:
    """The bytes of a block, and how far they were read."""

    __slots__ = ("at", "data", "depth", "empty", "end")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.end = len(data)
        self.at = 0
        self.depth = 0
        self.empty = MOST_EMPTY

    def long(self) -> int:
        data, at = self.data, self.at
        try:
            byte = data[at]
            value, shift = byte & 0x7F, 7
            while byte > 0x7F:
                at += 1
                byte = data[at]
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > 70:
                    raise MalformedLog("a whole number of an Avro block has more than 10 bytes")
        except IndexError:
            raise _short() from None
        self.at = at + 1
        if value >> 64:
            raise MalformedLog("a whole number of an Avro block has more than 64 bits")
        return value >> 1 ^ -(value & 1)

    def take(self, count: int) -> bytes:
        at = self.at
        if count < 0 or count > self.end - at:
            raise _short()
        self.at = at + count
        return self.data[at : at + count]

    def spend(self, count: int) -> None:
        """So many values follow that may have no bytes."""
        self.empty -= count
        if self.empty < 0:
            raise MalformedLog(f"an Avro block has more than {MOST_EMPTY} values without content")


def _short() -> MalformedLog:
    return MalformedLog("a value reaches past the end of its Avro block")


def value_reader(kind: Type, plain: bool, known: dict[int, Value] | None = None) -> Value:
    """Reads one value; `plain`: as what JSON can hold, for values inside others."""
    made_by: dict[int, Value] = {} if known is None else known
    at = id(kind)
    if at not in made_by:

        def later(data: Bytes) -> Any:
            """For a type that contains itself: its reader is there when it is called."""
            return made_by[at](data)

        made_by[at] = later
        made_by[at] = _make(kind, plain, made_by)
    return made_by[at]


def _make(kind: Type, plain: bool, known: dict[int, Value]) -> Value:
    match kind.kind:
        case "null":
            return lambda data: data.spend(1)
        case "boolean":
            return _boolean
        case "int":
            return _int
        case "long":
            return Bytes.long
        case "float":
            return _float(_FLOAT, plain)
        case "double":
            return _float(_DOUBLE, plain)
        case "bytes":
            return (lambda data: data.take(data.long()).decode("latin-1")) if plain else _bytes
        case "string":
            return _string
        case "fixed":
            return _fixed(kind.size, plain)
        case "enum":
            return _enum(kind.symbols)
        case "union":
            return _union([value_reader(branch, plain, known) for branch in kind.branches])
        case "record":
            return _record([(name, value_reader(part, True, known)) for name, part in kind.fields])
        case "array":
            return _nested(_array(value_reader(_items(kind), True, known)))
    return _nested(_map(value_reader(_items(kind), True, known)))


def _items(kind: Type) -> Type:
    return kind.items if kind.items is not None else Type("null")


def _boolean(data: Bytes) -> bool:
    byte = data.take(1)[0]
    if byte > 1:
        raise MalformedLog(f"a boolean of an Avro block is {byte}")
    return byte == 1


def _int(data: Bytes) -> int:
    value = data.long()
    if not -(1 << 31) <= value < 1 << 31:
        raise MalformedLog(f"an int of an Avro block is {value}")
    return value


def _float(layout: Struct, plain: bool) -> Value:
    def read(data: Bytes) -> Any:
        (value,) = layout.unpack(data.take(layout.size))
        if plain and not math.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return value

    return read


def _bytes(data: Bytes) -> bytes:
    return data.take(data.long())


def _string(data: Bytes) -> str:
    try:
        return data.take(data.long()).decode()
    except UnicodeDecodeError:
        raise MalformedLog("a string of an Avro block is not UTF-8") from None


def _fixed(size: int, plain: bool) -> Value:
    def read(data: Bytes) -> Any:
        if not size:
            data.spend(1)
        value = data.take(size)
        return value.decode("latin-1") if plain else value

    return read


def _enum(symbols: tuple[str, ...]) -> Value:
    def read(data: Bytes) -> str:
        at = data.long()
        if not 0 <= at < len(symbols):
            raise MalformedLog(f"an enum of an Avro block has no symbol {at}")
        return symbols[at]

    return read


def _union(readers: list[Value]) -> Value:
    def read(data: Bytes) -> Any:
        at = data.long()
        if not 0 <= at < len(readers):
            raise MalformedLog(f"a union of an Avro block has no branch {at}")
        return readers[at](data)

    return read


def _nested(read: Value) -> Value:
    def deeper(data: Bytes) -> Any:
        data.depth += 1
        if data.depth > DEEPEST:
            raise MalformedLog(f"an Avro block has more than {DEEPEST} values inside each other")
        value = read(data)
        data.depth -= 1
        return value

    return deeper


def _record(fields: list[tuple[str, Value]]) -> Value:
    def read(data: Bytes) -> dict[str, Any]:
        if not fields:
            data.spend(1)
        return {name: reader(data) for name, reader in fields}

    return _nested(read)


def _count(data: Bytes) -> int:
    """Of the next values of an array or a map; a negative count has its size in bytes behind it."""
    count = data.long()
    if count < 0:
        count = -count
        data.long()
    if count > data.end - data.at:
        data.spend(count)
    return count


def _array(item: Value) -> Value:
    def read(data: Bytes) -> list[Any]:
        values: list[Any] = []
        while count := _count(data):
            values += [item(data) for _ in range(count)]
        return values

    return read


def _map(item: Value) -> Value:
    def read(data: Bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while count := _count(data):
            for _ in range(count):
                name = _string(data)
                values[name] = item(data)
        return values

    return read


def arrow_of(kind: Type) -> tuple[pa.DataType, str, Type]:
    """The Arrow type of a column, what it is called, and the type without `null`; JSON text for what has no
    plain type."""
    inner = kind
    if kind.kind == "union":
        others = [branch for branch in kind.branches if branch.kind != "null"]
        if not others:
            return pa.null(), "null", kind
        if len(others) > 1:
            return pa.string(), "json", kind
        (inner,) = others
    return _arrow(inner) or pa.string(), inner.label if _arrow(inner) is not None else "json", inner


def _arrow(kind: Type) -> pa.DataType | None:
    logical = kind.logical
    if logical == "decimal":
        return (pa.decimal128 if kind.precision <= 38 else pa.decimal256)(kind.precision, kind.scale)
    if logical == "date":
        return pa.date32()
    if logical.startswith("time-"):
        return pa.time32("ms") if logical.endswith("millis") else pa.time64("us")
    if "timestamp" in logical:
        unit = _UNITS[logical.rpartition("-")[2]]
        return pa.timestamp(unit, None if logical.startswith("local") else "UTC")
    if kind.kind == "fixed":
        return pa.binary(kind.size) if kind.size else pa.binary()
    return _PLAIN.get(kind.kind)


_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}


def column_maker(kind: Type) -> Arrow:
    """Makes a column of what `value_reader` read."""
    arrow, declared, inner = arrow_of(kind)
    if declared == "json":
        return lambda values: pa.array(
            [None if value is None else encode(value).decode() for value in values], arrow
        )
    if inner.logical == "decimal":
        return lambda values: _decimals(values, inner, arrow)
    if inner.logical and arrow != pa.string():
        whole = pa.int32() if inner.kind == "int" else pa.int64()
        return lambda values: pa.array(values, whole).view(arrow)
    return lambda values: pa.array(values, arrow)


def _decimals(values: list[Any], kind: Type, arrow: pa.DataType) -> pa.Array:
    """The bytes are two's complement, the greatest first; Arrow wants them the least first, and all of one
    width."""
    width = 16 if kind.precision <= 38 else 32
    whole = [0 if value is None else int.from_bytes(value, "big", signed=True) for value in values]
    most = 10**kind.precision
    if not all(-most < value < most for value in whole):
        raise MalformedLog(f"a decimal of an Avro block has more than {kind.precision} digits")
    body = b"".join(value.to_bytes(width, "little", signed=True) for value in whole)
    there = np.array([value is not None for value in values], bool)
    bits = pa.py_buffer(np.packbits(there, bitorder="little").tobytes())
    return pa.Array.from_buffers(arrow, len(values), [bits, pa.py_buffer(body)])

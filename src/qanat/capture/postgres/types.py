"""How values of PostgreSQL's types are held, and their texts turned into columns.

Values come as the texts that the type's output function makes under the settings of `SESSION`, whole columns
at a time. A value that its Arrow type cannot hold (`NaN` in a numeric, `infinity` in a date, a year before 1
or after 9999, `24:00:00`) is refused here by an Arrow error; the caller then gives that row's column as text,
so nothing is rounded, clipped or made null.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SESSION = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
}
"""Settings under which the texts are made: the same on every server, and the shortest that read back
exactly."""


class Type(NamedTuple):
    """`decode` takes a string array; None: the text is the value."""

    arrow: pa.DataType
    decode: Callable[[pa.Array], pa.Array] | None


def _caster(arrow: pa.DataType) -> Type:
    return Type(arrow, lambda texts: texts.cast(arrow))


def _booleans(texts: pa.Array) -> pa.Array:
    true = pc.equal(texts, "t")
    if not pc.all(pc.or_(true, pc.equal(texts, "f")), skip_nulls=True, min_count=0).as_py():
        raise pa.ArrowInvalid("a boolean is neither t nor f")
    return true


def _times(texts: pa.Array) -> pa.Array:
    days = pc.binary_join_element_wise(pa.scalar("1970-01-01"), texts, " ")
    return days.cast(pa.timestamp("us")).cast(pa.time64("us"))


_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)
_NIBBLES[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16, dtype=np.uint8)
_PREFIX = np.frombuffer(b"\\x", np.uint8)


def _bytes(texts: pa.Array) -> pa.Array:
    """`\\x` and two hexadecimal digits for each byte."""
    count = len(texts)
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    there = texts.is_valid().to_numpy(zero_copy_only=False)
    if (lengths % 2).any() or (lengths[there] < 2).any():
        raise pa.ArrowInvalid("a bytea is not hexadecimal")
    ends = np.cumsum(lengths)
    starts = ends - lengths
    joined = b"".join(texts.cast(pa.binary()).drop_null().to_pylist())
    digits = np.frombuffer(joined, np.uint8)
    prefixes = starts[there]
    if (digits[prefixes] != _PREFIX[0]).any() or (digits[prefixes + 1] != _PREFIX[1]).any():
        raise pa.ArrowInvalid("a bytea is not hexadecimal")
    keep = np.ones(len(digits), bool)
    keep[prefixes] = keep[prefixes + 1] = False
    nibbles = _NIBBLES[digits[keep]]
    if (nibbles == 255).any():
        raise pa.ArrowInvalid("a bytea is not hexadecimal")
    data = (nibbles[0::2] << 4) | nibbles[1::2]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.where(there, lengths // 2 - 1, 0), out=offsets[1:])
    bits = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [bits, pa.py_buffer(offsets), pa.py_buffer(data)])


TEXT = Type(pa.string(), None)

_BY_NAME: dict[str, Type] = {
    "bool": Type(pa.bool_(), _booleans),
    "bytea": Type(pa.binary(), _bytes),
    "int2": _caster(pa.int16()),
    "int4": _caster(pa.int32()),
    "int8": _caster(pa.int64()),
    "oid": _caster(pa.uint32()),
    "float4": _caster(pa.float32()),
    "float8": _caster(pa.float64()),
    "date": _caster(pa.date32()),
    "time": Type(pa.time64("us"), _times),
    "timestamp": _caster(pa.timestamp("us")),
    "timestamptz": _caster(pa.timestamp("us", "UTC")),
}

# Object identifiers of types are fixed for those that come with PostgreSQL (src/include/catalog/pg_type.dat).
BUILT_IN: dict[int, str] = {
    16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text",
    26: "oid", 114: "json", 142: "xml", 600: "point", 601: "lseg", 602: "path", 603: "box", 604: "polygon",
    628: "line", 650: "cidr", 700: "float4", 701: "float8", 718: "circle", 774: "macaddr8", 790: "money",
    829: "macaddr", 869: "inet", 1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time",
    1114: "timestamp", 1184: "timestamptz", 1186: "interval", 1266: "timetz", 1560: "bit", 1562: "varbit",
    1700: "numeric", 2950: "uuid", 3220: "pg_lsn", 3614: "tsvector", 3615: "tsquery", 3802: "jsonb",
    3904: "int4range", 3906: "numrange", 3908: "tsrange", 3910: "tstzrange", 3912: "daterange",
    3926: "int8range", 1000: "bool[]", 1001: "bytea[]", 1005: "int2[]", 1007: "int4[]", 1009: "text[]",
    1014: "bpchar[]", 1015: "varchar[]", 1016: "int8[]", 1021: "float4[]", 1022: "float8[]",
    1115: "timestamp[]", 1182: "date[]", 1183: "time[]", 1185: "timestamptz[]", 1231: "numeric[]",
    2951: "uuid[]", 199: "json[]", 3807: "jsonb[]",
}  # fmt: skip

_MODIFIED_LENGTH = {"bpchar", "varchar"}
_MODIFIED_FRACTION = {"time", "timetz", "timestamp", "timestamptz"}
_MODIFIED_BITS = {"bit", "varbit"}


@cache
def type_of(name: str, modifier: int) -> Type:
    """By the type's name in the catalogue; what is not known, and what has no exact Arrow type, stays
    text."""
    if name == "numeric":
        return _numeric(modifier)
    return _BY_NAME.get(name, TEXT)


def declared(name: str, modifier: int) -> str:
    """The type as one would declare it: `numeric(10,2)`, `varchar(20)`."""
    if modifier >= 4 and name == "numeric":
        precision, scale = precision_and_scale(modifier)
        return f"numeric({precision},{scale})"
    if modifier >= 4 and name in _MODIFIED_LENGTH:
        return f"{name}({modifier - 4})"
    if modifier >= 0 and name in _MODIFIED_FRACTION | _MODIFIED_BITS:
        return f"{name}({modifier})"
    return name


def precision_and_scale(modifier: int) -> tuple[int, int]:
    """Scales are 11 bits wide and may be negative since version 15."""
    packed = modifier - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def _numeric(modifier: int) -> Type:
    if modifier < 4:
        return TEXT
    precision, scale = precision_and_scale(modifier)
    if not 0 <= scale <= precision or not 0 < precision <= 76:
        return TEXT
    return _caster(pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale))

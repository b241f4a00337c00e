"""Types of columns: how a binlog lays their values out, and how they are held here."""

from dataclasses import dataclass

import pyarrow as pa

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb.charsets import LONGEST, is_text

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT = 10, 11, 12, 13, 14, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
NEWDECIMAL, ENUM, SET = 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255

META_BYTES = {
    TINY: 0, SHORT: 0, LONG: 0, FLOAT: 1, DOUBLE: 1, TIMESTAMP: 0, LONGLONG: 0, INT24: 0, DATE: 0, TIME: 0,
    DATETIME: 0, YEAR: 0, NEWDATE: 0, VARCHAR: 2, BIT: 2, TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1,
    BLOB_COMPRESSED: 1, VARCHAR_COMPRESSED: 2, NEWDECIMAL: 2, ENUM: 2, SET: 2, TINY_BLOB: 1, MEDIUM_BLOB: 1,
    LONG_BLOB: 1, BLOB: 1, VAR_STRING: 2, STRING: 2, GEOMETRY: 1,
}  # fmt: skip
"""Types that a table map may name, and how many bytes it says about each."""
NUMBERS = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, NEWDECIMAL, YEAR})
"""Those that have a bit for their sign."""
BLOBS = frozenset({TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, BLOB_COMPRESSED})
STRINGS = frozenset({VARCHAR, VARCHAR_COMPRESSED, VAR_STRING, STRING})
CHARACTERS = BLOBS | STRINGS
"""Those that have a character set."""
_FIXED = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, FLOAT: 4, DOUBLE: 8}
_FIXED |= {YEAR: 1, DATE: 3, NEWDATE: 3, TIME: 3, TIMESTAMP: 4, DATETIME: 8}
_SIGNED = {TINY: pa.int8(), SHORT: pa.int16(), INT24: pa.int32(), LONG: pa.int32(), LONGLONG: pa.int64()}
_UNSIGNED = {
    TINY: pa.uint8(),
    SHORT: pa.uint16(),
    INT24: pa.uint32(),
    LONG: pa.uint32(),
    LONGLONG: pa.uint64(),
}
_NAMES = {
    TINY: "tinyint",
    SHORT: "smallint",
    INT24: "mediumint",
    LONG: "int",
    LONGLONG: "bigint",
    FLOAT: "float",
}
_NAMES |= {
    DOUBLE: "double",
    YEAR: "year",
    DATE: "date",
    NEWDATE: "date",
    TIME: "time",
    TIMESTAMP: "timestamp",
}
_NAMES |= {DATETIME: "datetime", GEOMETRY: "geometry"}
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a group of so many decimal digits."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """`meta` is what the table map says beside the code: a length, a precision and scale, digits of a
    fraction."""

    code: int
    meta: int = 0
    unsigned: bool = False
    charset: str = "binary"
    members: tuple[str, ...] = ()
    """The values of an ENUM or SET."""
    declared: str = ""
    """As the datastore would print it; filled in where it is known better than from here."""

    @property
    def precision(self) -> int:
        return self.meta & 0xFF

    @property
    def scale(self) -> int:
        return self.meta >> 8

    @property
    def width(self) -> int:
        """Bytes of every value, or 0 if each says its own length in `prefix` bytes."""
        code, meta = self.code, self.meta
        if code in _FIXED:
            return _FIXED[code]
        if code in (ENUM, SET):
            return meta & 0xFF
        if code == BIT:
            return (meta >> 8) + (1 if meta & 0xFF else 0)
        if code in (TIMESTAMP2, DATETIME2, TIME2):
            return {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}[code] + (meta + 1) // 2
        if code == NEWDECIMAL:
            whole, part = divmod(self.precision - self.scale, 9), divmod(self.scale, 9)
            return 4 * (whole[0] + part[0]) + DIGIT_BYTES[whole[1]] + DIGIT_BYTES[part[1]]
        return 0

    @property
    def prefix(self) -> int:
        if self.code in BLOBS or self.code == GEOMETRY:
            return self.meta
        return 2 if self.meta > 255 else 1

    def check(self) -> None:
        """Refuses what no server writes, before anything is computed from it."""
        code, meta = self.code, self.meta
        sound = True
        if code in BLOBS or code == GEOMETRY:
            sound = 1 <= meta <= 4
        elif code == BIT:
            sound = 1 <= (meta & 0xFF) + 8 * (meta >> 8) <= 64 and meta & 0xFF < 8
        elif code in (TIMESTAMP2, DATETIME2, TIME2):
            sound = meta <= 6
        elif code == NEWDECIMAL:
            sound = 1 <= self.precision <= 65 and self.scale <= min(38, self.precision)
        elif code == ENUM:
            sound = meta in (1, 2)
        elif code == SET:
            sound = 1 <= meta <= 8
        if not sound:
            raise MalformedLog(f"a table map has a column of type {code} with the impossible size {meta}")

    @property
    def is_text(self) -> bool:
        return self.code in CHARACTERS and is_text(self.charset)

    @property
    def arrow(self) -> pa.DataType:
        code = self.code
        if code in _SIGNED:
            return (_UNSIGNED if self.unsigned else _SIGNED)[code]
        match code:
            case _ if code == FLOAT:
                return pa.float32()
            case _ if code == DOUBLE:
                return pa.float64()
            case _ if code == NEWDECIMAL:
                return (pa.decimal128 if self.precision <= 38 else pa.decimal256)(self.precision, self.scale)
            case _ if code in (DATE, NEWDATE):
                return pa.date32()
            case _ if code in (TIMESTAMP, TIMESTAMP2):
                return pa.timestamp("us", "UTC")
            case _ if code in (DATETIME, DATETIME2):
                return pa.timestamp("us")
            case _ if code in (TIME, TIME2):
                return pa.duration("us")
            case _ if code == YEAR:
                return pa.uint16()
            case _ if code == BIT:
                return pa.uint64()
            case _ if code in (ENUM, SET):
                return pa.string()
        return pa.string() if self.is_text else pa.binary()

    @property
    def name(self) -> str:
        """A declaration that says the same, though not always in the words that the table was created
        with."""
        if self.declared:
            return self.declared
        code, meta = self.code, self.meta
        if code in _SIGNED:
            return _NAMES[code] + (" unsigned" if self.unsigned else "")
        if code in _NAMES:
            return _NAMES[code]
        if code == NEWDECIMAL:
            return f"decimal({self.precision},{self.scale})" + (" unsigned" if self.unsigned else "")
        if code in (TIMESTAMP2, DATETIME2, TIME2):
            base = {TIMESTAMP2: "timestamp", DATETIME2: "datetime", TIME2: "time"}[code]
            return f"{base}({meta})" if meta else base
        if code == BIT:
            return f"bit({(meta & 0xFF) + 8 * (meta >> 8)})"
        if code in (ENUM, SET):
            quoted = ",".join("'" + one.replace("'", "''") + "'" for one in self.members)
            return f"{'enum' if code == ENUM else 'set'}({quoted})"
        text = self.charset != "binary"
        if code in BLOBS:
            size = {1: "tiny", 2: "", 3: "medium", 4: "long"}.get(meta, "")
            return size + ("text" if text else "blob")
        base = ("char" if text else "binary") if code == STRING else ("varchar" if text else "varbinary")
        return f"{base}({meta // LONGEST.get(self.charset, 1)})"

"""Table maps: what the rows that follow look like, and with `binlog_row_metadata=FULL` what their columns are
called."""

import struct
from dataclasses import dataclass, field, replace

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb.charsets import CHARSET_OF, is_text, text_of
from qanat.capture.mariadb.decode_events import Event
from qanat.capture.mariadb.types import (
    CHARACTERS,
    ENUM,
    GEOMETRY,
    META_BYTES,
    NUMBERS,
    SET,
    STRING,
    ColumnType,
)

COLUMN_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class TableMap:
    """`names` is empty if the log does not say them; then signs, character sets and keys are not known
    either."""

    id: int
    database: str
    name: str
    types: tuple[ColumnType, ...]
    names: tuple[str, ...] = ()
    keys: frozenset[int] = field(default=frozenset())

    @property
    def shape(self) -> tuple[tuple[int, int], ...]:
        """What a table map always has; two versions of a table may differ in more."""
        return tuple((column.code, column.meta) for column in self.types)


class _Cursor:
    """Reads forward; past the end is a malformed log, not an index error."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise MalformedLog("a table map is cut short")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        """A length-encoded integer."""
        first = self.take(1)[0]
        if first < 251:
            return first
        if first == 251 or first == 255:
            raise MalformedLog("a table map has a length that is none")
        return int.from_bytes(self.take({252: 2, 253: 3, 254: 8}[first]), "little")

    def text(self) -> bytes:
        return self.take(self.number())

    def rest(self) -> bool:
        return self.at < len(self.data)


def table_name(event: Event) -> tuple[str, str]:
    """Database and name, whatever the rest of a table map says."""
    cursor = _Cursor(bytes(event.body))
    cursor.take(8)
    return _name(cursor), _name(cursor)


def _name(cursor: _Cursor) -> str:
    return cursor.take(cursor.take(1)[0] + 1)[:-1].decode("utf-8", "replace")


def decode_table_map(event: Event) -> TableMap:
    cursor = _Cursor(bytes(event.body))
    number = int.from_bytes(cursor.take(6), "little")
    cursor.take(2)
    database, name = _name(cursor), _name(cursor)
    count = cursor.number()
    if count > COLUMN_LIMIT:
        raise MalformedLog(f"a table map of {count} columns is above the limit of {COLUMN_LIMIT}")
    codes = cursor.take(count)
    metas = _Cursor(cursor.text())
    types = tuple(_column(code, metas) for code in codes)
    cursor.take((count + 7) // 8)
    table = TableMap(number, database, name, types)
    return _with_metadata(table, cursor) if cursor.rest() else table


def _column(code: int, metas: _Cursor) -> ColumnType:
    if code not in META_BYTES:
        raise MalformedLog(f"a table map has a column of the unknown type {code}")
    raw = metas.take(META_BYTES[code])
    if code != STRING:
        column = ColumnType(code, int.from_bytes(raw, "little"))
        column.check()
        return column
    # Enumerations, sets and CHAR share a type: the first byte tells them apart, and lends two bits to the
    # length of a CHAR.
    real, length = raw
    if real & 0x30 != 0x30:
        length |= ((real & 0x30) ^ 0x30) << 4
        real |= 0x30
    if real not in (STRING, ENUM, SET):
        raise MalformedLog(f"a table map has a string column of the unknown type {real}")
    column = ColumnType(real, length)
    column.check()
    return column


def _with_metadata(table: TableMap, cursor: _Cursor) -> TableMap:
    """The optional part: fields of (type, length, value); see binlog_row_metadata in MariaDB's
    documentation."""
    types = list(table.types)
    names: tuple[str, ...] = ()
    keys: frozenset[int] = frozenset()
    numbers = [at for at, column in enumerate(types) if column.code in NUMBERS]
    # A geometry is a blob with a character set, to the server.
    characters = [
        at for at, column in enumerate(types) if column.code in CHARACTERS or column.code == GEOMETRY
    ]
    chosen = {code: [at for at, column in enumerate(types) if column.code == code] for code in (SET, ENUM)}
    either = [at for at, column in enumerate(types) if column.code in (ENUM, SET)]
    members: dict[int, list[bytes]] = {}
    while cursor.rest():
        kind = cursor.take(1)[0]
        value = _Cursor(cursor.text())
        if kind == 1:
            bits = value.take((len(numbers) + 7) // 8)
            for place, at in enumerate(numbers):
                types[at] = replace(types[at], unsigned=bool(bits[place // 8] & (0x80 >> place % 8)))
        elif kind in (2, 10):
            columns = characters if kind == 2 else either
            default = value.number()
            others = {}
            while value.rest():
                place = value.number()
                others[place] = value.number()
            for place, at in enumerate(columns):
                types[at] = replace(types[at], charset=_charset(others.get(place, default)))
        elif kind in (3, 11):
            for at in characters if kind == 3 else either:
                types[at] = replace(types[at], charset=_charset(value.number()))
        elif kind == 4:
            names = tuple(value.text().decode("utf-8", "replace") for _ in types)
        elif kind in (5, 6):
            for at in chosen[SET if kind == 5 else ENUM]:
                members[at] = [value.text() for _ in range(min(value.number(), 65536))]
        elif kind == 8:
            found = set()
            while value.rest():
                found.add(value.number())
            keys = frozenset(found)
        elif kind == 9:
            found = set()
            while value.rest():
                found.add(value.number())
                value.number()
            keys = frozenset(found)
    for at, values in members.items():  # last, since their character set may come after them
        types[at] = replace(types[at], members=tuple(_member(one, types[at].charset) for one in values))
    return replace(table, types=tuple(types), names=names, keys=keys)


def _charset(collation: int) -> str:
    return CHARSET_OF.get(collation, "binary")


def _member(value: bytes, charset: str) -> str:
    try:
        return text_of(value, charset if is_text(charset) else "utf8mb4")
    except UnicodeDecodeError:
        return value.decode("latin-1")


_ROWS_V2_EXTRA = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class RowsHead:
    """`whole`: the images have every column (`binlog_row_image=FULL`). The images begin at `at` of it."""

    table: int
    columns: int
    whole: bool
    at: int
    last: bool


def decode_rows_head(body: memoryview, *, version: int, update: bool) -> RowsHead:
    cursor = _Cursor(bytes(body[:1600]))  # 6 + 2 + 2 bytes, and two bitmaps of at most 4096 columns
    table = int.from_bytes(cursor.take(6), "little")
    flags = int.from_bytes(cursor.take(2), "little")
    if version == 2:
        (extra,) = _ROWS_V2_EXTRA.unpack(cursor.take(2))
        if extra < 2:
            raise MalformedLog("an event of rows has a negative length of extra data")
        cursor.take(extra - 2)
    columns = cursor.number()
    if columns > COLUMN_LIMIT:
        raise MalformedLog(f"rows of {columns} columns are above the limit of {COLUMN_LIMIT}")
    full = (1 << columns) - 1
    whole = True
    for _ in range(2 if update else 1):
        bits = int.from_bytes(cursor.take((columns + 7) // 8), "little")
        whole = whole and bits & full == full
    return RowsHead(table, columns, whole, cursor.at, bool(flags & 1))

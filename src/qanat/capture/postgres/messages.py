"""The messages of `pgoutput` other than rows, protocol versions 1 and 2: bytes in, values out.

Format: PostgreSQL's manual, "Logical Replication Message Formats". All numbers are big-endian; strings end
with a zero byte. Inside a part of a large transaction each message has the 32-bit id of its (sub)transaction
after its type byte: `Body` is given where the rest begins.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from qanat.capture.errors import MalformedLog

EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts microseconds from the beginning of 2000."""

MAX_COLUMNS = 1664
"""What a tuple of PostgreSQL can have at most."""


class Kind(IntEnum):
    """First byte of each message."""

    BEGIN = ord("B")
    COMMIT = ord("C")
    ORIGIN = ord("O")
    RELATION = ord("R")
    TYPE = ord("Y")
    INSERT = ord("I")
    UPDATE = ord("U")
    DELETE = ord("D")
    TRUNCATE = ord("T")
    MESSAGE = ord("M")
    STREAM_START = ord("S")
    STREAM_STOP = ord("E")
    STREAM_COMMIT = ord("c")
    STREAM_ABORT = ord("A")


class Body:
    """Reads a message from its front; whatever is not there is a `MalformedLog`. `codec`: in which names are,
    if not in UTF-8."""

    __slots__ = ("_at", "_codec", "_data")

    def __init__(self, data: bytes, at: int, codec: str = "") -> None:
        self._data = data
        self._at = at
        self._codec = codec or "utf-8"

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        if self._at + size > len(self._data):
            raise MalformedLog(
                f"a pgoutput message of type {self._data[:1]!r} ends after {len(self._data)} bytes"
            )
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(value)

    def string(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise MalformedLog(f"a string in a pgoutput message of type {self._data[:1]!r} has no end")
        raw = self._data[self._at : end]
        self._at = end + 1
        # A table may be called by bytes that are no text (SQL_ASCII): its rows are read all the same, and it
        # has a name that can be said.
        return raw.decode(self._codec, "backslashreplace")

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise MalformedLog(
                f"a pgoutput message of type {self._data[:1]!r} ends after {len(self._data)} bytes"
            )
        self._at += size
        return self._data[self._at - size : self._at]


class Attribute(NamedTuple):
    name: str
    type_id: int
    modifier: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on in the stream."""

    id: int
    schema: str
    name: str
    identity: str
    """`d` primary key, `i` an index, `f` the whole row, `n` nothing."""
    attributes: tuple[Attribute, ...]


class TypeName(NamedTuple):
    """A type that does not come with PostgreSQL; of a domain, the name of the type below it."""

    id: int
    schema: str
    name: str


class Begin(NamedTuple):
    """`lsn`: where the transaction's commit record begins."""

    lsn: int
    time_us: int
    xid: int


class Commit(NamedTuple):
    lsn: int
    end: int
    time_us: int


class StreamCommit(NamedTuple):
    xid: int
    commit: Commit


class Truncate(NamedTuple):
    relations: tuple[int, ...]


class Message(NamedTuple):
    """What `pg_logical_emit_message` wrote."""

    lsn: int
    transactional: bool
    prefix: str
    content: bytes


class StreamAbort(NamedTuple):
    xid: int
    subxid: int


def relation(body: Body) -> Relation:
    number, schema, name = body.number(">I"), body.string(), body.string()
    identity = chr(body.number(">B"))
    if identity not in "dnfi":
        raise MalformedLog(f"table {schema}.{name} has the unknown replica identity {identity!r}")
    count = body.number(">h")
    if not 0 <= count <= MAX_COLUMNS:
        raise MalformedLog(f"table {schema}.{name} has {count} columns; PostgreSQL allows {MAX_COLUMNS}")
    attributes = []
    for _ in range(count):
        key = bool(body.number(">B") & 1)
        column, type_id, modifier = body.string(), body.number(">I"), body.number(">i")
        attributes.append(Attribute(column, type_id, modifier, key))
    if len({attribute.name for attribute in attributes}) < count:
        raise MalformedLog(f"table {schema}.{name} has two columns of one name")
    return Relation(number, schema or "pg_catalog", name, identity, tuple(attributes))


def type_name(body: Body) -> TypeName:
    return TypeName(body.number(">I"), body.string(), body.string())


def begin(body: Body) -> Begin:
    return Begin(body.number(">Q"), body.number(">q") + EPOCH_US, body.number(">I"))


def commit(body: Body) -> Commit:
    body.number(">B")
    return Commit(body.number(">Q"), body.number(">Q"), body.number(">q") + EPOCH_US)


def stream_commit(body: Body) -> StreamCommit:
    return StreamCommit(body.number(">I"), commit(body))


def stream_abort(body: Body) -> StreamAbort:
    return StreamAbort(body.number(">I"), body.number(">I"))


def truncate(body: Body) -> Truncate:
    count = body.number(">i")
    body.number(">B")
    raw = body.take(4 * count)
    return Truncate(struct.unpack(f">{count}I", raw))


def message(body: Body) -> Message:
    transactional = bool(body.number(">B") & 1)
    lsn, prefix = body.number(">Q"), body.string()
    return Message(lsn, transactional, prefix, body.take(body.number(">i")))

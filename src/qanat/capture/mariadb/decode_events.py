"""The events of a binlog, from bytes: header, checksum, and the bodies that are not rows.

Layouts: https://mariadb.com/kb/en/2-binlog-event-header/ and its sister pages. Integers are little-endian.
"""

import re
import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from qanat.capture.errors import MalformedLog

HEADER = struct.Struct("<IBIIIH")
HEADER_BYTES = HEADER.size
CHECKSUM_BYTES = 4
ROWS_LIMIT_BYTES = 1 << 30
"""No event may become larger than this, compressed or not: MariaDB's own limit of a packet."""


class Kind(IntEnum):
    """Types of events; the rows of a `COMPRESSED_…` are those of its plain sister, deflated."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT = 15
    XID = 16
    BEGIN_LOAD = 17
    EXECUTE_LOAD = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    MYSQL_GTID = 33
    XA_PREPARE = 38
    ANNOTATE = 160
    CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    ENCRYPTION = 164
    COMPRESSED_QUERY = 165
    COMPRESSED_WRITE_ROWS_V1 = 166
    COMPRESSED_UPDATE_ROWS_V1 = 167
    COMPRESSED_DELETE_ROWS_V1 = 168
    COMPRESSED_WRITE_ROWS = 169
    COMPRESSED_UPDATE_ROWS = 170
    COMPRESSED_DELETE_ROWS = 171


_FORMAT = int(Kind.FORMAT)
_unpack = HEADER.unpack_from
_checksum = struct.Struct("<I").unpack_from
_crc32 = zlib.crc32


class Event(NamedTuple):
    """One event without its checksum. `end` is the offset after it in its file, 0 if it is in none."""

    time_s: int
    kind: int
    server: int
    end: int
    flags: int
    body: memoryview


def decode_event(data: memoryview, checksummed: bool) -> Event:
    """`data` is exactly one event."""
    size = len(data)
    if size < HEADER_BYTES:
        raise MalformedLog(f"a binlog event of {size} bytes is shorter than its header")
    time_s, kind, server, announced, end, flags = _unpack(data)
    if announced != size:
        raise MalformedLog(f"a binlog event says that it has {announced} bytes, and has {size}")
    # A format description says itself whether it has a checksum, and is read with `decode_format`.
    if checksummed and kind != _FORMAT:
        size -= CHECKSUM_BYTES
        if size < HEADER_BYTES or _crc32(data[:size]) != _checksum(data, size)[0]:
            raise MalformedLog(
                f"the binlog event that ends at {end} fails its checksum: its log file is damaged"
            )
    return Event(time_s, kind, server, end, flags, data[HEADER_BYTES:size])


def decode_format(event: Event) -> bool:
    """Whether the events that follow have a checksum. The last five bytes are the algorithm and a
    checksum."""
    body = event.body
    if len(body) < 57 + CHECKSUM_BYTES + 1:
        raise MalformedLog(f"a format description of {len(body)} bytes is too short")
    version = int.from_bytes(body[:2], "little")
    if version != 4:
        raise MalformedLog(f"the binlog has format {version}; only format 4 is read (MariaDB 5.0 and later)")
    algorithm = body[-CHECKSUM_BYTES - 1]
    if algorithm > 1:
        raise MalformedLog(f"the binlog has checksums of the unknown kind {algorithm}")
    return algorithm == 1


_gtid = struct.Struct("<QIB").unpack_from
STANDALONE, GROUPED, PREPARED, COMPLETED = 1, 2, 64, 128


class Gtid(NamedTuple):
    domain: int
    server: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "Gtid":
        domain, server, sequence = text.strip().split("-")
        return cls(int(domain), int(server), int(sequence))


def parse_gtids(text: str) -> list[Gtid]:
    """As the server prints a set of them: `0-1-7,1-1-3`, or nothing."""
    return [Gtid.parse(part) for part in text.split(",") if part.strip()]


def decode_gtid(event: Event) -> tuple[Gtid, int]:
    """Which transaction begins, and its flags."""
    if len(event.body) < 13:
        raise MalformedLog("a GTID event is too short")
    sequence, domain, flags = _gtid(event.body)
    return Gtid(domain, event.server, sequence), flags


def decode_gtid_list(event: Event) -> list[Gtid]:
    """The last GTID of each domain and server in the files before this one."""
    if len(event.body) < 4:
        raise MalformedLog("a list of GTIDs is too short")
    count = int.from_bytes(event.body[:4], "little") & 0x0FFFFFFF
    if 4 + 16 * count > len(event.body):
        raise MalformedLog(f"a list of {count} GTIDs does not fit into {len(event.body)} bytes")
    return [Gtid(*entry) for entry in struct.iter_unpack("<IIQ", event.body[4 : 4 + 16 * count])]


def decode_event_between_files(data: memoryview) -> Event:
    """A rotation, which may come before it is known whether events have a checksum, or when that is
    changing."""
    cut = len(data) - CHECKSUM_BYTES
    return decode_event(data, cut >= HEADER_BYTES and _crc32(data[:cut]) == _checksum(data, cut)[0])


def decode_rotate(event: Event) -> tuple[str, int]:
    """The file that comes next, and the offset in it."""
    if len(event.body) < 8:
        raise MalformedLog("a rotation is too short")
    return bytes(event.body[8:]).decode("utf-8", "replace"), int.from_bytes(event.body[:8], "little")


def decode_query(event: Event) -> tuple[str, str]:
    """The current database and the statement."""
    body = event.body
    if len(body) < 13:
        raise MalformedLog("a statement is too short")
    name_bytes = body[8]
    status_bytes = int.from_bytes(body[11:13], "little")
    text_at = 13 + status_bytes + name_bytes + 1
    if text_at > len(body):
        raise MalformedLog("a statement is cut short")
    database = bytes(body[13 + status_bytes : text_at - 1]).decode("utf-8", "replace")
    text = body[text_at:]
    if event.kind == Kind.COMPRESSED_QUERY:
        text = memoryview(inflate(text))
    return database, bytes(text).decode("utf-8", "replace")


def inflate(data: memoryview) -> bytes:
    """What `log_bin_compress=ON` deflated: a byte (0x80, algorithm, width of the length), the length, a zlib
    stream."""
    if len(data) < 2 or data[0] & 0xF0 != 0x80:
        raise MalformedLog("a compressed event does not begin as one")
    width = data[0] & 0x07
    size = int.from_bytes(data[1 : 1 + width], "big")
    if size > ROWS_LIMIT_BYTES:
        raise MalformedLog(f"a compressed event of {size} bytes is above the limit of {ROWS_LIMIT_BYTES}")
    engine = zlib.decompressobj()
    try:
        plain = engine.decompress(data[1 + width :], size) if size else b""
    except zlib.error as error:
        raise MalformedLog(f"a compressed event cannot be inflated: {error}") from error
    if len(plain) != size:
        raise MalformedLog(f"a compressed event has {len(plain)} bytes where {size} are announced")
    return plain


_COMMENT = re.compile(r"^(?:\s+|/\*(?!M?!).*?\*/|--[^\n]*\n|#[^\n]*\n|/\*M?!\d*|\*/)+", re.DOTALL)


def verb(statement: str) -> str:
    """The first word, in capitals, comments aside."""
    matched = _COMMENT.match(statement)
    rest = statement[matched.end() :] if matched else statement
    found = re.match(r"\w+", rest)
    return found.group().upper() if found else ""

"""The bytes of a batch: the fixed header and where each column stands.

All integers are little-endian; every column starts at a multiple of 8 bytes from the batch's start and
the whole batch is a multiple of 8 bytes long, so batches laid end to end (a log segment, an EVENTS frame)
stay aligned.

Header, 80 bytes:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | magic `QNTB` |
| 4 | 4 | CRC32C of bytes 8..80 (the header without magic and this field) |
| 8 | 2 | version, 1 |
| 10 | 2 | flags: which columns are there (below) |
| 12 | 4 | size of the whole batch in bytes |
| 16 | 8 | stream (see `stream_id`) |
| 24 | 8 | first sequence number covered; 0 until the stream's owner numbers the batch |
| 32 | 8 | span: how many sequence numbers the batch covers |
| 40 | 4 | count: rows, at most 2^20; of what is published, in proportion to the bytes (`CELLS_PER_BYTE`) |
| 44 | 4 | CRC32C of bytes 80..size (the body) |
| 48 | 8 | publish time of every row, µs since the epoch, signed, unless there is a time column |
| 56 | 4 | payload bytes, all rows together |
| 60 | 4 | key bytes, all rows together |
| 64 | 4 | bytes of the source section |
| 68 | 4 | bytes of the attribute section |
| 72 | 8 | source position of row 0, when positions are dense; position + count is at most 2^63 |

The header has a checksum of its own so that numbering a batch, which happens at the stream's owner for
every batch, rewrites 80 bytes and never touches the body's checksum.

Body, in this order; a column that is not needed is not there:

| column | type | there when | otherwise |
|---|---|---|---|
| kind | u8 × count | `KINDS` | every row is data |
| seq | u32 × count, offset from `first` (u64 when span ≥ 2^32) | `SEQS` | row i is first + i, and span = count |
| range | u32 × count (u64 when span ≥ 2^32) | `RANGES` | every row stands for one event |
| time | i64 × count, µs | `TIMES` | the header's |
| key offsets | u32 × (count + 1) | `KEYS` and not `KEYS_FIXED` | one width: key bytes / count |
| key bytes | bytes | `KEYS` | no row has a key (an empty key is no key) |
| source section | u16 names, then for each u16 length and UTF-8; at most 2 MiB | its size > 0 | no source |
| source code | u16 × count, index into the names | `SOURCE_CODES` | every row is of name 0 |
| position sequence, index | u64 × count, u32 × count | `POSITIONS` | with `POSITIONS_DENSE` row i is (position + i, 0); with neither there are none |
| attribute section | see `attributes` | its size > 0 | no attributes |
| payload offsets | u32 × (count + 1) | not `PAYLOADS_FIXED` | one width: payload bytes / count |
| payload bytes | bytes | not `GHOST` | a ghost states its payload's size and carries none (simulations) |
"""  # noqa: E501

import struct
from enum import IntEnum, IntFlag
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError, MalformedBatch

Buffer = bytes | bytearray | memoryview

MAGIC = b"QNTB"
VERSION = 1
HEADER = struct.Struct("<4sIHHIQQQIIqIIIIQ")
HEADER_BYTES = HEADER.size
FRAME_LIMIT = 16 * 1024 * 1024
"""Bytes; the largest batch or frame that is taken from anyone. Larger ones are refused before they are
read."""
ROWS_LIMIT = 1 << 20
"""Rows of a batch. Columns that a batch leaves out are made on demand (8 bytes a row), so rows are bounded
apart from bytes."""
CELLS_PER_BYTE = 8
"""Cells that a batch may leave out, for each of its bytes: payloads without a byte, texts that are the same
in all rows. The narrowest column that is written out, of bits, has as many. So what a batch unfolds to is in
proportion to what was sent."""
NAMES_LIMIT = 2 * 1024 * 1024
"""Bytes of all names of sources, or of attributes, of a batch: as text each may take four times as much."""
NUMBERS_END = 1 << 63
"""Sequence numbers and dense positions are below it, so that whoever adds one or counts in signed numbers
never overflows."""
_FIRST = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_WIDE_SPAN = 1 << 32


class Kind(IntEnum):
    """What a row is: an event, an event that collects earlier ones, or the grave of a range of events."""

    DATA = 0
    GC = 1
    TOMBSTONE = 2


class Flag(IntFlag):
    """Which columns a batch has; see the table above."""

    KINDS = 1
    SEQS = 2
    RANGES = 4
    TIMES = 8
    KEYS = 16
    KEYS_FIXED = 32
    SOURCE_CODES = 64
    POSITIONS = 128
    POSITIONS_DENSE = 256
    PAYLOADS_FIXED = 512
    GHOST = 1024


# Plain integers: `flags & KINDS` on an IntFlag costs a microsecond, and headers are read per batch.
(
    KINDS,
    SEQS,
    RANGES,
    TIMES,
    KEYS,
    KEYS_FIXED,
    SOURCE_CODES,
    POSITIONS,
    POSITIONS_DENSE,
    PAYLOADS_FIXED,
    GHOST,
) = (int(flag) for flag in Flag)
_KNOWN_FLAGS = sum(int(flag) for flag in Flag)


class Header(msgspec.Struct, frozen=True, gc=False):
    """The fixed header, as read; `magic` and the CRCs are checked by then."""

    magic: bytes
    header_crc: int
    version: int
    flags: int
    size: int
    stream: int
    first: int
    span: int
    count: int
    body_crc: int
    time_us: int
    payload_bytes: int
    key_bytes: int
    source_bytes: int
    attribute_bytes: int
    position: int


class Columns(NamedTuple):
    """Where each column starts, in bytes from the batch's start; -1 where it is not there."""

    kinds: int
    seqs: int
    ranges: int
    times: int
    key_offsets: int
    key_bytes: int
    sources: int
    source_codes: int
    position_sequences: int
    position_indexes: int
    attributes: int
    payload_offsets: int
    payload_bytes: int
    end: int


def stream_id(name: str) -> int:
    """The 64-bit number that stands for a stream's name in headers.

    It is a hash; whoever keeps streams by name refuses a second name with the same number.
    """
    if not name or len(name.encode()) > 255:
        raise LocalError(f"a stream's name has 1 to 255 bytes, not {len(name.encode())}")
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def padded(n: int) -> int:
    """n rounded up to a multiple of 8."""
    return (n + 7) & ~7


def row_width(span: int) -> int:
    """Bytes of one entry of the seq and range columns."""
    return 8 if span >= _WIDE_SPAN else 4


def peek(data: Buffer, limit: int = FRAME_LIMIT) -> Header:
    """The header at the start of `data`, checked by itself (its CRC, its version, its size against
    `limit`)."""
    if len(data) < HEADER_BYTES:
        raise MalformedBatch(f"a batch has a header of {HEADER_BYTES} bytes; here are {len(data)}")
    header = Header(*HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise MalformedBatch(f"not a batch: it starts with {header.magic!r}, not {MAGIC!r}")
    if crc32c(memoryview(data)[8:HEADER_BYTES]) != header.header_crc:
        raise MalformedBatch("the header's CRC32C does not match: the bytes were damaged")
    if header.version != VERSION:
        raise MalformedBatch(f"batch version {header.version} is not known here; this is version {VERSION}")
    if header.flags & ~_KNOWN_FLAGS:
        raise MalformedBatch(f"unknown flags {header.flags & ~_KNOWN_FLAGS:#x}")
    if not HEADER_BYTES <= header.size <= limit:
        raise MalformedBatch(f"a size of {header.size} bytes is outside {HEADER_BYTES}..{limit}")
    if header.count > ROWS_LIMIT or header.count > header.span:
        raise MalformedBatch(
            f"{header.count} rows do not fit a span of {header.span} (and at most {ROWS_LIMIT})"
        )
    if header.first + header.span > NUMBERS_END:
        raise MalformedBatch(
            f"sequence numbers end at 2^63; this batch goes to {header.first} + {header.span}"
        )
    if header.position + header.count > NUMBERS_END and header.flags & POSITIONS_DENSE:
        raise MalformedBatch(
            f"dense positions end at 2^63; this batch goes to {header.position} + {header.count}"
        )
    return header


def locate(header: Header) -> Columns:
    """Where the columns are; refuses a header whose sizes and flags do not add up to its total size."""
    flags, n = header.flags, header.count
    at = HEADER_BYTES
    kinds = seqs = ranges = times = key_offsets = key_bytes = sources = codes = -1
    sequences = indexes = attributes = payload_offsets = payload_bytes = -1
    # Straight on rather than a loop over a table: this runs for every batch, however small.
    if flags & (KINDS | SEQS | RANGES | TIMES):
        width = row_width(header.span)
        if flags & KINDS:
            kinds, at = at, at + padded(n)
        if flags & SEQS:
            seqs, at = at, at + padded(n * width)
        if flags & RANGES:
            ranges, at = at, at + padded(n * width)
        if flags & TIMES:
            times, at = at, at + n * 8
    if flags & KEYS:
        if not flags & KEYS_FIXED:
            key_offsets, at = at, at + padded((n + 1) * 4)
        key_bytes, at = at, at + padded(header.key_bytes)
    if header.source_bytes:
        sources, at = at, at + padded(header.source_bytes)
    if flags & SOURCE_CODES:
        codes, at = at, at + padded(n * 2)
    if flags & POSITIONS:
        sequences, at = at, at + n * 8
        indexes, at = at, at + padded(n * 4)
    if header.attribute_bytes:
        attributes, at = at, at + padded(header.attribute_bytes)
    if not flags & PAYLOADS_FIXED:
        payload_offsets, at = at, at + padded((n + 1) * 4)
    if not flags & GHOST:
        payload_bytes, at = at, at + padded(header.payload_bytes)
    if at != header.size:
        raise MalformedBatch(f"the header's columns add up to {at} bytes, its size says {header.size}")
    if not flags & SEQS and header.span != n:
        raise MalformedBatch(f"{n} rows without sequence numbers cannot cover {header.span}")
    if flags & PAYLOADS_FIXED and (header.payload_bytes % n if n else header.payload_bytes):
        raise MalformedBatch(f"{header.payload_bytes} payload bytes are not {n} of one width")
    if flags & KEYS_FIXED and (header.key_bytes % n if n else header.key_bytes):
        raise MalformedBatch(f"{header.key_bytes} key bytes are not {n} of one width")
    if flags & RANGES and not flags & KINDS:
        raise MalformedBatch("ranges without kinds")
    if not flags & KEYS and (header.key_bytes or flags & KEYS_FIXED):
        raise MalformedBatch("key bytes without keys")
    if flags & (SOURCE_CODES | POSITIONS | POSITIONS_DENSE) and not header.source_bytes:
        raise MalformedBatch("positions without a source")
    if flags & POSITIONS and flags & POSITIONS_DENSE:
        raise MalformedBatch("positions are dense or a column, not both")
    return Columns(
        kinds, seqs, ranges, times, key_offsets, key_bytes, sources, codes, sequences, indexes,
        attributes, payload_offsets, payload_bytes, at,
    )  # fmt: skip


def seal_header(data: bytearray | memoryview) -> None:
    """Writes the header's CRC after its fields changed."""
    _CRC.pack_into(data, 4, crc32c(memoryview(data)[8:HEADER_BYTES]))


def number(data: bytearray | memoryview, first: int) -> None:
    """Gives an encoded batch its first sequence number, in place; the body and its checksum stay as they
    are."""
    _FIRST.pack_into(data, 24, first)
    seal_header(data)


def reposition(data: bytearray | memoryview, position: int) -> None:
    """Gives an encoded batch with dense positions another source position for its row 0, in place."""
    _FIRST.pack_into(data, 72, position)
    seal_header(data)

"""The bytes of a delivery record: what one subscription was handed, batch by batch, in that order.

A file is a heading and entries, all in units of 32 bytes, little-endian. The heading says who was given what:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | magic `QNTD` |
| 4 | 4 | CRC32C of all that follows of the heading |
| 8 | 4 | bytes of the heading, a multiple of 32 |
| 12 | | a `Heading` as JSON, padded with spaces |

An entry, 32 bytes:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | CRC32C of bytes 4..32, and of the rows that follow |
| 4 | 1 | kind: see `Entry` |
| 5 | 1 | width: bytes of one step between rows; 0 if the numbers follow each other |
| 6 | 2 | zero |
| 8 | 8 | when it was handed over, µs since the epoch |
| 16 | 8 | first sequence number |
| 24 | 8 | count: rows; of a tombstone, a loss or a stretch that was covered, sequence numbers |

With a width, `count - 1` steps follow, padded with zeros to a multiple of 32 bytes. So a batch of any size
costs 32 bytes if its numbers follow each other, and of a filter's scattered rows each costs one byte, or two.
"""

import struct
from enum import IntEnum
from functools import cache
from typing import Any

import msgspec
import numpy as np

from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError

MAGIC = b"QNTD"
VERSION = 1
UNIT = 32
SUFFIX = ".record"
HEAD = struct.Struct("<4sII")
FIELDS = struct.Struct("<BBHqQQ")
ENTRY = np.dtype(
    [
        ("crc", "<u4"),
        ("kind", "u1"),
        ("width", "u1"),
        ("zero", "<u2"),
        ("time_us", "<i8"),
        ("first", "<u8"),
        ("count", "<u8"),
    ]
)
HEADING_LIMIT = 1024 * 1024
"""Bytes; a filter has at most 64 KiB, so a larger heading is damage."""

Array = np.ndarray[Any, Any]


class Entry(IntEnum):
    """What an entry tells of its sequence numbers. The first three are the kinds of rows of a batch."""

    DATA = 0
    GC = 1
    TOMBSTONE = 2
    LOST = 3
    """The subscriber was told that the stream no longer keeps them."""
    COVERED = 4
    """Nothing of them was handed over, because nothing passed the filter."""
    END = 5
    """The subscription was closed in peace; all before `first` was handed over or did not pass."""


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """Who was given what, from where on."""

    version: int = VERSION
    subscriber: str
    """The client's name: recordings of one name, stream and filter are of one subscriber, which was started
    again."""
    region: str = ""
    stream: str
    where: str = ""
    """The filter in its printed form; empty for everything."""
    start: str = "latest"
    """What was asked for: a sequence number, `earliest`, `latest`, or a time."""
    first: int
    """The sequence number that the server began with."""
    began_us: int
    run: str
    """One life of one subscription; its files share it."""
    part: int = 0
    """Counts the files of a run."""


class CorruptRecord(LocalError):
    """A file that is no delivery record, or one that was damaged in the middle."""

    exit_code = 3


def padded(size: int) -> int:
    return (size + UNIT - 1) // UNIT * UNIT


def encode_heading(heading: Heading) -> bytes:
    text = msgspec.json.encode(heading)
    size = padded(HEAD.size + len(text))
    body = struct.pack("<I", size) + text.ljust(size - HEAD.size)
    return MAGIC + struct.pack("<I", crc32c(body)) + body


def encode_entry(kind: int, time_us: int, first: int, count: int) -> bytes:
    """One entry whose numbers follow each other: what nearly every batch is."""
    fields = FIELDS.pack(kind, 0, 0, time_us, first, count)
    return struct.pack("<I", crc32c(fields)) + fields


def encode_rows(kind: int, time_us: int, seqs: Array) -> bytes:
    """Rows of one kind at rising numbers, in whichever form is shorter."""
    steps = np.diff(seqs)
    breaks = int(np.count_nonzero(steps != 1))
    if not breaks:
        return encode_entry(kind, time_us, int(seqs[0]), len(seqs))
    largest = int(steps.max())
    width = next(width for width in (1, 2, 4, 8) if largest < 1 << 8 * width)
    if padded(len(steps) * width) > breaks * UNIT:
        begins = np.flatnonzero(np.concatenate(([True], steps != 1)))
        counts = np.diff(np.append(begins, len(seqs)))
        return encode_runs(np.full(len(begins), kind), time_us, seqs[begins], counts)
    fields = FIELDS.pack(kind, width, 0, time_us, int(seqs[0]), len(seqs))
    rows = steps.astype(f"<u{width}").tobytes()
    rows = rows.ljust(padded(len(rows)), b"\0")
    return struct.pack("<I", crc32c(rows, crc32c(fields))) + fields + rows


def encode_runs(kinds: Array, time_us: int, firsts: Array, counts: Array) -> bytes:
    """Many entries at once."""
    entries = np.zeros(len(kinds), ENTRY)
    entries["kind"], entries["time_us"] = kinds, time_us
    entries["first"], entries["count"] = firsts, counts
    entries["crc"] = checksums(entries)
    return entries.tobytes()


def checksums(entries: Array) -> Array:
    """The CRC32C of each entry's own 28 bytes: it is linear, so each byte's share is looked up and all are
    summed by XOR."""
    shares = _shares()
    units = entries.view(np.uint8).reshape(-1, UNIT)
    sums = np.full(len(units), crc32c(bytes(UNIT - 4)), np.uint32)
    for i in range(4, UNIT):
        sums ^= shares[i - 4][units[:, i]]
    return sums


@cache
def _shares() -> Array:
    size = UNIT - 4
    nothing = crc32c(bytes(size))
    table = np.zeros((size, 256), np.uint32)
    for i in range(size):
        for value in range(256):
            table[i, value] = crc32c(bytes(i) + bytes([value]) + bytes(size - i - 1)) ^ nothing
    return table

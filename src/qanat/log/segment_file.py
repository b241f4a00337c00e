"""The bytes of a segment file: a head of 4,096 bytes, then batches end to end, exactly as on the wire.

| offset | bytes | field |
|---|---|---|
| 0 | 4 | magic `QNTS` |
| 4 | 4 | CRC32C of bytes 8..40 |
| 8 | 4 | version, 1 |
| 12 | 4 | zero |
| 16 | 8 | stream |
| 24 | 8 | first sequence number of the file |
| 32 | 8 | generation: a number no other file of this stream ever had |
| 512, 1024 | 32 each | two marks (below), each in a disk sector of its own |
| 4096 | … | batches |

A mark says how many bytes of this file are known to be synced: u32 CRC32C of what follows, u32 zero, u64
serial number, u64 bytes, u64 last sequence number. After each sync the older mark is overwritten; the write
itself is made durable by the next sync of the same file, so marks cost no sync of their own. When a log is
opened, damage below the mark is damage to data that had been synced, and an error; damage above it is what a
power cut leaves of a write in flight, and is cut off. After `kill -9` the mark is exact. After a power cut it
may be one sync behind: in the batches of that one last sync, and only there, decay of the medium could be
taken for a torn write.
"""

import struct
from typing import NamedTuple

from qanat.events.checksum import crc32c
from qanat.events.layout import Buffer

HEAD_BYTES = 4096
_MAGIC, _VERSION = b"QNTS", 1
_HEAD = struct.Struct("<4sIIIQQQ")
_MARK = struct.Struct("<IIQQQ")
_MARKS_AT = (512, 1024)


class Head(NamedTuple):
    """What a segment file says of itself."""

    stream: int
    first: int
    generation: int


class Mark(NamedTuple):
    """How far a segment file is known to be synced."""

    serial: int
    bytes: int
    last: int


def file_name(first: int, generation: int) -> str:
    return f"{first:020d}-{generation:010d}.seg"


def parse_name(name: str) -> tuple[int, int] | None:
    """(first, generation) of a segment's file name, or None for any other file."""
    stem, dot, ending = name.partition(".")
    first, dash, generation = stem.partition("-")
    if (dot, ending, dash) != (".", "seg", "-") or not (first.isdigit() and generation.isdigit()):
        return None
    return int(first), int(generation)


def encode_head(head: Head, mark: Mark | None = None) -> bytes:
    data = bytearray(HEAD_BYTES)
    _HEAD.pack_into(data, 0, _MAGIC, 0, _VERSION, 0, *head)
    struct.pack_into("<I", data, 4, crc32c(memoryview(data)[8 : _HEAD.size]))
    if mark is not None:
        at, record = encode_mark(mark)
        data[at : at + len(record)] = record
    return bytes(data)


def decode_head(data: Buffer) -> Head | str:
    """The head, or what is wrong with it."""
    if len(data) < HEAD_BYTES:
        return f"the file has {len(data)} bytes, less than a head of {HEAD_BYTES}"
    magic, crc, version, zero, stream, first, generation = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        return f"it starts with {bytes(magic)!r}, not {_MAGIC!r}"
    if crc != crc32c(memoryview(data)[8 : _HEAD.size]):
        return "the head's CRC32C does not match"
    if version != _VERSION or zero:
        return f"segment version {version} is not known here; this is version {_VERSION}"
    return Head(stream, first, generation)


def encode_mark(mark: Mark) -> tuple[int, bytes]:
    """(offset, bytes) of a mark; consecutive marks go to different places."""
    body = struct.pack("<IQQQ", 0, *mark)
    return _MARKS_AT[mark.serial % 2], struct.pack("<I", crc32c(body)) + body


def decode_mark(data: Buffer) -> Mark | None:
    """The newest mark that is whole; None if nothing was ever synced."""
    best: Mark | None = None
    for at in _MARKS_AT:
        if len(data) < at + _MARK.size:
            continue
        crc, zero, *fields = _MARK.unpack_from(data, at)
        if not zero and crc == crc32c(memoryview(data)[at + 4 : at + _MARK.size]) and fields[0]:
            mark = Mark(*fields)
            best = mark if best is None or mark.serial > best.serial else best
    return best

"""Avro object containers: the header, the blocks, and their records as columns.

Pure: bytes in, columns out. A record's place is its block's offset in the file and its index in the block.
https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
import zstandard

from qanat.capture.errors import MalformedLog
from qanat.capture.files.avro_schema import Type, parse_schema
from qanat.capture.files.avro_values import MOST_EMPTY, Bytes, arrow_of, column_maker, value_reader
from qanat.capture.table import Column

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
HEADER_LIMIT = 1 << 20
BLOCK_LIMIT = 64 << 20
"""Bytes of a block after it was decompressed; writers make blocks of 16 KiB to some MiB."""
MOST_CELLS = 1 << 24
"""Records times columns of one block."""


class Header(NamedTuple):
    schema: Type
    codec: str
    sync: bytes
    size: int
    columns: tuple[Column, ...]


class Block(NamedTuple):
    """Where a block's content lies in the bytes that were looked at."""

    start: int
    records: int
    data_start: int
    data_end: int
    end: int


def parse_header(data: bytes) -> Header | None:
    """None if the header is not there as a whole yet."""
    if data[:4] != MAGIC[: len(data[:4])]:
        raise MalformedLog("the file does not begin as an Avro container does")
    if len(data) < len(MAGIC):
        return None
    meta: dict[str, bytes] = {}
    reader = Bytes(data)
    reader.at = len(MAGIC)
    try:
        while count := reader.long():
            if count < 0:
                count = -count
                reader.long()
            if count > HEADER_LIMIT:
                raise MalformedLog(f"the header of an Avro file has {count} entries")
            for _ in range(count):
                name = reader.take(reader.long()).decode("latin-1")
                meta[name] = reader.take(reader.long())
        sync = reader.take(SYNC_BYTES)
    except MalformedLog:
        if len(data) < HEADER_LIMIT and reader.at <= len(data):
            return None
        raise
    codec = meta.get("avro.codec", b"null").decode("latin-1")
    if codec not in _CODECS:
        raise MalformedLog(f"an Avro file is compressed by {codec[:40]!r}, which is not known here")
    schema = parse_schema(meta.get("avro.schema", b""))
    return Header(schema, codec, sync, reader.at, _columns(schema))


def split_blocks(data: bytes, sync: bytes, record_limit: int) -> tuple[list[Block], int]:
    """The whole blocks at the start of the data, and how many bytes they take; an error if it begins with
    what is none."""
    blocks: list[Block] = []
    at = 0
    while at < len(data):
        reader = Bytes(data)
        reader.at = at
        try:
            count, size = reader.long(), reader.long()
        except MalformedLog:
            if len(data) - at < 20 or blocks:
                break
            raise
        if count < 0 or size < 0 or size > record_limit:
            if blocks:
                break
            raise MalformedLog(f"an Avro block is said to have {count} records in {size} bytes")
        end = reader.at + size + SYNC_BYTES
        if end > len(data):
            break
        if data[end - SYNC_BYTES : end] != sync:
            if blocks:
                break
            raise MalformedLog("an Avro block does not end in the file's marker")
        blocks.append(Block(at, count, reader.at, end - SYNC_BYTES, end))
        at = end
    return blocks, at


def decode_block(header: Header, data: bytes, count: int) -> list[pa.Array]:
    """The columns of a block's records, one for each of the header's."""
    plain = _CODECS[header.codec](data)
    cells = count * max(len(header.columns), 1)
    if count > max(len(plain), MOST_EMPTY) or cells > MOST_CELLS:
        raise MalformedLog(f"an Avro block of {len(plain)} bytes cannot have {count} records")
    reader = Bytes(plain)
    reader.empty += cells + len(plain)
    schema = header.schema
    fields = schema.fields if schema.kind == "record" else [("value", schema)]
    readers = [value_reader(part, arrow_of(part)[1] == "json") for _, part in fields]
    values: list[list[object]] = [[] for _ in readers]
    pairs = [(column.append, read) for column, read in zip(values, readers, strict=True)]
    for _ in range(count):
        for append, read in pairs:
            append(read(reader))
    if reader.at != len(plain):
        raise MalformedLog(f"an Avro block has {len(plain) - reader.at} bytes behind its last record")
    return [_made(part, column) for (_, part), column in zip(fields, values, strict=True)]


def _made(kind: Type, values: list[object]) -> pa.Array:
    try:
        return column_maker(kind)(values)
    except (pa.ArrowException, OverflowError, ValueError, RecursionError) as error:
        raise MalformedLog(f"values of an Avro block do not fit {kind.label}: {error}") from error


def _columns(schema: Type) -> tuple[Column, ...]:
    fields = schema.fields if schema.kind == "record" else [("value", schema)]
    return tuple(Column(name, *arrow_of(part)[:2]) for name, part in fields)


# --- codecs ---------------------------------------------------------------------------------------------


def _deflate(data: bytes) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    plain = stream.decompress(data, BLOCK_LIMIT)
    if not stream.eof:
        raise (
            _too_much()
            if stream.unconsumed_tail
            else MalformedLog("an Avro block ends in the middle of its deflate data")
        )
    return plain


def _snappy(data: bytes) -> bytes:
    if len(data) < 5:
        raise MalformedLog("an Avro block of snappy data is too short")
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > BLOCK_LIMIT:
        raise _too_much()
    plain: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
    if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
        raise MalformedLog("an Avro block's checksum is wrong")
    return plain


def _zstandard(data: bytes) -> bytes:
    stream = zstandard.ZstdDecompressor(max_window_size=BLOCK_LIMIT).stream_reader(
        data, read_across_frames=True
    )
    return _bounded(stream.read)


def _bzip2(data: bytes) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, BLOCK_LIMIT)


def _xz(data: bytes) -> bytes:
    return lzma.LZMADecompressor(memlimit=2 * BLOCK_LIMIT).decompress(data, BLOCK_LIMIT)


def _bounded(read: Callable[[int], bytes]) -> bytes:
    plain = read(BLOCK_LIMIT)
    if len(plain) >= BLOCK_LIMIT:
        raise _too_much()
    return plain


def _guarded(decompress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def run(data: bytes) -> bytes:
        try:
            plain = decompress(data)
        except (zlib.error, OSError, EOFError, lzma.LZMAError, zstandard.ZstdError, MemoryError) as error:
            raise MalformedLog(f"an Avro block cannot be decompressed: {error}") from error
        except pa.ArrowException as error:
            raise MalformedLog(f"an Avro block cannot be decompressed: {error}") from error
        if len(plain) >= BLOCK_LIMIT:
            raise _too_much()
        return plain

    return run


def _too_much() -> MalformedLog:
    return MalformedLog(f"an Avro block has more than {BLOCK_LIMIT} bytes when it is decompressed")


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _guarded(_deflate),
    "snappy": _guarded(_snappy),
    "zstandard": _guarded(_zstandard),
    "bzip2": _guarded(_bzip2),
    "xz": _guarded(_xz),
}

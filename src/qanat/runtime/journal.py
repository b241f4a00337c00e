"""A machine's records on disk: small, append-only, checksummed.

File: the magic `QNTJ0001`, then blocks. All integers are little-endian.

| offset in block | bytes | field |
|---|---|---|
| 0 | 4 | length of the body |
| 4 | 4 | CRC32C of the length and the body |
| 8 | length | body: for each record u32 length and the record |
| … | 0..7 | zero bytes, up to a multiple of 8 |

A block is what one fsync made durable. The next block is written only after that fsync, so a torn block
can only be the last one: it is dropped when the file is opened. A bad block with a good one after
it is damage to what was durable, and refused. (Damage to the very last durable block cannot be told from a
torn write.)
"""

import os
import struct
from pathlib import Path

from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError

_MAGIC = b"QNTJ0001"
_LENGTH = struct.Struct("<I")
_BLOCK = struct.Struct("<II")


class JournalFull(LocalError):
    """The journal reached its limit; nothing was written."""


class CorruptJournal(LocalError):
    """Durable records are damaged: the machine cannot be started from them."""


class Journal:
    """The file. `write` blocks: call it in a thread, one call at a time."""

    def __init__(self, path: Path, *, limit_bytes: int = 1 << 30) -> None:
        """Opens or makes the file and reads it; `records` is what survived."""
        self.path = path
        self.records: list[bytes] = []
        self._limit_bytes = limit_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self.size_bytes = self._recover(path.read_bytes())
        except BaseException:
            os.close(self._file)
            raise

    def write(self, records: list[bytes]) -> None:
        """Appends one block and returns when it is on disk. After an error the file must be opened anew."""
        block = encode_block(records)
        if self.size_bytes + len(block) > self._limit_bytes:
            raise JournalFull(
                f"the journal {self.path} would pass {self._limit_bytes} bytes; raise its limit or retire it"
            )
        at = self.size_bytes
        view = memoryview(block)
        while view:
            written = os.pwrite(self._file, view, at)
            at += written
            view = view[written:]
        os.fdatasync(self._file)
        self.size_bytes = at

    def close(self) -> None:
        os.close(self._file)

    def _recover(self, data: bytes) -> int:
        if len(data) < len(_MAGIC) and _MAGIC.startswith(data):
            os.pwrite(self._file, _MAGIC, 0)
            os.fsync(self._file)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            return len(_MAGIC)
        if not data.startswith(_MAGIC):
            raise CorruptJournal(f"{self.path} is not a journal; was it written by another program?")
        at = len(_MAGIC)
        while (end := _block_end(data, at)) is not None:
            self._take(data[at + _BLOCK.size : at + _BLOCK.size + _LENGTH.unpack_from(data, at)[0]])
            at = end
        for later in range(at + 8, len(data), 8):
            if _block_end(data, later) is not None:
                raise CorruptJournal(
                    f"{self.path} is damaged at byte {at}, before records that are whole; restore it from a copy"
                )
        if at < len(data):
            os.ftruncate(self._file, at)
            os.fsync(self._file)
        return at

    def _take(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            (length,) = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
            self.records.append(body[at : at + length])
            at += length


def encode_block(records: list[bytes]) -> bytes:
    parts: list[bytes] = []
    for record in records:
        parts += (_LENGTH.pack(len(record)), record)
    body = b"".join(parts)
    length = _LENGTH.pack(len(body))
    return b"".join((length, _LENGTH.pack(crc32c(body, crc32c(length))), body, bytes(-len(body) & 7)))


def _block_end(data: bytes, at: int) -> int | None:
    """Where a whole and sound block that begins at `at` ends; None when there is none."""
    if at + _BLOCK.size > len(data):
        return None
    length, crc = _BLOCK.unpack_from(data, at)
    end: int = at + _BLOCK.size + length + (-length & 7)
    if not length or end > len(data):
        return None
    body = memoryview(data)[at + _BLOCK.size : at + _BLOCK.size + length]
    if crc32c(body, crc32c(data[at : at + 4])) != crc:
        return None
    return end

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

A machine that can say the same in fewer records gives a function that does. It is applied when the file is opened, and when
it has grown to twice what that left; the result becomes a new file, which replaces the old one by its name.
"""

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError
from qanat.events.sync import sync_data
from qanat.runtime.named_errors import errors_of

_MAGIC = b"QNTJ0001"
_LENGTH = struct.Struct("<I")
_BLOCK = struct.Struct("<II")


Compact: TypeAlias = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Fewer records from which a machine would start in the same state; pure, and called in a thread."""
_GROWTH_BYTES = 1024 * 1024
"""A journal below this is not worth another file."""


class JournalFull(LocalError):
    """The journal reached its limit; nothing was written."""


class CorruptJournal(LocalError):
    """Durable records are damaged: the machine cannot be started from them."""


class Journal:
    """The file. `write` blocks: call it in a thread, one call at a time."""

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = 1 << 30,
        compact: Compact | None = None,
        growth_bytes: int = _GROWTH_BYTES,
    ) -> None:
        """Opens or makes the file and reads it; `records` is what survived."""
        self.path = path
        self.records: list[bytes] = []
        self._limit_bytes, self._growth_bytes, self._compact = limit_bytes, growth_bytes, compact
        path.parent.mkdir(parents=True, exist_ok=True)
        self._new = path.with_name(f"{path.name}.new")
        self._new.unlink(missing_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            with errors_of(path):
                self.size_bytes = self._recover(path.read_bytes())
        except BaseException:
            os.close(self._file)
            raise
        self._compact_at = growth_bytes
        if self.size_bytes > self._compact_at:
            self._shorten(self.records)

    def write(self, records: list[bytes]) -> None:
        """Appends one block and returns when it is on disk. After an error the file must be opened anew."""
        block = encode_block(records)
        if self.size_bytes + len(block) > self._limit_bytes:
            raise JournalFull(
                f"the journal {self.path} would pass {self._limit_bytes} bytes; raise its limit or retire it"
            )
        at = self.size_bytes
        view = memoryview(block)
        with errors_of(self.path):
            while view:
                written = os.pwrite(self._file, view, at)
                at += written
                view = view[written:]
            sync_data(self._file)
        self.size_bytes = at
        if at > self._compact_at:
            self._shorten(self._read())

    def _read(self) -> list[bytes]:
        data, found = self.path.read_bytes(), []
        at = len(_MAGIC)
        while (end := _block_end(data, at)) is not None:
            found += _records(data[at + _BLOCK.size : at + _BLOCK.size + _LENGTH.unpack_from(data, at)[0]])
            at = end
        return found

    def _shorten(self, records: list[bytes]) -> None:
        """Says the same in fewer records, in a file that takes this one's name when it is on disk."""
        if self._compact is None:
            return
        fewer = list(self._compact(records))
        data = _MAGIC + (encode_block(fewer) if fewer else b"")
        self._compact_at = max(self._growth_bytes, 2 * len(data))
        if len(data) * 2 > self.size_bytes:
            self._compact_at = max(self._compact_at, 2 * self.size_bytes)
            return
        handle = os.open(self._new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        except OSError:  # no room for a second file: the long one is as good
            os.close(handle)
            self._new.unlink(missing_ok=True)
            self._compact_at = 2 * self.size_bytes
            return
        os.replace(self._new, self.path)
        _sync_folder(self.path.parent)
        os.close(self._file)
        self._file, self.size_bytes = handle, len(data)

    def close(self) -> None:
        os.close(self._file)

    def _recover(self, data: bytes) -> int:
        if len(data) < len(_MAGIC) and _MAGIC.startswith(data):
            os.pwrite(self._file, _MAGIC, 0)
            os.fsync(self._file)
            _sync_folder(self.path.parent)
            return len(_MAGIC)
        if not data.startswith(_MAGIC):
            raise CorruptJournal(f"{self.path} is not a journal; was it written by another program?")
        at = len(_MAGIC)
        while (end := _block_end(data, at)) is not None:
            self.records += _records(
                data[at + _BLOCK.size : at + _BLOCK.size + _LENGTH.unpack_from(data, at)[0]]
            )
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


def _records(body: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        found.append(body[at : at + length])
        at += length
    return found


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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

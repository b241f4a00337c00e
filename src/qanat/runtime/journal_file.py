"""One file of a journal: how its bytes read, and what can be said of them after a crash or damage.

File: the magic `QNTJ0002`, then blocks. All integers are little-endian.

| offset in block | bytes | field |
|---|---|---|
| 0 | 4 | length of the body |
| 4 | 4 | CRC32C of the length, the number and the body |
| 8 | 8 | number of the block, one above that of the block before |
| 16 | length | body: for each record u32 length and the record |
| … | 0..7 | zero bytes, up to a multiple of 8 |
"""

import enum
import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

from qanat.events.checksum import crc32c
from qanat.events.durable import errors_of, leftover, open_folder, sync_data, sync_names, written
from qanat.events.errors import LocalError

MAGIC = b"QNTJ0002"
_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_BLOCK = struct.Struct("<IIQ")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PLAUSIBLE = 1 << 20
"""Blocks that may follow a damaged one within one file."""


class Unsure(LocalError):
    """Which of two files a name leads to after a power cut is not known: the machine must not go on with
    either."""


class NoRoom(LocalError):
    """There is no room on the disk. Nothing of the block counts, and it may be written again."""


class State(enum.Enum):
    MISSING = enum.auto()
    BLANK = enum.auto()
    """A crash while the file was being made, or somebody emptied it."""
    FOREIGN = enum.auto()
    """Its first bytes are not those of a journal."""
    JOURNAL = enum.auto()


class Found(msgspec.Struct, frozen=True):
    """What one file holds."""

    state: State
    number: int = 0
    """Of the last block before anything that is not whole; 0 if there is none."""
    end: int = 0
    """Where that block ends."""
    trailing: bool = False
    """Something follows that is no whole block."""
    later: int = 0
    """The highest number of a whole block behind that; 0 if there is none."""
    records: list[bytes] = []


def read(path: Path) -> Found:
    try:
        with errors_of(path):
            data = path.read_bytes()
    except FileNotFoundError:
        return Found(State.MISSING)
    if len(data) < len(MAGIC) and MAGIC.startswith(data):
        return Found(State.BLANK)
    if not data.startswith(MAGIC):
        return Found(State.FOREIGN, later=_latest(data, 0, 0))
    number, at, records = 0, len(MAGIC), list[bytes]()
    while (block := _block_at(data, at)) is not None and (not number or block[0] == number + 1):
        number, end = block
        records += _records(data, at)
        at = end
    return Found(State.JOURNAL, number, at, at < len(data), _latest(data, at, number), records)


def encode(number: int, records: Sequence[bytes]) -> bytes:
    parts: list[bytes] = []
    for record in records:
        parts += (_LENGTH.pack(len(record)), record)
    body = b"".join(parts)
    length, counted = _LENGTH.pack(len(body)), _NUMBER.pack(number)
    crc = crc32c(body, crc32c(counted, crc32c(length)))
    return b"".join((length, _LENGTH.pack(crc), counted, body, bytes(-len(body) & 7)))


def _block_at(data: bytes, at: int) -> tuple[int, int] | None:
    """Number and end of the whole and sound block that begins there, if one does."""
    if at + _BLOCK.size > len(data):
        return None
    length, crc, number = _BLOCK.unpack_from(data, at)
    end: int = at + _BLOCK.size + length + (-length & 7)
    if not number or end > len(data):
        return None
    body = memoryview(data)[at + _BLOCK.size : at + _BLOCK.size + length]
    if any(data[at + _BLOCK.size + length : end]):
        return None
    if crc32c(body, crc32c(data[at + 8 : at + 16], crc32c(data[at : at + 4]))) != crc:
        return None
    return number, end


def _latest(data: bytes, at: int, above: int) -> int:
    latest = 0
    for place in range(at & ~7, len(data) - _BLOCK.size + 1, 8):
        (number,) = _NUMBER.unpack_from(data, place + 8)
        # Whatever else lies there hardly ever looks like a number that could follow: so few checksums are
        # computed for nothing.
        if above < number <= above + _PLAUSIBLE and _block_at(data, place) is not None:
            latest = max(latest, number)
    return latest


def _records(data: bytes, at: int) -> list[bytes]:
    found = []
    (length,) = _LENGTH.unpack_from(data, at)
    at += _BLOCK.size
    end = at + length
    while at < end:
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found.append(data[at : at + length])
        at += length
    return found


class JournalFile:
    """The file open for writing. `write` and `replace` return when the bytes are on disk."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path, self.size_bytes = path, size_bytes
        leftover(path).unlink(missing_ok=True)
        with errors_of(path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def settle(self) -> None:
        """What was read of it is on disk from here on, and nothing else is in it: a process that was killed
        may not have synced what it wrote last, and what a crash left half-written must not be taken for
        damage later."""
        with errors_of(self.path):
            os.ftruncate(self._handle, self.size_bytes)
            os.fsync(self._handle)

    def write(self, block: bytes) -> None:
        """Raises `NoRoom` with the file as it was, but for bytes behind its end. Any other error may have
        left anything."""
        at, view = self.size_bytes, memoryview(block)
        with errors_of(self.path):
            while view:
                try:
                    written = os.pwrite(self._handle, view, at)
                except OSError as error:
                    if error.errno in FULL:
                        raise NoRoom(f"cannot write {self.path}: {error.strerror}") from error
                    raise
                at += written
                view = view[written:]
            sync_data(self._handle)
        self.size_bytes = at

    def replace(self, data: bytes) -> None:
        """Another file takes this one's name when it is on disk; raises `OSError` with everything as it was,
        or `Unsure`."""
        # The folder first: without a descriptor for it the new file would have its name, and nobody could
        # sync that.
        with open_folder(self.path.parent) as folder:
            handle = written(self.path, data)
            os.close(self._handle)
            self._handle, self.size_bytes = handle, len(data)
            try:
                sync_names(folder)
            except OSError as error:
                raise Unsure(f"{error.strerror}: {self.path.parent}") from error

    def close(self) -> None:
        os.close(self._handle)

"""The files of a RocksDB: which logs there are, and one of them being read while it is written, renamed,
overwritten or deleted."""

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from qanat.capture.errors import LogUnreachable, MalformedLog
from qanat.capture.rocksdb.decode_batches import BATCH_HEADER_BYTES
from qanat.capture.rocksdb.decode_manifest import Manifest, decode_manifest
from qanat.capture.rocksdb.decode_records import Scan, State, first_part, scan

CHUNK_BYTES = 4 * 1024 * 1024
"""Read at once: thousands of rows, so that what is done once for all of them costs little for each."""
RECORD_LIMIT = 256 * 1024 * 1024
"""A write batch of more bytes is refused: it would have to be in memory as a whole."""
_HEAD_BYTES = 33 * 1024
"""Enough for the first part of a file's first record."""
_LOG = re.compile(r"(\d{6,})\.log")


class Folders(NamedTuple):
    """A database, and where it keeps its logs."""

    database: Path
    logs: Path


def list_logs(folders: Folders) -> list[int]:
    """Numbers of the log files, archived ones too, in their order."""
    try:
        # In this order: a file that is being moved to the archive is then found in one of them, or in both.
        names = os.listdir(folders.logs)
    except OSError as error:
        raise LogUnreachable(f"the folder {folders.logs} cannot be read: {error.strerror}") from error
    try:
        names += os.listdir(folders.logs / "archive")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise LogUnreachable(f"the folder {folders.logs}/archive cannot be read: {error.strerror}") from error
    return sorted({int(found[1]) for found in map(_LOG.fullmatch, names) if found})


def folder_changed(folders: Folders) -> int:
    """When a file was last made, moved or deleted where the logs are written."""
    try:
        return os.stat(folders.logs).st_mtime_ns
    except OSError as error:
        raise LogUnreachable(f"the folder {folders.logs} cannot be read: {error.strerror}") from error


def read_manifest(folders: Folders) -> Manifest:
    for _ in range(3):
        try:
            name = (folders.database / "CURRENT").read_text("ascii", "replace").strip()
            found = os.stat(folders.database / name)
            return _manifest(folders.database / name, found.st_ino, found.st_size)
        except FileNotFoundError:  # it was replaced between the two reads
            continue
        except OSError as error:
            raise LogUnreachable(f"{error.filename} cannot be read: {error.strerror}") from error
    raise LogUnreachable(
        f"{folders.database} is no RocksDB: it has no CURRENT, or not the MANIFEST named there"
    )


@lru_cache(maxsize=4)
def _manifest(path: Path, _inode: int, size: int) -> Manifest:
    """Files only grow, so one of the same size is the same."""
    with path.open("rb") as file:
        return decode_manifest(file.read(size))


class OpenLog:
    """One log file and a place in it. An open file stays readable when it is moved or deleted."""

    def __init__(self, folders: Folders, number: int) -> None:
        """Raises FileNotFoundError if there is none."""
        self.number = number
        self.state = State()
        name = f"{number:06d}.log"
        try:
            self._fd = os.open(folders.logs / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = os.open(folders.logs / "archive" / name, os.O_RDONLY | os.O_CLOEXEC)

    def scan(self, most: int = CHUNK_BYTES) -> Scan:
        """The whole records that follow; the place stays where it is."""
        while True:
            try:
                chunk = os.pread(self._fd, most, self.state.offset)
            except OSError as error:
                raise LogUnreachable(f"log file {self.number} cannot be read: {error.strerror}") from error
            found = scan(chunk, self.state, self.number)
            if len(found.starts) or found.problem or len(chunk) < most:
                return self._plain(found) if found.compressed else found
            if most > RECORD_LIMIT:
                raise MalformedLog(
                    f"log file {self.number} has a record of more than {RECORD_LIMIT} bytes at byte"
                    f" {self.state.offset}"
                )
            most *= 4

    def first_sequence(self) -> int | None:
        """What the file's first batch begins with, as soon as the first part of it is there. The place must
        be the beginning."""
        chunk = os.pread(self._fd, _HEAD_BYTES, 0)
        head = first_part(chunk, self.number)
        if head is not None and head.compressed:
            head = head._replace(payload=decompressed_head(head.payload))
        if head is None or len(head.payload) < BATCH_HEADER_BYTES:
            return None
        return int.from_bytes(head.payload[:8], "little")

    def advance(self, found: Scan, records: int) -> None:
        """To behind the first records of a scan."""
        offset = int(found.nexts[records - 1]) if records else self.state.offset
        self.state = State(offset, found.recyclable, found.compressed)

    def _plain(self, found: Scan) -> Scan:
        """Each record is a compressed frame of its own."""
        pieces: list[bytes] = []
        room = RECORD_LIMIT
        for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True):
            piece = decompressed(found.data[start:end], RECORD_LIMIT)
            if pieces and room < len(piece):
                break
            room -= len(piece)
            pieces.append(piece)
        count = len(pieces)
        tops = np.cumsum(np.array([len(piece) for piece in pieces], np.int64))
        starts = np.concatenate([[0], tops[:-1]]).astype(np.int64) if count else tops
        return found._replace(data=b"".join(pieces), starts=starts, ends=tops, nexts=found.nexts[:count])

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def decompressed(frame: bytes, limit: int) -> bytes:
    """A zstd frame of unknown length, in steps, so that a small frame cannot ask for much memory."""
    pieces: list[bytes] = []
    size = 0
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(frame) as reader:
            while piece := reader.read(1 << 17):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise MalformedLog(f"a compressed record has more than {limit} bytes")
    except zstandard.ZstdError as error:
        raise MalformedLog(f"a compressed record cannot be read: {error}") from error
    return b"".join(pieces)


def decompressed_head(part: bytes) -> bytes:
    """The first bytes of a frame of which only the first part is there."""
    try:
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj().decompress(part)
    except zstandard.ZstdError as error:
        raise MalformedLog(f"a compressed record cannot be read: {error}") from error

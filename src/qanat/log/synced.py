"""What of a log was synced, written down apart from it: so its end cannot vanish unnoticed.

Segments say themselves how far they were synced (their marks), and the manifest which segments there are.
Neither helps where just that file is gone, is an older copy, or the folder with all of them is. The record is
a file of 1,024 bytes with two places of 64 bytes, at 0 and 512, each in a disk sector of its own and written
in turn:

| offset in place | bytes | field |
|---|---|---|
| 0 | 4 | CRC32C of bytes 4..64 |
| 4 | 4 | zero |
| 8 | 8 | serial number of the place's content |
| 16 | 8 | stream |
| 24 | 8 | serial number of the manifest |
| 32, 40 | 8 each | first sequence number and generation of the segment that was being written |
| 48 | 8 | bytes of it that were synced |
| 56 | 8 | last sequence number that was synced |

It is written after every sync of the log, which costs some microseconds, and synced itself when the manifest
changed, when the log is closed, and with every 32nd sync: a sync of its own for each would make a publish
wait twice. What it says is never too much, for an older record is as true as a newer one. So after `kill -9`
it is exact; after a power cut it may be older, as far as the system had not written it back.
"""

import struct
from contextlib import suppress
from typing import NamedTuple

from qanat.events.checksum import crc32c
from qanat.events.errors import LocalError
from qanat.log.disk import Disk, write_atomically
from qanat.log.errors import CorruptLog, DiskFailed, DiskFull

NAME = "synced"
"""In the log's own folder, for a log that is told of no other place."""
_PLACE = struct.Struct("<IIQQQQQQQ")
_PLACES_AT = (0, 512)
_FILE_BYTES = 1024
_SURE_EVERY = 32


class Synced(NamedTuple):
    """What was on disk for certain."""

    manifest: int
    first: int
    generation: int
    bytes: int
    last: int


class SyncedRecord:
    """The record of one log. `known` is what it says; None if there is none, or none that is whole."""

    def __init__(self, disk: Disk, path: str, stream: int) -> None:
        """Reads it. An empty path is the record of a log in memory, which there is none of."""
        self._disk, self.path, self._stream = disk, path, stream
        self.known: Synced | None = None
        self._serial = self._unsure = 0
        self.damage = ""
        """What is wrong with the file, if it is there and nothing of it is whole."""
        if path:
            self._read()

    def _read(self) -> None:
        try:
            data = self._disk.read_copy(self.path, 0, _FILE_BYTES)
        except FileNotFoundError:
            return
        for at in _PLACES_AT:
            found = _decode(data[at : at + _PLACE.size], self._stream)
            if found is not None and found[0] > self._serial:
                self._serial, self.known = found
        if self.known is None:
            self.damage = f"{self.path} was damaged; it was made again from the log"

    def refuse_empty(self, folder: str, manifest: str) -> None:
        """The log has no manifest: there may have been one."""
        if self.known is not None and self.known.last:
            raise CorruptLog(
                manifest,
                0,
                f"it is missing, though events up to {self.known.last} were synced in {folder}, as"
                f" {self.path} says",
                self.advice(folder),
            )

    def refuse_older(self, folder: str, manifest: str, serial: int) -> None:
        if self.known is not None and serial < self.known.manifest:
            raise CorruptLog(
                manifest,
                0,
                f"it is an older copy: it is number {serial}, and number {self.known.manifest} was synced, as"
                f" {self.path} says",
                self.advice(folder),
            )

    def advice(self, folder: str) -> str:
        return (
            f"restore {folder} from a replica or a backup, or begin the stream anew: move {folder} and"
            f" {self.path} away"
        )

    def begin(self, synced: Synced) -> None:
        """Makes the file; whatever there was of it is replaced."""
        if self.path:
            head, _, name = self.path.rpartition("/")
            self._disk.make_folder(head)
            self._serial += 1
            place = _encode(self._serial, self._stream, synced)
            write_atomically(self._disk, head, name, place.ljust(_FILE_BYTES, b"\0"))
            self.known, self._unsure = synced, 0

    def write(self, synced: Synced, *, sure: bool = False) -> None:
        """Never fails: an older record is as true as a newer one. `sure`: return when it would survive a
        power cut."""
        if not self.path or (synced == self.known and not (sure and self._unsure)):
            return
        with suppress(LocalError, FileNotFoundError):
            file = self._disk.open(self.path)
            try:
                if file.size < _FILE_BYTES:  # somebody removed it under us
                    file.write(bytes(_FILE_BYTES - file.size))
                if synced != self.known:
                    self._serial += 1
                    file.write_at(_PLACES_AT[self._serial % 2], _encode(self._serial, self._stream, synced))
                    self.known = synced
                    self._unsure += 1
                if sure or self._unsure >= _SURE_EVERY:
                    file.sync()
                    self._unsure = 0
            finally:
                file.close()

    def write_again(self, synced: Synced) -> None:
        """As `begin`, for a log that was there before: without room for it the log is as good, and the next
        opening tries again."""
        with suppress(DiskFull, DiskFailed):
            self.begin(synced)


def remove(disk: Disk, path: str) -> None:
    """Durably, before the log itself is removed on purpose."""
    with suppress(FileNotFoundError):
        disk.remove(path)
        disk.sync_folder(path.rpartition("/")[0])


def _encode(serial: int, stream: int, synced: Synced) -> bytes:
    body = _PLACE.pack(0, 0, serial, stream, *synced)[4:]
    return struct.pack("<I", crc32c(body)) + body


def _decode(data: bytes, stream: int) -> tuple[int, Synced] | None:
    if len(data) < _PLACE.size:
        return None
    crc, zero, serial, of, *fields = _PLACE.unpack(data)
    if zero or not serial or of != stream or crc != crc32c(memoryview(data)[4:]):
        return None
    return serial, Synced(*fields)

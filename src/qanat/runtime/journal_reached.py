"""How far a journal once reached, written down apart from both of its files.

Two files that both end early, or are both an older copy, look like a journal that never had more. So the
number of its last block stands in a file of 16 bytes in a third folder: the number (u64, little-endian), its
CRC32C, zero. It is written after each block and not synced, which costs some microseconds: what it says is
never too much, and an older number is as true. After `kill -9` it is exact; after a power cut it may be
older, as far as the system had not written it back, and if it is torn it says nothing.
"""

import os
import struct
from pathlib import Path

from qanat.events.checksum import crc32c
from qanat.events.durable import errors_of, make_folder
from qanat.runtime.journal_file import FULL

REACHED = ".reached"
"""What its folder is called, after the name of the journal's."""
_PLACE = struct.Struct("<QII")


def reached_of(path: Path) -> Path:
    return path.parent.with_name(path.parent.name + REACHED) / path.name


class Reached:
    """`number` is what it says; 0 if it says nothing."""

    def __init__(self, journal: Path) -> None:
        self.path = reached_of(journal)
        self.number = 0
        make_folder(self.path.parent)
        with errors_of(self.path):
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            found = os.pread(self._handle, _PLACE.size, 0)
        if len(found) == _PLACE.size:
            number, crc, _ = _PLACE.unpack(found)
            if crc32c(found[:8]) == crc:
                self.number = number

    def note(self, number: int) -> None:
        """Where there is no room for it, another time."""
        if number != self.number:
            counted = struct.pack("<Q", number)
            try:
                with errors_of(self.path):
                    os.pwrite(self._handle, _PLACE.pack(number, crc32c(counted), 0), 0)
            except OSError as error:
                if error.errno not in FULL:
                    raise
            else:
                self.number = number

    def close(self) -> None:
        os.close(self._handle)

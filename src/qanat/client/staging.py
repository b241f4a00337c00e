"""Large publishes laid down in the stream's own folder, by a client on the server's machine.

The server says where (`Opened.staging`); the client writes a file there that is what a segment of the log is, and hands it over by its name. The
events are written once, by the client, and go through no socket. Where that does not work (another machine or container, no right to write
there, a full disk), they are sent as always.
"""

import os
from contextlib import suppress
from itertools import count

from qanat.client.flight import Flight
from qanat.runtime.places import is_same
from qanat.wire.streams import Staging

_HEAD_BYTES = 4096
"""Left to the server, as docs/log.md describes a segment."""
_ENDING = ".staged.tmp"
_WRITE_BYTES = 1024 * 1024
"""Of one write, about. For larger ones the kernel takes its largest pages, which a virtual machine may have given back to its host: each costs
a fault there (10 MB at once 0.6 to 1.3 GB/s of CPU time, in pieces of 960 KiB 5.4)."""


class StagingFolder:
    """The folder of one stream, for one connection."""

    def __init__(self, staging: Staging) -> None:
        self._path, self._beginning = staging.folder.path, staging.beginning
        self._numbers = count(1)

    @staticmethod
    def of(staging: Staging | None) -> "StagingFolder | None":
        """None if the server names none, or one that is another here, or that we may not write to."""
        if staging is None or not hasattr(os, "pwritev"):
            return None
        folder = staging.folder
        try:
            found = os.stat(folder.path)
            writable = os.access(folder.path, os.W_OK | os.X_OK)
        except OSError:
            return None
        return StagingFolder(staging) if writable and is_same(found, folder.device, folder.inode) else None

    def lay_down(self, flight: Flight) -> str:
        """The name of a file that holds the flight's batches; empty if it could not be written."""
        name = f"{self._beginning}{next(self._numbers)}{_ENDING}"
        path = f"{self._path}/{name}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError:
            return ""
        try:
            os.posix_fallocate(fd, 0, _HEAD_BYTES + flight.size)  # all its blocks at once
            _write(fd, list(flight.parts))
        except OSError:
            with suppress(OSError):
                os.unlink(path)
            return ""
        finally:
            os.close(fd)
        return name


def _write(fd: int, parts: "list[bytearray | memoryview]") -> None:
    at, held, size = _HEAD_BYTES, list[bytearray | memoryview](), 0
    for part in parts:
        for start in range(0, len(part), _WRITE_BYTES):
            piece = memoryview(part)[start : start + _WRITE_BYTES]
            if size + len(piece) > _WRITE_BYTES and held:
                at = _write_all(fd, held, at)
                held, size = [], 0
            held.append(piece)
            size += len(piece)
    _write_all(fd, held, at)


def _write_all(fd: int, parts: "list[bytearray | memoryview]", at: int) -> int:
    while parts:
        done = os.pwritev(fd, parts, at)
        at += done
        while parts and done >= len(parts[0]):
            done -= len(parts.pop(0))
        if done:
            parts[0] = memoryview(parts[0])[done:]
    return at

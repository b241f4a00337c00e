"""Large publishes laid down in the stream's own folder, by a client on the server's machine.

The server says where (`Opened.staging`); the client writes a file there that is what a segment of the log is,
and hands it over by its name. The events are written once, by the client, and go through no socket. Where
that does not work (another machine or container, no right to write there, a full disk), they are sent as
always. A file that lies on the same disk already is not written again, but gets a second name there.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import count

from qanat.client.flight import Flight
from qanat.runtime.places import is_same
from qanat.wire.streams import Staging

HEAD_BYTES = 4096
"""Left to the server, as docs/log.md describes a segment."""
_ENDING = ".staged.tmp"
_WRITE_BYTES = 1024 * 1024
"""Of one write, about. For larger ones the kernel takes its largest pages, which a virtual machine may have
given back to its host: each costs a fault there (10 MB at once 0.6 to 1.3 GB/s of CPU time, in pieces of 960
KiB 5.4)."""
_WRITE_PARTS = 512
"""Of one write; a kernel takes 1,024."""


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
        file, flight.file = flight.file, ""
        if file and _linked(file, path, flight):
            return name
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError:
            return ""
        try:
            os.posix_fallocate(fd, 0, HEAD_BYTES + flight.size)  # all its blocks at once
            write_parts(fd, flight.parts, HEAD_BYTES)
        except OSError:
            with suppress(OSError):
                os.unlink(path)
            return ""
        finally:
            os.close(fd)
        return name


def _linked(file: str, path: str, flight: Flight) -> bool:
    """Whether the flight's own file has a second name now, and the heads that its batches have by now; false
    on another disk."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_size != HEAD_BYTES + flight.size:
            return False
        os.link(file, path)
        os.fchmod(fd, 0o644 & os.stat(os.path.dirname(path)).st_mode)  # as the log's own files are
        at, heads = HEAD_BYTES, {id(head) for head, _ in flight.heads}
        for part in flight.parts:
            if id(part) in heads:
                os.pwrite(fd, part, at)
            at += len(part)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        return False
    finally:
        os.close(fd)
    return True


def write_parts(fd: int, parts: "Iterable[bytes | bytearray | memoryview]", at: int) -> int:
    """Writes parts one behind the other, in writes of a good size; where they end."""
    held, size = list[bytes | bytearray | memoryview](), 0
    for part in parts:
        for start in range(0, len(part), _WRITE_BYTES):
            piece = memoryview(part)[start : start + _WRITE_BYTES]
            if held and (size + len(piece) > _WRITE_BYTES or len(held) == _WRITE_PARTS):
                at = _write_all(fd, held, at)
                held, size = [], 0
            held.append(piece)
            size += len(piece)
    return _write_all(fd, held, at)


def _write_all(fd: int, parts: "list[bytes | bytearray | memoryview]", at: int) -> int:
    while parts:
        done = os.pwritev(fd, parts, at)
        at += done
        while parts and done >= len(parts[0]):
            done -= len(parts.pop(0))
        if done:
            parts[0] = memoryview(parts[0])[done:]
    return at

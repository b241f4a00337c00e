"""A stream's log read in place, by a client on the server's own machine.

The server says where a large piece of the log lies instead of sending it: the client reads it from the page
cache, where the server has just written it, and nothing goes through a socket. Both must mean the same
folder, and the operating system must let the client read it; otherwise, and after any surprise, the server
sends the bytes as it does to everybody else.
"""

import os
from collections import OrderedDict

from qanat.events.errors import RemoteError
from qanat.runtime.places import Reading, is_same
from qanat.wire.streams import LogFolder, Placed

_FILES = 4
"""Open at a time: pieces come in the log's order, so two would nearly always do."""
_KEPT_BYTES = 4 * 1024 * 1024
"""Of used memory: some pieces."""


class LogFiles:
    """The segment files of one stream."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._open: OrderedDict[str, int] = OrderedDict()
        self._reading = Reading(_KEPT_BYTES)

    @staticmethod
    def of(folder: LogFolder | None) -> "LogFiles | None":
        """None if the server names no folder, or one that is another here (containers may share a network and
        no disk)."""
        if folder is None:
            return None
        try:
            found = os.stat(folder.path)
            readable = os.access(folder.path, os.R_OK | os.X_OK)
        except OSError:
            return None
        return LogFiles(folder) if readable and is_same(found, folder.device, folder.inode) else None

    def read(self, placed: Placed) -> memoryview:
        """The bytes of a place; raises OSError if they cannot be had."""
        return self._reading.read(self._file(placed.file), placed.offset, placed.size)

    def _file(self, name: str) -> int:
        fd = self._open.get(name)
        if fd is None:
            if os.path.basename(name) != name:
                raise RemoteError(f"{name!r} is no name of a log's file")
            fd = self._open[name] = os.open(f"{self._folder.path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) > _FILES:
                os.close(self._open.popitem(last=False)[1])
        return fd

    def __del__(self) -> None:
        for fd in self._open.values():
            os.close(fd)


class Piece:
    """Some of the log, not yet read."""

    __slots__ = ("_files", "_placed")

    def __init__(self, files: LogFiles, placed: Placed) -> None:
        self._files, self._placed = files, placed

    @property
    def size(self) -> int:
        return self._placed.size

    @property
    def last(self) -> int:
        """The last sequence number in it."""
        return self._placed.last

    def read(self) -> memoryview:
        return self._files.read(self._placed)

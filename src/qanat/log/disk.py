"""The disk as the log sees it: a small protocol, and the operating system's disk behind it.

Every path is a string with `/`. The simulator and the crash tests implement `Disk` structurally; they
keep what was synced and may lose or tear the rest, which is all that this protocol promises:

- bytes written to a file are readable at once by this process, and survive a power cut after `sync()`;
- a name (created, renamed, removed) survives a power cut after `sync_folder()`;
- `rename` replaces an existing file atomically.
"""

import errno
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from qanat.events import durable
from qanat.events.durable import sync_data
from qanat.events.layout import Buffer
from qanat.log.ahead import Ahead
from qanat.log.errors import DiskFailed, DiskFull, OutOfDescriptors

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OPEN = (errno.EMFILE, errno.ENFILE)
MAPS_MAX = 256
"""Mapped files kept per disk. A map costs address space, not memory; one that is dropped is mapped again."""


class DiskFile(Protocol):
    """A file open for writing at its end."""

    @property
    def size(self) -> int:
        """Bytes that were written whole."""

    def write(self, data: Buffer) -> None:
        """Appends all of `data`, or raises `DiskFull` or `DiskFailed` with `size` unchanged."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Overwrites bytes below `size`; may be torn by a power cut."""

    def truncate(self, size: int) -> None:
        """Cuts the file to `size` bytes."""

    def sync(self) -> None:
        """Returns once all bytes written before the call would survive a power cut. Callable from any
        thread."""

    def close(self) -> None:
        """Gives the handle back, without syncing."""


class Disk(Protocol):
    """What a log needs of a disk."""

    def make_folder(self, path: str) -> None:
        """Makes the folder and its parents, durably; nothing happens if it is there."""

    def list(self, folder: str) -> list[str]:
        """Names in the folder, sorted."""

    def size(self, path: str) -> int:
        """Bytes of the file; raises `FileNotFoundError`."""

    def open(self, path: str) -> DiskFile:
        """Opens for writing at the end; an empty file is created if there is none."""

    def read(self, path: str, offset: int, n: int) -> memoryview:
        """A read-only view of bytes without copying; it stays valid when the file is removed. May be
        short."""

    def read_copy(self, path: str, offset: int, n: int) -> bytes:
        """The same bytes copied out, with a read error raised as `DiskFailed`. May be short."""

    def rename(self, old: str, new: str) -> None:
        """Atomically names `old` as `new`, replacing it."""

    def remove(self, path: str) -> None:
        """Removes the name; views of its bytes stay valid."""

    def sync_folder(self, path: str) -> None:
        """Returns once the folder's names would survive a power cut."""


@contextmanager
def translated(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _translate(error, what, path) from error


def _translate(error: OSError, what: str, path: str) -> DiskFull | DiskFailed:
    if error.errno in _FULL:
        return DiskFull(f"cannot {what} {path}: {error.strerror}; free some space, nothing was stored")
    if error.errno in _OPEN:
        return OutOfDescriptors(
            f"cannot {what} {path}: {error.strerror}; nothing was stored, try again later, or raise the limit"
            " (ulimit -n)"
        )
    return DiskFailed(f"cannot {what} {path}: {error.strerror}; look at the disk's health")


class OsFile:
    """A file of the operating system, written with `pwrite` at an offset of our own.

    The kernel's append position is not used: after a short write (a full disk) the next append goes
    where the failed one began, so that bytes of a refused append are never between two others.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with translated("open", path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size
        self._ahead = Ahead(self._fd, self._size)

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: Buffer) -> None:
        self._ahead.before_write(self._size, len(data))
        try:
            self._pwrite(self._size, data)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._pwrite(offset, data)

    def _pwrite(self, offset: int, data: Buffer) -> None:
        try:
            done = os.pwrite(self._fd, data, offset)
            while done < len(data):  # a short write: the next one says why
                done += os.pwrite(self._fd, memoryview(data)[done:], offset + done)
        except OSError as error:
            raise _translate(error, "write to", self._path) from error

    def truncate(self, size: int) -> None:
        with translated("truncate", self._path):
            os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        with translated("sync", self._path):
            sync_data(self._fd)

    def close(self) -> None:
        self._ahead.give_back(self._size)
        os.close(self._fd)


class OsDisk:
    """Files of the operating system; reads are views of memory maps, so the page cache is the only copy.

    An unreadable sector under a map would kill the process with SIGBUS. Whoever reads a range for the
    first time reads it with `read_copy`, which raises; after that the page is in the cache.
    """

    def __init__(self) -> None:
        self._maps: OrderedDict[str, mmap.mmap] = OrderedDict()
        self._lock = threading.Lock()

    def make_folder(self, path: str) -> None:
        with translated("make the folder", path):
            durable.make_folder(Path(path))

    def list(self, folder: str) -> list[str]:
        with translated("list", folder):
            return sorted(os.listdir(folder))

    def size(self, path: str) -> int:
        with translated("look at", path):
            return os.stat(path).st_size

    def open(self, path: str) -> OsFile:
        return OsFile(path)

    def read(self, path: str, offset: int, n: int) -> memoryview:
        if n <= 0:
            return memoryview(b"")
        with self._lock:
            mapped = self._maps.get(path)
            if mapped is None or len(mapped) < offset + n:
                mapped = self._map(path)
                if mapped is None:
                    return memoryview(b"")
                self._maps[path] = mapped
                if len(self._maps) > MAPS_MAX:
                    self._maps.popitem(last=False)  # unmapped when its last view goes
            self._maps.move_to_end(path)
        return memoryview(mapped)[offset : offset + n]

    @staticmethod
    def _map(path: str) -> mmap.mmap | None:
        with translated("map", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size == 0:
                    return None
                return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(fd)

    def read_copy(self, path: str, offset: int, n: int) -> bytes:
        with translated("read", path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                parts = []
                while n > 0:
                    part = os.pread(fd, n, offset)
                    if not part:
                        break
                    parts.append(part)
                    offset, n = offset + len(part), n - len(part)
                return parts[0] if len(parts) == 1 else b"".join(parts)
            finally:
                os.close(fd)

    def rename(self, old: str, new: str) -> None:
        self._forget(old)
        self._forget(new)
        with translated("rename", old):
            os.replace(old, new)

    def remove(self, path: str) -> None:
        self._forget(path)
        with translated("remove", path):
            os.unlink(path)

    def _forget(self, path: str) -> None:
        with self._lock:
            self._maps.pop(path, None)

    def sync_folder(self, path: str) -> None:
        with translated("sync the folder", path):
            durable.sync_folder(Path(path))


def write_atomically(disk: Disk, folder: str, name: str, data: Buffer) -> None:
    """Replaces a small file so that a crash leaves the old one or the new one whole, never a mixture."""
    temporary = f"{folder}/{name}.tmp"
    with suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.open(temporary)
    try:
        file.write(data)
        file.sync()
    except BaseException:
        with suppress(OSError, DiskFailed):
            disk.remove(temporary)
        raise
    finally:
        file.close()
    disk.rename(temporary, f"{folder}/{name}")
    disk.sync_folder(folder)

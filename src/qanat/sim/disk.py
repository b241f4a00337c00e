"""A file-level disk in memory that forgets and tears what was not synced when its power is cut.

Its methods are those that the stream log asks of a disk, so a log runs on it unchanged. It is hostile
within what an operating system allows: bytes survive only after `sync`, names only after `sync_folder`;
of the rest anything may have reached the platter, sector by sector, in any order.
"""

import errno
import os
import random
from collections.abc import Callable

SECTOR_BYTES = 512
"""What a disk writes atomically."""

Bytes = bytes | bytearray | memoryview
ErrorMaker = Callable[[str], Exception]


def _no_space(sentence: str) -> Exception:
    return OSError(errno.ENOSPC, sentence)


def _io_error(sentence: str) -> Exception:
    return OSError(errno.EIO, sentence)


class _Inode:
    """A file's bytes: as this process sees them, as they would survive, and the writes in between."""

    __slots__ = ("seen", "safe", "writes", "size_changed")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.safe = b""
        self.writes: list[tuple[int, bytes]] = []
        self.size_changed = False

    def write(self, offset: int, data: Bytes) -> None:
        copy = bytes(data)
        self.seen[offset : offset + len(copy)] = copy
        self.writes.append((offset, copy))

    def truncate(self, size: int) -> None:
        del self.seen[size:]
        self.size_changed = True

    def sync(self) -> None:
        self.safe = bytes(self.seen)
        self.writes.clear()
        self.size_changed = False

    def crash(self, rng: random.Random) -> None:
        """Of the unsynced writes: none, all, a prefix cut at any byte, or any sectors in any order."""
        if self.writes or self.size_changed:
            fate = rng.randrange(4)
            if fate == 0:
                self.seen = bytearray(self.safe)
            elif fate == 2:
                self._keep_prefix(rng)
            elif fate == 3:
                self._keep_sectors(rng)
        self.sync()

    def _keep_prefix(self, rng: random.Random) -> None:
        kept = bytearray(self.safe)
        left = rng.randint(0, sum(len(data) for _, data in self.writes))
        for offset, data in self.writes:
            part = data[:left]
            _put(kept, offset, part)
            left -= len(part)
        self.seen = kept

    def _keep_sectors(self, rng: random.Random) -> None:
        """The size may be the new one while sectors below it were never written: they read as zeros."""
        kept = bytearray(self.safe)
        for offset, data in self.writes:
            at = 0
            while at < len(data):
                end = min(len(data), at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES)
                if rng.random() < 0.5:
                    _put(kept, offset + at, data[at:end])
                at = end
        if rng.random() < 0.5 and len(kept) < len(self.seen):
            kept.extend(bytes(len(self.seen) - len(kept)))
        self.seen = kept


def _put(into: bytearray, offset: int, data: bytes) -> None:
    if not data:
        return
    if len(into) < offset:
        into.extend(bytes(offset - len(into)))
    into[offset : offset + len(data)] = data


class SimFile:
    """A file open for writing; useless after the power cut of its disk."""

    def __init__(self, disk: "SimDisk", path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._life = disk.life

    @property
    def size(self) -> int:
        return len(self._inode.seen)

    def write(self, data: Bytes) -> None:
        self._alive()
        self._disk.charge(self._path, len(data))
        self._inode.write(self.size, data)

    def write_at(self, offset: int, data: Bytes) -> None:
        self._alive()
        if offset + len(data) > self.size:
            raise ValueError(f"write_at beyond the end of {self._path}")
        self._inode.write(offset, data)

    def truncate(self, size: int) -> None:
        self._alive()
        self._inode.truncate(size)

    def sync(self) -> None:
        self._alive()
        self._disk.synced(self._path)
        self._inode.sync()

    def close(self) -> None:
        """Nothing is synced by closing."""

    def _alive(self) -> None:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, f"{self._path} was open when the power was cut")


class SimDisk:
    """A disk with `capacity_bytes`; `crash` cuts its power, after which files are opened anew.

    `elapsed_us` adds up what its operations would have taken. `full` and `failed` make the exceptions
    that the user of the disk expects.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        capacity_bytes: int = 1 << 40,
        sync_us: int = 1000,
        bytes_per_us: float = 500.0,
        full: ErrorMaker = _no_space,
        failed: ErrorMaker = _io_error,
    ) -> None:
        self._rng = rng
        self.capacity_bytes = capacity_bytes
        self.sync_us = sync_us
        self._bytes_per_us = bytes_per_us
        self._full = full
        self._failed = failed
        self._names: dict[str, _Inode] = {}
        self._safe_names: dict[str, _Inode] = {}
        self._changes: list[tuple[str, _Inode | None]] = []
        """Names changed and not yet synced, in order; a rename is two, kept together by `_pairs`."""
        self._pairs: set[int] = set()
        self._folders = {""}
        self.life = 0
        self.elapsed_us = 0
        self.failing_syncs = 0
        """How many of the next syncs fail; what they should have saved is lost at a crash."""

    # Files

    def open(self, path: str) -> SimFile:
        inode = self._names.get(path)
        if inode is None:
            inode = _Inode()
            self._rename_to(path, inode)
        return SimFile(self, path, inode)

    def size(self, path: str) -> int:
        return len(self._inode(path).seen)

    def read(self, path: str, offset: int, n: int) -> memoryview:
        return memoryview(self.read_copy(path, offset, n))

    def read_copy(self, path: str, offset: int, n: int) -> bytes:
        data = bytes(self._inode(path).seen[offset : offset + max(n, 0)])
        self.elapsed_us += int(len(data) / self._bytes_per_us)
        return data

    # Names

    def make_folder(self, path: str) -> None:
        self._folders.add(path)

    def list(self, folder: str) -> list[str]:
        head = f"{folder}/" if folder else ""
        names = {path[len(head) :] for path in (*self._names, *self._folders) if path.startswith(head)}
        return sorted({name.split("/", 1)[0] for name in names if name})

    def rename(self, old: str, new: str) -> None:
        inode = self._inode(old)
        self._pairs.add(len(self._changes))
        self._changes.append((old, None))
        del self._names[old]
        self._rename_to(new, inode)

    def remove(self, path: str) -> None:
        self._inode(path)
        del self._names[path]
        self._changes.append((path, None))

    def sync_folder(self, path: str) -> None:
        self.synced(path)
        kept: list[tuple[str, _Inode | None]] = []
        for name, inode in self._changes:
            if os.path.dirname(name) == path:
                _apply(self._safe_names, name, inode)
            else:
                kept.append((name, inode))
        if len(kept) < len(self._changes):
            self._pairs = {
                at for at in range(len(kept) - 1) if kept[at][1] is None and kept[at + 1][1] is not None
            }
        self._changes = kept

    def _rename_to(self, path: str, inode: _Inode) -> None:
        self._names[path] = inode
        self._changes.append((path, inode))

    def _inode(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    # Trouble

    def crash(self) -> None:
        """Power is cut and comes back: names as far as their changes got, bytes as their sync allows."""
        self.life += 1
        upto = self._rng.randint(0, len(self._changes))
        if upto - 1 in self._pairs:
            upto += 1  # a rename is atomic: both names change, or neither
        for name, inode in self._changes[:upto]:
            _apply(self._safe_names, name, inode)
        self._changes.clear()
        self._pairs.clear()
        self._names = dict(self._safe_names)
        for inode in {id(each): each for each in self._names.values()}.values():
            inode.crash(self._rng)

    def flip(self, path: str, offset: int, bit: int) -> None:
        """One bit rots."""
        inode = self._inode(path)
        inode.seen[offset] ^= 1 << bit
        inode.safe = bytes(inode.seen)

    def charge(self, path: str, size: int) -> None:
        """Account for a write, or refuse it when there is no room."""
        used = sum(len(inode.seen) for inode in {id(each): each for each in self._names.values()}.values())
        if used + size > self.capacity_bytes:
            raise self._full(f"no room for {size} bytes of {path}: {used} of {self.capacity_bytes} are used")
        self.elapsed_us += int(size / self._bytes_per_us)

    def synced(self, path: str) -> None:
        self.elapsed_us += self.sync_us
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            raise self._failed(f"the disk did not sync {path}")


def _apply(names: dict[str, _Inode], name: str, inode: _Inode | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode

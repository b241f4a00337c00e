"""A disk in memory that loses power, for testing what stands on a log.

It keeps what was synced and tears or loses the rest; it can lose power in the middle of any operation, fill
up, and fail to sync.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from qanat.log.errors import DiskFailed, DiskFull


class PowerCut(BaseException):
    """Raised out of the operation during which the power goes; nothing may catch it on the way."""


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.pending: list[tuple[str, int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.pending.append(("write", offset, data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.pending.append(("truncate", size, b""))

    def sync(self) -> None:
        self.synced, self.pending = bytes(self.data), []

    def after_cut(self, rng: random.Random, *, orderly: bool) -> bytearray:
        """Synced bytes plus some of what came after: a prefix, or (not orderly) any writes, the last one
        torn."""
        image = bytearray(self.synced)
        if not self.pending:
            return image
        if orderly:
            chosen = self.pending[: rng.randrange(len(self.pending) + 1)]
        else:
            chosen = [one for one in self.pending if rng.random() < 0.6]
        for i, (what, offset, data) in enumerate(chosen):
            if what == "truncate":
                del image[offset:]
                continue
            kept = data
            if i == len(chosen) - 1:
                kept = data[: rng.randrange(len(data) + 1)]
            if len(image) < offset:
                image.extend(bytes(offset - len(image)))
            image[offset : offset + len(kept)] = kept
        return image


class CrashFile:
    """Implements `DiskFile`."""

    def __init__(self, disk: CrashDisk, inode: _Inode) -> None:
        self._disk, self._inode = disk, inode
        self._size = len(inode.data)

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        blob = bytes(data)
        self._disk.step()
        room = self._disk.room()
        if room is not None and len(blob) > room:
            self._inode.write(self._size, blob[:room])
            self._inode.truncate(self._size)
            raise DiskFull("no space left on the test's disk; nothing was stored")
        self._inode.write(self._size, blob)
        self._size += len(blob)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._disk.step()
        self._inode.write(offset, bytes(data))

    def truncate(self, size: int) -> None:
        self._disk.step()
        self._inode.truncate(size)
        self._size = size

    def sync(self) -> None:
        self._disk.step()
        if self._disk.sync_error:
            raise DiskFailed("the test's disk failed to sync")
        self._inode.sync()

    def close(self) -> None: ...


class CrashDisk:
    """Implements `Disk`. `crash()` turns off the power; the survivors are what a new process would find."""

    def __init__(self, seed: int = 0, *, orderly: bool = False) -> None:
        self.rng = random.Random(seed)
        self.orderly = orderly
        self.names: dict[str, _Inode] = {}
        self.durable_names: dict[str, _Inode] = {}
        self.pending_names: list[dict[str, _Inode | None]] = []
        """Changes of names since the folder was synced, each atomic; None is a name that goes away."""
        self.operations = 0
        self.cut_at: int | None = None
        self.capacity: int | None = None
        self.sync_error = False
        self.on_step: Callable[[], None] | None = None

    def step(self) -> None:
        self.operations += 1
        if self.cut_at is not None and self.operations >= self.cut_at:
            raise PowerCut
        if self.on_step is not None:
            self.on_step()

    def room(self) -> int | None:
        if self.capacity is None:
            return None
        return max(0, self.capacity - sum(len(inode.data) for inode in self.names.values()))

    def crash(self) -> None:
        """Power off, power on."""
        names = dict(self.durable_names)
        pending = self.pending_names
        if self.orderly:
            pending = pending[: self.rng.randrange(len(pending) + 1)]
        for change in pending:
            if not self.orderly and self.rng.random() < 0.5:
                continue
            for path, changed in change.items():
                if changed is None:
                    names.pop(path, None)
                else:
                    names[path] = changed
        self.names = {}
        for path, inode in names.items():
            survivor = _Inode()
            survivor.data = inode.after_cut(self.rng, orderly=self.orderly)
            survivor.sync()
            self.names[path] = survivor
        self.durable_names, self.pending_names = dict(self.names), []
        self.cut_at = None

    def make_folder(self, path: str) -> None: ...

    def list(self, folder: str) -> list[str]:
        head = f"{folder}/"
        return sorted(path[len(head) :] for path in self.names if path.startswith(head))

    def _inode(self, path: str) -> _Inode:
        try:
            return self.names[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def open(self, path: str) -> CrashFile:
        if path not in self.names:
            self.step()
            self.names[path] = _Inode()
            self.pending_names.append({path: self.names[path]})
        return CrashFile(self, self.names[path])

    def read(self, path: str, offset: int, n: int) -> memoryview:
        return memoryview(self.read_copy(path, offset, n))

    def read_copy(self, path: str, offset: int, n: int) -> bytes:
        return bytes(self._inode(path).data[offset : offset + n])

    def rename(self, old: str, new: str) -> None:
        self.step()
        inode = self.names.pop(old)
        self.names[new] = inode
        self.pending_names.append({old: None, new: inode})

    def remove(self, path: str) -> None:
        self._inode(path)
        self.step()
        del self.names[path]
        self.pending_names.append({path: None})

    def sync_folder(self, path: str) -> None:
        self.step()
        self.durable_names, self.pending_names = dict(self.names), []

    # --- for tests ----------------------------------------------------------------------------------

    def raw(self, path: str) -> bytearray:
        return self.names[path].data

    def copy(self) -> CrashDisk:
        """The files as they are now, all synced, on a disk of their own."""
        other = CrashDisk()
        for path, inode in self.names.items():
            twin = _Inode()
            twin.data = bytearray(inode.data)
            twin.sync()
            other.names[path] = twin
        other.durable_names = dict(other.names)
        return other

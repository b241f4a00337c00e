"""A disk that is memory: what the mode `memory` stands on. Nothing survives the process."""

from bisect import bisect_right

from qanat.events.layout import Buffer


class MemoryFile:
    """Bytes in the parts in which they were written, so that views of them never hinder growth."""

    def __init__(self) -> None:
        self.parts: list[bytearray] = []
        self.starts: list[int] = []
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: Buffer) -> None:
        self.parts.append(bytearray(data))
        self.starts.append(self._size)
        self._size += len(data)

    def write_at(self, offset: int, data: Buffer) -> None:
        at = bisect_right(self.starts, offset) - 1
        inside = offset - self.starts[at]
        self.parts[at][inside : inside + len(data)] = data

    def truncate(self, size: int) -> None:
        kept = self.view(0, size)
        self.parts, self.starts, self._size = [bytearray(kept)], [0], len(kept)

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def view(self, offset: int, n: int) -> memoryview:
        """Without copying where the range was written in one piece; joined otherwise."""
        end = min(offset + n, self._size)
        if offset >= end:
            return memoryview(b"")
        at = bisect_right(self.starts, offset) - 1
        start = self.starts[at]
        if end <= start + len(self.parts[at]):
            return memoryview(self.parts[at])[offset - start : end - start].toreadonly()
        last = bisect_right(self.starts, end - 1)
        return memoryview(b"".join(self.parts[at:last]))[offset - start : end - start]


class MemoryDisk:
    """Implements `Disk` with nothing behind it; one per log."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}

    def make_folder(self, path: str) -> None: ...

    def list(self, folder: str) -> list[str]:
        head = f"{folder}/"
        return sorted(path[len(head) :] for path in self._files if path.startswith(head))

    def size(self, path: str) -> int:
        return self._file(path).size

    def open(self, path: str) -> MemoryFile:
        return self._files.setdefault(path, MemoryFile())

    def read(self, path: str, offset: int, n: int) -> memoryview:
        return self._file(path).view(offset, n)

    def read_copy(self, path: str, offset: int, n: int) -> bytes:
        return bytes(self._file(path).view(offset, n))

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old)

    def remove(self, path: str) -> None:
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(path)

    def sync_folder(self, path: str) -> None: ...

    def _file(self, path: str) -> MemoryFile:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

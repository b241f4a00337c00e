"""Archives without Spark: rows are moved by Arrow in this process, so that a test can archive, and be killed,
hundreds of times."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from qanat.client import Client
from qanat.pipeline.archive.archiver import Archiver
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.manifest import DataFile, Manifest, Range
from qanat.pipeline.archive.reading import read_batches, read_rows
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.storage import Entry, LocalStorage, Storage, crc32c_of
from qanat.pipeline.archive.tables import put_in_place, staging_of
from qanat.pipeline.columns import ARROW, FILED, arrow_of, repeated

QUICK = ArchiveSettings(batch_ms=0, range_rows=10, file_bytes=1 << 20, patience_ms=0)


class ArrowTables:
    """What `SparkTables` does, in this process."""

    tasks = 2

    def __init__(self, row_group: int = 1024) -> None:
        self._row_group = row_group

    def write_ranges(self, writer: Writer, url: str, ranges: Sequence[Range]) -> list[DataFile]:
        tables = [read_rows(url, writer.history.stream, *part) for part in ranges]
        return self.write(writer, tables, ranges[0].first, ranges[-1].last)

    def merge(self, writer: Writer, files: Sequence[DataFile]) -> list[DataFile]:
        rows = read_archived(writer.history, files).to_batches()
        return self.write(writer, [rows], files[0].first, files[-1].last)

    def write(
        self, writer: Writer, tables: Iterable[Iterable[pa.RecordBatch]], first: int, last: int
    ) -> list[DataFile]:
        storage, staging = writer.history.storage, staging_of(writer)
        for number, batches in enumerate(tables):
            file = io.BytesIO()
            rows = pa.Table.from_batches(batches).select(FILED.names)
            pq.write_table(
                rows, file, compression="zstd", row_group_size=self._row_group, write_page_checksum=True
            )
            storage.put(f"{staging}/{number}.parquet", file.getvalue())
        files = put_in_place(storage, writer, staging, first, last)
        storage.remove(staging)
        return files


class MemoryStorage:
    """A folder in memory, for what is done a thousand times: nothing waits for a disk."""

    def __init__(self, root: str = "memory:", files: dict[str, bytes] | None = None) -> None:
        self.root = root
        self.files: dict[str, bytes] = {} if files is None else files

    def below(self, folder: str) -> MemoryStorage:
        return MemoryStorage(self.url(folder), self.files)

    def url(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def entries(self, folder: str) -> list[Entry]:
        start = self.url(folder) + "/"
        found: dict[str, Entry] = {}
        for path, data in self.files.items():
            if path.startswith(start):
                name, _, rest = path.removeprefix(start).partition("/")
                found[name] = Entry(name, 0 if rest else len(data), bool(rest), 0)
        return sorted(found.values())

    def size(self, path: str) -> int | None:
        data = self.files.get(self.url(path))
        return None if data is None else len(data)

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()

    def put(self, path: str, data: bytes) -> bool:
        return self.files.setdefault(self.url(path), data) is data

    def move(self, old: str, new: str) -> None:
        self.files[self.url(new)] = self.files.pop(self.url(old))

    def remove(self, path: str) -> None:
        for name in [n for n in self.files if n == self.url(path) or n.startswith(self.url(path) + "/")]:
            del self.files[name]

    def open(self, path: str) -> IO[bytes]:
        if self.url(path) not in self.files:
            raise FileNotFoundError(path)
        return io.BytesIO(self.files[self.url(path)])

    def checksum(self, path: str) -> str:
        return crc32c_of(self.open(path))


class Killed(BaseException):
    """The process would be gone."""


class DyingStorage(LocalStorage):
    """A folder of this machine, of which the process dies at one of the changes that it makes: just before
    it, or just after."""

    def __init__(self, root: str, die_at: int, *, after: bool, count: list[int] | None = None) -> None:
        super().__init__(root)
        self._die_at, self._after = die_at, after
        self.count = [0] if count is None else count

    def below(self, folder: str) -> DyingStorage:
        return DyingStorage(self._at(folder), self._die_at, after=self._after, count=self.count)

    def _change(self, change: Callable[[], Any]) -> Any:
        self.count[0] += 1
        dies = self.count[0] == self._die_at
        if dies and not self._after:
            raise Killed
        result = change()
        if dies:
            raise Killed
        return result

    def put(self, path: str, data: bytes) -> bool:
        put = super().put
        return bool(self._change(lambda: put(path, data)))

    def move(self, old: str, new: str) -> None:
        move = super().move
        self._change(lambda: move(old, new))

    def remove(self, path: str) -> None:
        remove = super().remove
        self._change(lambda: remove(path))


def archiver(
    url: str, folder: Path | Storage, stream: str, settings: ArchiveSettings = QUICK, **options: Any
) -> Archiver:
    root = folder if isinstance(folder, Path) else folder.root
    job = Archiver(None, url, str(root), stream, settings=settings, tables=ArrowTables(), **options)
    if not isinstance(folder, Path):
        job.history = History(folder, stream)
    return job


def archive_all(
    url: str, folder: Path | Storage, stream: str, settings: ArchiveSettings = QUICK, **options: Any
) -> Manifest:
    """Archives up to the stream's end."""
    with archiver(url, folder, stream, settings, **options) as job:
        for _ in job.run(until_end=True):
            pass
        return job.history.newest()


def read_archived(history: History, files: Sequence[DataFile] | None = None) -> pa.Table:
    """The rows of an archive in their order."""
    files = history.newest().files if files is None else files
    parts = [pq.read_table(io.BytesIO(history.storage.read(file.path))) for file in files]
    if not parts:
        return ARROW.empty_table()
    filed = pa.concat_tables(parts).cast(FILED)
    return filed.add_column(0, "stream", repeated(history.stream, len(filed)))


def read_stream(client: Client, stream: str, first: int, last: int) -> pa.Table:
    """The rows that a stream has of a range."""
    return pa.Table.from_batches(
        [arrow_of(stream, b) for b in read_batches(client, stream, first, last)], ARROW
    )

"""Archives made of rows, without a server; and a storage that dies at a chosen moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.integration.archiving import ArrowTables, read_archived

from qanat.events.batch import Batch, stream_id
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import Manifest, Range
from qanat.pipeline.archive.storage import LocalStorage
from qanat.pipeline.columns import arrow_of

DAY_US = 86_400_000_000


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows by number, to compare."""
    found = sorted(table.to_pylist(), key=lambda row: row["seq"])
    for row in found:
        row["attributes"], row["types"] = dict(row["attributes"]), dict(row["types"] or {})
    return found


def archived(folder: Path, stream: str, pieces: list[pa.RecordBatch]) -> History:
    """An archive with a file for each piece, made without Spark; where they do not follow on from each other,
    the rest is lost."""
    history = History(LocalStorage(str(folder)), stream)
    writer = history.begin("append")
    for piece in pieces:
        first, last = piece["seq"][0].as_py(), piece["seq"][-1].as_py()
        follows = writer.manifest.next or first
        if first > follows:
            writer.append(lost=[Range(follows, first - 1)])
        writer.append(ArrowTables().write(writer, [[piece]], first, last))
    return history


def in_archive(history: History, manifest: Manifest | None = None) -> list[dict[str, Any]]:
    """All rows, by the newest version or another; read without Spark."""
    return rows(read_archived(history, (manifest or history.existing()).files))


def events(
    stream: str, keys: list[bytes], *, first: int = 1, per_day: int = 1 << 40, **columns: Any
) -> pa.RecordBatch:
    """Rows of data events with these keys, numbered from `first` on, so many on each day."""
    numbers = range(first, first + len(keys))
    batch = Batch.build(
        stream_id(stream),
        [b"event %d" % n for n in numbers],
        keys=keys,
        times=[(n - 1) // per_day * DAY_US + n for n in numbers],
        first=first,
        **columns,
    )
    return arrow_of(stream, batch)


class Died(BaseException):
    """The process is no more; nothing catches it."""


class Life:
    """How many changes of a storage its user lives to see: an even number is so many halves of one, `2n` dies
    right after change n."""

    def __init__(self, dies_at: int) -> None:
        self.dies_at, self.changes = dies_at, 0

    def change(self, work: Callable[..., Any], *args: Any) -> Any:
        self.changes += 1
        if self.changes * 2 > self.dies_at:
            raise Died(f"before change {self.changes}")
        done = work(*args)
        if self.changes * 2 == self.dies_at:
            raise Died(f"after change {self.changes}")
        return done


class Mortal(LocalStorage):
    """A folder whose user dies."""

    def __init__(self, root: str, life: Life) -> None:
        super().__init__(root)
        self.life = life

    def below(self, folder: str) -> Mortal:
        return Mortal(super().below(folder).root, self.life)

    def put(self, path: str, data: bytes) -> bool:
        return bool(self.life.change(super().put, path, data))

    def move(self, old: str, new: str) -> None:
        self.life.change(super().move, old, new)

    def remove(self, path: str) -> None:
        self.life.change(super().remove, path)

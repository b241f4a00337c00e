"""A RocksDB's log that a test writes byte by byte, and a streaming source driven as Spark drives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.servers.rocksdb import batch, database, log_file, put, write_log

from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.changes.stream import ChangesStream


class RocksLog:
    """Files of one record per update: `wrote(7, 10, 12)` is file 7 with updates 10 to 12."""

    def __init__(self, folder: Path, identity: str = "one") -> None:
        self.folder = database(folder)
        (folder / "IDENTITY").write_text(identity)

    @property
    def url(self) -> str:
        return f"rocksdb://{self.folder}"

    def wrote(self, file: int, first: int, last: int, value: bytes = b"v") -> None:
        rows = [batch(seq, put(b"k%d" % seq, value)) for seq in range(first, last + 1)]
        write_log(self.folder, file, log_file(rows))

    def deleted(self, file: int) -> None:
        (self.folder / f"{file:06d}.log").unlink()


class Driven:
    """A streaming query without Spark: offsets are written down before a batch is done, as in its
    checkpoint."""

    def __init__(self, url: str, /, **options: str) -> None:
        self.options = ChangesOptions.read({"changes": url, **options})
        self.checkpoint: list[dict[str, Any]] = []
        self.source = ChangesStream(self.options)

    def restart(self) -> None:
        self.source.stop()
        self.source = ChangesStream(self.options)

    def plan(self) -> bool:
        """Whether there is a next batch."""
        start = self.checkpoint[-1] if self.checkpoint else self.source.initialOffset()
        end = self.source.latestOffset(start, self.source.getDefaultReadLimit())
        if end == start:
            return False
        self.checkpoint.append(end)
        return True

    def batch(self) -> pa.Table:
        """The last planned batch, perhaps once more."""
        start = self.checkpoint[-2] if len(self.checkpoint) > 1 else self.source.initialOffset()
        parts = self.source.partitions(start, self.checkpoint[-1])
        found = [made for part in parts for made in self.source.read(part)]
        return pa.Table.from_batches(found) if found else pa.table({})

    def next(self) -> pa.Table:
        assert self.plan()
        return self.batch()

    def limited(self, rows: int) -> pa.Table:
        start = self.checkpoint[-1] if self.checkpoint else self.source.initialOffset()
        self.checkpoint.append(self.source.latestOffset(start, ReadMaxRows(rows)))
        return self.batch()


def sequences(table: pa.Table) -> list[int]:
    return [place["sequence"] for place in table["source"].to_pylist()] if table.num_rows else []

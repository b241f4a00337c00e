"""Where in the archive of a stream the positions of one log are: the stream was fed from it, and each event
has its position there."""

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import DataFile, Manifest
from qanat.pipeline.archive.storage import storage_of
from qanat.pipeline.replay.row_groups import FileGone

LAST_INDEX = 2**32 - 1


class Span(NamedTuple):
    """The first and the last position that a file has of the log."""

    first: Position
    last: Position


class ArchivedPositions:
    """Shared by all readers of a publisher, in threads of their own. `source` is the log's: events of other
    sources are not looked at."""

    def __init__(self, archive: str, stream: str, source: str) -> None:
        self.history, self.source = History(storage_of(archive), stream), source
        self.updates = 0
        """Given from here, since it began; for people."""
        self._spans: dict[str, Span | None] = {}
        self._lock = threading.Lock()
        self._floor = Position(0)

    def missed(self, upto: Position) -> None:
        """What is before this is not all there, though spans of files look as if it were."""
        with self._lock:
            self._floor = max(self._floor, upto)

    def last(self) -> Position | None:
        """The last update that is archived."""
        files = reversed(self.history.newest().files)
        return next((span.last for file in files if (span := self.span(file)) is not None), None)

    def oldest(self, of_log: Position) -> Position:
        """From where on the archive has everything up to where the log begins, as far as is known, if it
        reaches to there."""
        manifest = self.history.newest()
        files = manifest.files[_unbroken(manifest) :]
        first = next((span.first for file in files if (span := self.span(file)) is not None), None)
        with self._lock:
            self._spans = {file.path: self._spans[file.path] for file in files if file.path in self._spans}
            return of_log if first is None else min(of_log, max(before(first), self._floor))

    def begin(self, files: Sequence[DataFile], after: Position) -> int:
        """The last of these files that begins at or before the position: what is in it up to there shows that
        nothing is missing between."""
        found, low, high = 0, 0, len(files)
        while low < high:
            middle = at = (low + high) // 2
            while at < high and self.span(files[at]) is None:
                at += 1
            span = self.span(files[at]) if at < high else None
            if span is not None and span.first <= after:
                found, low = at, at + 1
            else:
                high = middle
        return found

    def span(self, file: DataFile) -> Span | None:
        """None if the file has nothing of the log."""
        if file.path not in self._spans:
            found = self._read_span(file)
            with self._lock:
                self._spans[file.path] = found
        return self._spans.get(file.path)

    def _read_span(self, file: DataFile) -> Span | None:
        try:
            with self.history.storage.open(file.path) as opened:
                parquet = pq.ParquetFile(opened)
                groups = range(parquet.num_row_groups)
                first = next(filter(None, (self._place(parquet, group, 0) for group in groups)), None)
                if first is None:
                    return None
                last = next(filter(None, (self._place(parquet, group, -1) for group in reversed(groups))))
                return Span(first, last)
        except FileNotFoundError:
            raise FileGone(f"{self.history.storage.url(file.path)} is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise LocalError(f"{self.history.storage.url(file.path)} cannot be read: {error}") from error

    def _place(self, parquet: pq.ParquetFile, group: int, row: int) -> Position | None:
        """Of the first or the last event of the log in a row group."""
        rows = parquet.read_row_group(group, columns=["source"]).column("source").combine_chunks()
        mine = np.flatnonzero(pc.fill_null(pc.equal(pc.struct_field(rows, "name"), self.source), False))
        if not len(mine):
            return None
        there = rows[int(mine[row])].as_py()
        return Position(there["sequence"] & (2**64 - 1), there["index"] & LAST_INDEX)


def before(position: Position) -> Position:
    """The last position that is before it."""
    if position.index:
        return Position(position.sequence, position.index - 1)
    return Position(position.sequence - 1, LAST_INDEX) if position.sequence else position


def _unbroken(manifest: Manifest) -> int:
    """The first of the files after which no sequence number of the stream is missing."""
    files = manifest.files
    breaks = [at for at in range(1, len(files)) if files[at].first != files[at - 1].last + 1]
    return breaks[-1] if breaks else 0

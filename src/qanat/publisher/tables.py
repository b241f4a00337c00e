"""Rows as they are, for applications that begin with a snapshot: a reader of tables for each part of such an
application."""

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qanat.capture.reader import LogReader
from qanat.capture.sharding import Sharding
from qanat.capture.snapshot import Chunk
from qanat.capture.updates import Run, Updates
from qanat.capture.url import SnapshotChunks
from qanat.events.errors import LocalError, RemoteError
from qanat.protocols.publisher.reading import ReadLog, ReadTables
from qanat.protocols.publisher.tables import LAST_INDEX, Places, Where
from qanat.publisher.logs import Open, Piece, Readers, Tell, _Thread, pieces_of

OpenTables = Callable[[], SnapshotChunks]


class TableReaders(Readers):
    """Of the log, and of tables. Where a reader of tables was is remembered while the process lives: who
    comes again need not begin again."""

    def __init__(
        self,
        open_log: Open,
        open_tables: OpenTables,
        source: str,
        sharding: Sharding,
        chunk_bytes: int,
        tell: Tell,
    ) -> None:
        super().__init__(open_log, sharding, chunk_bytes, tell)
        self._open_tables, self._source = open_tables, source
        self._places: dict[tuple[str, int], tuple[int, Places]] = {}
        """Of an application and its part: which numbering, and its places."""

    def _thread(self, asked: ReadLog) -> _Thread:
        tables = asked.tables
        if tables is None:
            return super()._thread(asked)
        epoch, places = self._places.get((tables.application, tables.part), (-1, Places()))
        if epoch != tables.snapshot.epoch:
            places = Places()
        self._places[tables.application, tables.part] = tables.snapshot.epoch, places
        return _Tables(self._open_tables, self._source, places, self._tell, self._sharding, self._chunk_bytes)


class _Tables(_Thread):
    """Rows in the order of tables and of their keys, from wherever it is needed."""

    def __init__(
        self,
        open_tables: OpenTables,
        source: str,
        places: Places,
        tell: Tell,
        sharding: Sharding,
        chunk_bytes: int,
    ) -> None:
        self._open_tables, self._source, self._places = open_tables, source, places
        self._chunks: SnapshotChunks | None = None
        self._where, self._number, self._run = Where(), 0, -1
        super().__init__("tables", _no_log, tell, sharding, chunk_bytes)

    def answer(self, asked: object) -> None:
        assert isinstance(asked, ReadLog)
        if self._pieces and self._pieces[0].after != asked.after:
            self._pieces.clear()
            self._at = None
        if not self._pieces:
            self._read(asked, 0.0)
        self.succeeded()
        self._give(asked)

    def _read(self, asked: ReadLog, wait_s: float) -> None:
        tables = asked.tables
        assert tables is not None
        if self._at != asked.after:
            with _LOCK:
                self._number, self._where = self._places.begin(asked.after.index, tables.beyond)
                self._run = self._places.run
            self.counts["seeks"] += 1
        self._at = None  # until this is read
        chunk, where = self._chunk(asked.rows, tables)
        if chunk is None:
            self._pieces.append(Piece(asked.after, tables.snapshot.end, None))
            self._at = tables.snapshot.end
            return
        count = len(chunk)
        if self._number + count >= LAST_INDEX:
            raise LocalError(
                f"a snapshot of {tables.application!r} has more than {LAST_INDEX:,} rows, those that were"
                " read again included"
            )
        rows = replace(
            chunk,
            sequences=np.full(count, tables.snapshot.sequence, np.uint64),
            indexes=np.arange(self._number + 1, self._number + count + 1).astype(np.uint32),
        )
        with _LOCK:
            if not self._places.read(self._run, count, where):
                raise RemoteError("another reads these tables now")
        self._number, self._where = self._number + count, where
        updates = Updates([rows])
        self._pieces.extend(pieces_of(updates, asked.after, self._sharding, self._source, self._chunk_bytes))
        self._at = updates.upto

    def _chunk(self, limit: int, tables: ReadTables) -> tuple[Run | None, Where]:
        """The next rows, and where they end; None after the last."""
        if self._chunks is None:
            self._chunks = self._open_tables()
        listed, where = sorted(self._chunks.tables()), self._where
        while True:
            name, key = where
            if key is None or name not in listed:  # it is done, or was dropped
                name, key = next((each for each in listed if each > name), ""), None
            if not name:
                return None, where
            found: Chunk = self._chunks.chunk(name, key, limit)
            if found.low.sequence < tables.snapshot.sequence:
                raise RemoteError(
                    f"the tables are as they were at {found.low}, and the snapshot begins at"
                    f" {tables.snapshot.sequence}: this copy is behind and is waited for"
                )
            where = Where(name, found.last)
            if len(found.rows):
                return found.rows, where

    def _drop(self) -> None:
        super()._drop()
        if self._chunks is not None:
            try:
                self._chunks.close()
            finally:
                self._chunks = None


_LOCK = threading.Lock()
"""Of places: a reader that is about to end may still be at work when the next one begins."""


def _no_log() -> LogReader:
    raise LocalError("tables have no log")

"""A log's ranges as a source for Spark: what has come since, as one row with its two ends.

Spark asks in a process of its own, which looks only at the log's end and may be killed at any time. The ends
are few bytes, and travel with the question: so no task is needed to read them.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from qanat.capture.reader import LogReader
from qanat.capture.url import open_reader, parse_log_url
from qanat.events.errors import QanatError, RemoteError
from qanat.events.position import Position
from qanat.pipeline.changes.offsets import Offset, is_beyond
from qanat.pipeline.changes.ranges import range_end
from qanat.pipeline.ingest.failures import Disagreement, Outage, Told, kind_of
from qanat.pipeline.ingest.trouble import Trouble

FORMAT = "qanat_ranges"
DDL = "after string, upto string, newest string, seen_us bigint, released string"
_IDLE_S = 0.2
"""Spark asks again at once, which costs it some milliseconds of work: it is answered this late if there is
nothing."""
_POLLS_S = {"rocksdb": 0.004, "file": 0.02}
_POLL_S = 0.015
"""Between two questions to a server, which cost it a tenth of that."""
_UNREADY_S = 20.0
"""For how long the process that tasks are to come to is waited for."""


class Range(NamedTuple):
    """What a task is given: everything after `after` and up to `upto`."""

    after: Position
    upto: Position
    newest: Position
    """How far the log was when this was planned."""
    seen_us: int
    """When that was."""
    released: Position | None
    """Spark has written down that everything up to here is done: nobody will ask for it again."""

    def row(self) -> tuple[str, str, str, int, str]:
        released = "" if self.released is None else str(self.released)
        return str(self.after), str(self.upto), str(self.newest), self.seen_us, released

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Range":
        after, upto, newest = (Position.parse(row[name]) for name in ("after", "upto", "newest"))
        released = Position.parse(row["released"]) if row["released"] else None
        return cls(after, upto, newest, row["seen_us"], released)


class RangesSource(DataSource):
    """Options: `log` (a URL), `source` (the log's name), `start`, `rows` (of a range, about), `until`
    (perhaps), `trouble` (a file), `patience_s`, `unready` (a file; as long as it is there nobody should get a
    range)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return DDL

    def simpleStreamReader(self, schema: Any) -> "Ranges":
        return Ranges(self.options)


class Ranges(SimpleDataSourceStreamReader):
    """Everything here can be made again from the options and the offsets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._source = options["log"], options["source"]
        self._start, self._rows = Position.parse(options["start"]), int(options["rows"])
        self._until = Position.parse(options["until"]) if options.get("until") else None
        self._scheme = parse_log_url(self._url).scheme
        self._trouble = Trouble(Path(options["trouble"]), float(options["patience_s"]))
        self._unready: Path | None = Path(options["unready"])
        self._reader: LogReader | None = None
        self._released: Position | None = None

    def initialOffset(self) -> dict[str, Any]:
        return Offset(self._source, self._start, self._start).json()

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        try:
            at = Offset.read(start)
            try:
                newest, upto = self._ends(at)
                self._trouble.over()
            except RemoteError as error:
                self._forget()
                if kind_of(error) is not Outage:
                    raise
                self._trouble.wait(error)
                return iter(()), start
        except QanatError as error:
            raise Told(error) from None
        if upto is None:
            return iter(()), start
        self._await_worker()
        row = Range(at.position, upto, newest, time.time_ns() // 1000, self._released).row()
        return iter([row]), at.moved(upto, None).json()

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        after, upto = Offset.read(start).position, Offset.read(end).position
        return iter([Range(after, upto, upto, time.time_ns() // 1000, None).row()])

    def commit(self, end: dict[str, Any]) -> None:
        self._released = Offset.read(end).position

    def _ends(self, at: Offset) -> tuple[Position, Position | None]:
        """How far the log is, and how far to go; None if there is nothing to do."""
        reader = self._opened(at)
        newest = self._newest(reader, at.position)
        upto = newest if self._until is None else min(newest, self._until)
        return newest, range_end(reader, self._scheme, at.position, upto, self._rows)

    def _await_worker(self) -> None:
        deadline = time.monotonic() + _UNREADY_S
        while self._unready is not None and self._unready.exists() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._unready = None

    def _forget(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(Exception):
                reader.close()

    def _opened(self, at: Offset) -> LogReader:
        if self._reader is None:
            self._reader = open_reader(self._url)
            agree(self._reader, at, self._url)
        return self._reader

    def _newest(self, reader: LogReader, after: Position) -> Position:
        """How far the log is; if there is nothing new, a little later."""
        deadline = time.monotonic() + _IDLE_S
        while True:
            newest = reader.latest()
            if is_beyond(self._scheme, newest, after) or time.monotonic() >= deadline:
                return newest
            time.sleep(_POLLS_S.get(self._scheme, _POLL_S))


def agree(reader: LogReader, at: Offset, url: str, whose: str = "the checkpoint") -> None:
    """Refuses an offset that is none of this log."""
    named = parse_log_url(url)
    if at.source != reader.source:
        raise Disagreement(
            f"{whose} is of the log {at.source!r}, but {named} is {reader.source!r}: another database, or one"
            " that was made anew in its place; name the log that it is of, or give the pipeline another"
            " state folder"
        )
    if named.scheme in ("file", "hdfs"):
        return  # a position in a file that there never was is refused by its reader
    newest = reader.latest()
    if is_beyond(named.scheme, at.position, newest):
        raise Disagreement(
            f"{whose} is at {at.position}, but the log of {named} ends at {newest}: it was restored from a"
            " backup or lost its end, or this is a replica that is behind; name the replica that has it, or"
            " publish into new streams with another state folder"
        )

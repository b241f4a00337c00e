"""What Spark asks of a streaming source of a log, whether it gives rows or ranges: where it begins, how far
it is, how it ends.

Spark asks it in a process of its own, which may be killed at any time: everything here can be made again from
the options and the offsets.
"""

import logging
import time
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from qanat.capture.files.positions import place_of
from qanat.capture.reader import Acknowledging
from qanat.capture.rocksdb.positions import own_position
from qanat.capture.url import split_warning
from qanat.events.errors import RemoteError
from qanat.events.position import Position
from qanat.pipeline.changes.log import Log
from qanat.pipeline.changes.offsets import ChangesDisagree, Offset, first
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.sentences import in_sentences

log = logging.getLogger("qanat.pipeline")

ALL = 1 << 62
"""Rows of a batch without a limit."""
_COUNTED = {
    "mariadb": "transactions",
    "mysql": "transactions",
    "postgresql": "bytes",
    "postgres": "bytes",
    "file": "bytes",
    "hdfs": "bytes",
}
"""What positions of a log count."""
_PAUSE_S = 0.05
_LATEST_S = 1.0
"""How old an answer about the log's end may be, which is for measuring how far behind a job is."""


def lag_of(scheme: str, at: Position, newest: Position) -> dict[str, Any]:
    """How far one position is behind another, and what that counts; nothing where it counts nothing."""
    if scheme == "rocksdb":
        return {"lag": own_position(newest) - own_position(at), "lag_in": "entries"}
    if scheme in ("file", "hdfs") and place_of(at).number != place_of(newest).number:
        return {}
    return {"lag": newest.sequence - at.sequence, "lag_in": _COUNTED.get(scheme, "events")}


@in_sentences
class Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`_end(start, rows)` is the subclass's: where the batch after `start` ends, or None if there is none
    yet."""

    def __init__(self, options: ChangesOptions) -> None:
        self._log = Log(options)
        self._target: Position | None = None
        """How far the log is read at most, for a trigger that ends."""
        self._failing_since: float | None = None
        self._latest: tuple[float, Position] = (float("-inf"), Position(0))

    def initialOffset(self) -> dict[str, Any]:
        self._log.refuse_unidentified()
        if warning := split_warning(self._log.options.url, self._log.choice.sharding):
            log.warning(warning)
        return self._begin().json()

    def _begin(self) -> Offset:
        """Where a job without a checkpoint begins."""
        reader, begin = self._log.reader, self._log.options.begin()
        at = reader.oldest() if begin == "earliest" else reader.latest() if begin == "latest" else begin
        assert isinstance(at, Position)
        return Offset(reader.source, at, at)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._log.options.rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log.reader.latest()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For Spark's progress alone: which log it is, where it ends, and how far that is from what was
        read."""
        at = self._log.at
        if at is None:
            return None
        now = time.monotonic()
        if now - self._latest[0] > _LATEST_S:
            self._latest = now, self._log.reader.latest()
        newest = max(self._latest[1], at)
        options = self._log.options
        told = {"source": self._log.reader.source, "log": str(options), "position": str(newest)}
        return told | lag_of(options.scheme, at, newest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        at = Offset.read(start)
        kept = self._target
        if isinstance(limit, ReadAllAvailable) and kept is None:
            self._target = self._log.reader.latest()
        try:
            end = self._end(at, limit.max_rows if isinstance(limit, ReadMaxRows) else ALL)
            self._failing_since = None
        except RemoteError as error:
            self._failed(error)
            return start
        finally:
            self._target = kept
        return start if end is None else end.json()

    def _end(self, start: Offset, rows: int) -> Offset | None:
        raise NotImplementedError

    def _failed(self, error: RemoteError) -> None:
        """The datastore is away: it is asked again, for as long as patience lasts."""
        self._log.at = None
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > self._log.options.patience:
            raise error
        time.sleep(_PAUSE_S)

    def _between(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[Offset, Offset]:
        """Where a batch begins and ends."""
        since, until = Offset.read(start), Offset.read(end)
        if since.source != until.source:
            raise ChangesDisagree(
                f"the checkpoint begins a batch in {since.source!r} and ends it in {until.source!r}: the log"
                " was exchanged for another before the first batch was done, or two jobs have written this"
                " checkpoint; begin with a new one"
            )
        return first(since, until), until

    def commit(self, end: dict[str, Any]) -> None:
        """Whoever keeps its log until it is told may give it back up to here."""
        reader = self._log.reader
        if isinstance(reader, Acknowledging):
            reader.acknowledge(Offset.read(end).position)

    def stop(self) -> None:
        self._log.close()

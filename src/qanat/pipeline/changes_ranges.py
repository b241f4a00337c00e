"""A log as ranges: of a large backlog only `after` and `upto` go through Spark, and the task that gets a
range reads it.

Spark would copy every row some times between processes; a task that reads the log itself and publishes what
it reads copies none. The reader of a process stays open between its tasks, so that the next range of the same
log begins where the last one ended, without a seek.

```python
ranges = spark.readStream.format("qanat").option("changes", url).option("ranges", "true").load()
# source string, after string, upto string: one row for each micro-batch, in one partition
for events in events_in(options, Position.parse(after), Position.parse(upto)):  # in the task
    client.publish_at(stream, events.payloads, (events.sequences, events.indexes), …)
```
"""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from qanat.capture.continuity import Mark
from qanat.capture.events import Events
from qanat.capture.reader import Acknowledging, LogReader
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.pipeline.changes_log import Log
from qanat.pipeline.changes_offsets import Offset
from qanat.pipeline.changes_options import ChangesOptions
from qanat.pipeline.changes_planning import Planner
from qanat.pipeline.log_ranges import range_end
from qanat.pipeline.sentences import in_sentences

RANGES_DDL = "source string, after string, upto string"
RANGES = pa.schema([("source", pa.string()), ("after", pa.string()), ("upto", pa.string())])
_PAUSE_S = 0.01


class RangePartition(InputPartition):
    """Updates after one position and up to another."""

    def __init__(self, source: str, after: Position, upto: Position) -> None:
        self.source, self.after, self.upto = source, after, upto

    def row(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [{"source": self.source, "after": str(self.after), "upto": str(self.upto)}], RANGES
        )


@in_sentences
class ChangesRanges(Planner):
    """Asks the log only for its end; so that end is found without reading up to it."""

    def _end(self, start: Offset, rows: int) -> Offset | None:
        reader = self._log.reader
        if self._log.at != start.position:
            self._log.refuse_unidentified()
            refuse_exclusive(reader, self._log.options)
            self._log.go(start)
        newest = reader.latest() if self._target is None else self._target
        end = range_end(reader, self._log.options.scheme, start.position, newest, rows)
        if end is None:
            time.sleep(_PAUSE_S)
            return None
        self._log.at = end
        return start.moved(end, None)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        since, until = self._between(start, end)
        return [RangePartition(self._log.source, since.position, until.position)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        yield partition.row()


def refuse_exclusive(reader: LogReader, options: ChangesOptions) -> None:
    if isinstance(reader, Acknowledging):
        raise LocalError(
            f"{options}: this log has one reader at a time and is given back as it is read, so it is not read"
            " by ranges; leave out the option ranges"
        )


# --- in the task ----------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    pid: int
    log: Log


_kept: dict[ChangesOptions, _Kept] = {}
"""Readers between two tasks of this process; of another process after a fork they are not to be touched."""


def events_in(
    options: ChangesOptions, after: Position, upto: Position, last: Mark | None = None
) -> Iterator[Events]:
    """What was chosen of a range, as events, in the order of the log; some thousands at a time.

    `last` is the update that whoever stores them has at `after`: if the log has another there, it is not the
    log that was read before (`OtherLog`). Raises `ChangesDisagree` for what the log no longer has, unless the
    options accept losses: then they are events.
    """
    kept = _kept.pop(options, None)
    log = kept.log if kept is not None and kept.pid == os.getpid() else Log(options)
    try:
        if last is not None:
            log.at = None
        log.go(Offset(log.reader.source, after, after, last))
        for item in log.upto(upto):
            events = log.events(item)
            if len(events):
                yield events
    except BaseException:
        log.close()
        raise
    _kept[options] = _Kept(os.getpid(), log)

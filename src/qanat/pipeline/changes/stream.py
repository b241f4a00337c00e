"""A log as a streaming source of rows, which are read where Spark plans them.

A log is one ordered sequence and has one reader, which stays open from batch to batch in the process in which
Spark asks for offsets. It reads ahead what the next micro-batch is, and the rows travel with the batch's one
partition; so nothing is sought or connected anew in the steady state, and a log that only one reader may
follow (a replication slot) is no special case. After a kill, a batch whose end was written down is read once
more from the log, between its two offsets. A job that begins with a snapshot has its rows first; see
`changes_snapshot`.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from qanat.capture.reader import Lost
from qanat.capture.updates import Updates
from qanat.pipeline.changes.log import READ_ROWS, last_mark
from qanat.pipeline.changes.offsets import ChangesDisagree, Offset
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.changes.planning import ALL, Planner
from qanat.pipeline.changes.rows import chosen, packed, rows_of, unpacked
from qanat.pipeline.changes.snapshot import Given, Taking
from qanat.pipeline.sentences import in_sentences

_WAIT_S = 0.05
"""Spark asks again and again; this keeps it from asking without pause, and delays nothing, since a read ends
with the first update."""
_IDLE_S = 10.0
"""How often a micro-batch without rows may move the offset, so that the log before it can be given back."""


class RowsPartition(InputPartition):
    """What was read, as bytes of an Arrow stream."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class _Ahead(NamedTuple):
    """What the next micro-batch is."""

    start: Offset
    end: Offset
    batches: list[pa.RecordBatch]


@in_sentences
class ChangesStream(Planner):
    """See the top of the module."""

    def __init__(self, options: ChangesOptions) -> None:
        super().__init__(options)
        self._passed: _Ahead | None = None
        """What was read since the offset that Spark knows; if nothing of it was chosen, Spark is not told at
        once."""
        self._moved_at = time.monotonic()
        self._taking = Taking(self._log)
        self._given = Given.at(options.state) if options.takes_snapshot else None

    def _begin(self) -> Offset:
        return super()._begin() if self._given is None else self._taking.begin()

    def _end(self, start: Offset, rows: int) -> Offset | None:
        if start.taken is not None:
            return self._taken(start, rows)
        passed = self._passed
        if passed is None or passed.start != start:
            self._log.refuse_unidentified()
            self._log.go(start)
            passed = _Ahead(start, start, [])
        if not passed.batches:
            self._passed = None  # if reading fails, it begins anew
            passed = self._passed = self._further(passed, rows)
        now = time.monotonic()
        if passed.end.position == start.position:
            return None
        if not passed.batches and self._target is None and now - self._moved_at < _IDLE_S:
            return None
        self._moved_at = now
        return passed.end

    def _taken(self, start: Offset, rows: int) -> Offset:
        """The next micro-batch of the snapshot, which Spark can have again once it knows of it."""
        self._log.refuse_unidentified()
        end, batches = self._taking.next(start, rows, self._log.options.bytes if rows < ALL else ALL)
        self._waiting().keep(start, end, batches)
        self._passed = _Ahead(start, end, batches)
        return end

    def _waiting(self) -> Given:
        if self._given is None:
            raise ChangesDisagree(
                f"{self._log.options}: the checkpoint is in the middle of a snapshot: let the options 'start'"
                " and 'state' be what they were"
            )
        return self._given

    def _further(self, passed: _Ahead, limit: int) -> _Ahead:
        """What the log has now, within the limits of a batch."""
        log, last = self._log, passed.end.last
        most = log.options.bytes if limit < ALL else ALL
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        log.step = min(limit, READ_ROWS)
        for item in self._items() if self._target is None else log.upto(self._target):
            made = self._rows(item)
            last = last_mark(item) or last
            rows += 1 if isinstance(item, Lost) else len(item)
            size += made.nbytes
            if len(made):
                batches.append(made)
            if rows >= limit or size >= most:
                break
            log.step = min(limit - rows, READ_ROWS)
        assert log.at is not None
        return _Ahead(passed.start, passed.end.moved(log.at, last), batches)

    def _items(self) -> Iterator[Updates | Lost]:
        """What is there; the first is waited for a little."""
        wait_s = _WAIT_S
        while True:
            before = self._log.at
            item = self._log.read(self._log.step, wait_s)
            if self._log.at == before:
                return
            yield item
            wait_s = 0.0

    def _rows(self, item: Updates | Lost) -> pa.RecordBatch:
        return rows_of(*chosen(item, self._log.choice, self._log.options), self._log.source)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        since, until = self._between(start, end)
        ahead = self._passed
        if ahead is None or (ahead.start, ahead.end) != (since, until):
            ahead = self._again(since, until)
        self._passed = None
        return [RowsPartition(packed(ahead.batches))] if ahead.batches else []

    def _again(self, since: Offset, until: Offset) -> _Ahead:
        """A batch that Spark had planned and not finished before it was ended."""
        if since.taken is not None:
            return _Ahead(since, until, self._waiting().again(since, until))
        self._log.at = None
        self._log.go(since)
        self._log.step = READ_ROWS
        made = [self._rows(item) for item in self._log.upto(until.position)]
        return _Ahead(since, until, [batch for batch in made if len(batch)])

    def commit(self, end: dict[str, Any]) -> None:
        super().commit(end)
        if self._given is not None:
            self._given.done(Offset.read(end))

    def stop(self) -> None:
        self._taking.close()
        super().stop()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowsPartition)
        yield from unpacked(partition.data)

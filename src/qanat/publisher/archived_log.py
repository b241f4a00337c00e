"""A log that goes on in an archive where it ends: what it no longer has is read from the archive of a stream
that was fed from it.

The events of such a stream have the log's own positions, so that flows do not notice where their updates come
from. What the archive lacks as well, or may lack, is a loss: before the first update that it has, under
tombstones, what the feed itself found missing, after the last.
"""

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from qanat.capture.continuity import Expecting, Mark
from qanat.capture.losses import is_loss
from qanat.capture.reader import Acknowledging, LogReader, Lost, Start
from qanat.capture.rebuild import updates_of
from qanat.capture.updates import Updates
from qanat.events.batch import Batch, Kind
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.pipeline.archive.errors import ArchiveError
from qanat.pipeline.replay.row_groups import FileGone, read_batches, row_groups
from qanat.publisher.archived_positions import ArchivedPositions, before

_BATCH_BYTES = 1 << 20
"""Rebuilt at once."""
_NEITHER = "neither the log nor its archive has it"


class ArchivedLog(LogReader):
    """`log`, and behind its beginning the archive. As any reader, for one thread.

    A read that raises leaves it anywhere: it must be sought again.
    """

    def __init__(self, log: LogReader, archive: ArchivedPositions) -> None:
        self._log, self._archive = log, archive
        self._missing: Lost | None = None
        """What the log lacks, and the archive is asked for."""
        self._batches: Iterator[Batch | None] = iter(())
        self._pending: deque[Updates | Lost] = deque()
        self._end = Position(0)
        """As far as pending items reach."""
        self._joined = False
        """Whether the next update of the archive is the next of the log."""
        self._beyond = False
        """Whether the archive was seen to reach further than what is missing."""
        self._asked = Position(0), Position(0), False

    @property
    def source(self) -> str:
        return self._log.source

    @property
    def identified(self) -> bool:
        return self._log.identified

    def seek(self, start: Start) -> None:
        self._missing = None
        self._pending.clear()
        self._log.seek(self.oldest() if start == "earliest" else start)

    def expect(self, last: Mark) -> None:
        """Where the log no longer has the position, the archive is taken for what it is said to be."""
        if isinstance(self._log, Expecting):
            self._log.expect(last)

    def oldest(self) -> Position:
        """Where the archive begins, if it reaches to where the log begins. It must be sought after this."""
        of_log = self._log.oldest()
        try:
            ends = self._archive.last()
            if ends is None or (ends < of_log and not self._follows(ends, of_log)):
                return of_log
            return self._archive.oldest(of_log)
        except (LocalError, OSError):  # who reads it will say so; the log is there nevertheless
            return of_log

    def _follows(self, ends: Position, of_log: Position) -> bool:
        """Whether the log has what comes next: a log may call the place before its first update otherwise
        than the update before that."""
        if self._asked[:2] != (ends, of_log):
            self._log.seek(ends)
            self._asked = ends, of_log, not isinstance(self._log.read(1), Lost)
        return self._asked[2]

    def latest(self) -> Position:
        return self._log.latest()

    def close(self) -> None:
        self._log.close()

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        if self._missing is None:
            found = self._log.read(limit, wait_s)
            if not isinstance(found, Lost):
                return found
            self._ask_for(found)
        missing = self._missing
        assert missing is not None
        try:
            self._fill(missing)
        except FileGone:  # it was replaced by another, with the same in it; or it is missing for good
            self._ask_for(Lost(self._end, missing.upto, missing.reason))
            try:
                self._fill(missing)
            except FileGone as error:
                raise ArchiveError(f"{error}: restore it from a copy") from error
        except OSError as error:
            raise ArchiveError(f"the archive cannot be read: {error}") from error
        if not self._pending:
            return self._read_after_archive(limit, wait_s)
        item = self._pending.popleft()
        if isinstance(item, Lost):
            self._archive.missed(item.upto)
        else:
            if len(item) > limit:
                item, rest = _cut(item, limit)
                self._pending.appendleft(rest)
            self._archive.updates += len(item)
        if not self._pending and item.upto is not None and item.upto >= missing.upto:
            self._missing = None
            self._log.seek(missing.upto)
        return item

    # --- the archive --------------------------------------------------------------------------------

    def _ask_for(self, lost: Lost) -> None:
        self._missing, self._end = lost, lost.after
        self._joined = self._beyond = False
        self._batches = self._from(lost.after)

    def _from(self, after: Position) -> Iterator[Batch | None]:
        """None where the archive itself lacks something."""
        history = self._archive.history
        files = history.newest().files
        files = files[self._archive.begin(files, after) :]
        for at, file in enumerate(files):
            if at and file.first != files[at - 1].last + 1:
                yield None
            for group in row_groups(history.storage, file):
                yield from read_batches(history.storage, history.stream, group, _BATCH_BYTES)

    def _fill(self, missing: Lost) -> None:
        """Until there is something to give; there is nothing if the archive ends before what is missing
        does."""
        while not self._pending:
            if self._beyond or self._end >= missing.upto:
                self._pending.append(Updates((), missing.upto))
                return
            try:
                batch = next(self._batches)
            except StopIteration:
                return
            if batch is None:
                self._joined = False
            else:
                self._take(batch, missing.upto)

    def _read_after_archive(self, limit: int, wait_s: float) -> Updates | Lost:
        """The log knows best whether something lies between."""
        self._missing = None
        self._log.seek(self._end)
        found = self._log.read(limit, wait_s)
        if isinstance(found, Lost):
            self._archive.missed(found.upto)
            return found._replace(reason=f"{found.reason}; its archive ends at {self._end}")
        return found

    def _take(self, batch: Batch, upto: Position) -> None:
        """Its events that are of this log, in runs of one kind."""
        kinds = batch.kinds
        collected = np.zeros(batch.count, bool) if kinds is None else kinds == Kind.TOMBSTONE
        mine = self._mine(batch) & ~collected
        lost = is_loss(batch) & mine
        state = np.where(collected, 1, np.where(lost, 2, np.where(mine, 3, 0)))
        kept = np.flatnonzero(state)
        edges = [0, *(np.flatnonzero(np.diff(state[kept])) + 1).tolist(), len(kept)]
        for start, stop in pairwise(edges):
            if start == stop or self._beyond:
                return
            rows = kept[start:stop]
            match int(state[rows[0]]):
                case 1:
                    self._joined = False  # garbage was collected there, and it may have been this log's
                case 2:
                    self._feed_missed(_last(batch, rows), upto)
                case _:
                    self._add(updates_of(batch.take(rows)), upto)

    def _mine(self, batch: Batch) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        names, codes = batch.source_names, batch.source_codes()
        if batch.positions() is None or self._archive.source not in names:
            return np.zeros(batch.count, bool)
        code = names.index(self._archive.source)
        return np.full(batch.count, code == 0) if codes is None else np.asarray(codes == code)

    def _feed_missed(self, position: Position, upto: Position) -> None:
        """The log had lost this already when the stream was fed; what comes after it is whole again."""
        self._skip(min(position, upto), f"{_NEITHER}: the log had lost it before it was archived")
        self._joined = True
        self._beyond = position > upto

    def _add(self, found: Updates, upto: Position) -> None:
        first = found.runs[0].position(0)
        if first > self._end and not self._joined:
            self._skip(min(before(first), upto), f"{_NEITHER} for certain")
        self._joined = True
        found = found.after(self._end)
        inside = _until(found, upto)
        self._beyond = len(inside) < len(found)
        if inside:
            self._pending.append(inside)
            self._end = inside.runs[-1].position(-1)

    def _skip(self, upto: Position, reason: str) -> None:
        if upto > self._end:
            # No log begins to count at 0: before its first transaction nothing is missing.
            self._pending.append(Lost(self._end, upto, reason) if upto.sequence else Updates((), upto))
            self._end = upto


class AcknowledgingLog(ArchivedLog):
    """Of a datastore that keeps its log until it is told."""

    def acknowledge(self, position: Position, resume: Position | None = None) -> None:
        assert isinstance(self._log, Acknowledging)
        self._log.acknowledge(position, resume)

    def advance(self, position: Position) -> None:
        assert isinstance(self._log, Acknowledging)
        self._log.advance(position)


def with_archive(log: LogReader, archive: ArchivedPositions) -> LogReader:
    return AcknowledgingLog(log, archive) if isinstance(log, Acknowledging) else ArchivedLog(log, archive)


def _last(batch: Batch, rows: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> Position:
    places = batch.positions()
    assert places is not None
    return Position(int(places[0][rows[-1]]), int(places[1][rows[-1]]))


def _cut(updates: Updates, limit: int) -> tuple[Updates, Updates]:
    head, tail, left = [], [], max(limit, 1)
    for run in updates.runs:
        taken = min(left, len(run))
        head.append(run.slice(0, taken))
        tail.append(run.slice(taken, len(run)))
        left -= taken
    return Updates(head), Updates(tail)


def _until(updates: Updates, upto: Position) -> Updates:
    inside = len(updates) - len(updates.after(upto))
    return _cut(updates, inside)[0] if inside else Updates()

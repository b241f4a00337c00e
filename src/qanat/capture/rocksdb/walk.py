"""From file to file: batches in the order of their sequence numbers, with every number that is missing among
them told.

Sequence numbers are dense: a batch of n entries takes n of them. So what a batch should begin with is known
from the one before, whatever file that was in, and a gap cannot be overlooked. A file is left for the next
only when the next has a record, since RocksDB writes a file to its end before that.
"""

import time
from typing import NamedTuple, TypeAlias

import numpy as np

from qanat.capture.errors import LogUnreachable, MalformedLog
from qanat.capture.rocksdb.decode_batches import BATCH_HEADER_BYTES, Entries, TwoPhase, decode
from qanat.capture.rocksdb.decode_records import Scan
from qanat.capture.rocksdb.files import (
    CHUNK_BYTES,
    Folders,
    OpenLog,
    folder_changed,
    list_logs,
    read_manifest,
)
from qanat.capture.rocksdb.transactions import Prepared, is_prepared, resolve, rows_of
from qanat.events.position import Position

_LIST_S = 0.2
"""How old a list of the log files may be; a change in their folder that its time does not show is seen so
much later."""

_COARSE_NS = 50_000_000
_ALL = 1 << 40


class Gap(NamedTuple):
    """Sequence numbers `first` to `last` are not in the log; `whole` batches, so what follows begins with
    `last` + 1."""

    first: int
    last: int
    reason: str
    last_index: int = 0
    """How far into the last batch the gap goes, where it is known to begin with `last`."""


class Unreadable(NamedTuple):
    """A batch that is whole, and has something in it that is not read here; what follows is read on."""

    sequence: int
    rows: int
    """So many entries as it says that it has, if it has room for them."""
    reason: str
    original: bytes

    @property
    def last(self) -> Position:
        """Of its last entry."""
        return Position(self.sequence, max(self.rows, 1) - 1)


Step: TypeAlias = Entries | Gap | Unreadable


class Walk:
    """A place between two batches."""

    def __init__(self, folders: Folders, unlogged: bool = False) -> None:
        """`unlogged`: gaps inside a file, or between files that are both there, are not told."""
        self._folders = folders
        self._unlogged = unlogged
        self._log: OpenLog | None = None
        self._firsts: dict[int, int] = {}
        self._prepared = Prepared()
        self._spoiled: dict[bytes, MalformedLog] = {}
        """Why what was prepared under these names cannot be read, and what it is."""
        self._together = _ALL
        """So many batches are decoded at once: few behind one that could not be, since it may not be the only
        one."""
        self._two_phase = False
        self._last: Position | None = None
        self._listed: list[int] = []
        self._listed_at = float("-inf")
        self._changed = 0
        self.expected = 1
        """The sequence number that the next batch should have."""

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def firsts(self) -> list[tuple[int, int]]:
        """Number and first sequence number of each log file that has a record."""
        numbers = list_logs(self._folders)
        self._firsts = {number: first for number, first in self._firsts.items() if number in set(numbers)}
        found = ((number, self._first(number)) for number in numbers)
        return [(number, first) for number, first in found if first is not None]

    def _first(self, number: int) -> int | None:
        if number in self._firsts:
            return self._firsts[number]
        try:
            log = OpenLog(self._folders, number)
        except FileNotFoundError:
            return None
        try:
            first = log.first_sequence()
        finally:
            log.close()
        if first is not None:
            self._firsts[number] = first
        return first

    def seek(self, sequence: int, expected: int) -> Gap | None:
        """To a file's beginning at or before the batch with this sequence number, so that the next steps come
        to it.

        `expected` is what should come next; the gap that there is before the oldest file.
        """
        self.close()
        self._prepared = Prepared()
        self.expected = expected
        flushed = read_manifest(self._folders).last_sequence
        logs = self.firsts()
        if not logs:
            if flushed < expected:
                return None
            gap = Gap(expected, flushed, "all log files were deleted")
            self.expected = flushed + 1
            return gap
        number, first = max((log for log in logs if log[1] <= max(sequence, expected)), default=logs[0])
        self._open(number)
        self.expected = first if first >= expected else -1
        if first <= expected:
            return None
        return Gap(expected, first - 1, f"log files before {number:06d}.log were deleted")

    def last(self) -> Position | None:
        """The position of the last entry in the log: goes on from where the last call ended, or with the last
        file that has an entry."""
        if self._log is None:
            for number, _ in reversed(self.firsts()):
                self._open(number)
                self.expected = -1
                if self._to_end():
                    break
        else:
            self._to_end()
        return self._last

    def _to_end(self) -> bool:
        """Whether there was any entry."""
        found = False
        while True:
            try:
                last = self._over() or self._last_of(self.step())
            except MalformedLog:  # whoever reads will come to it
                self.close()
                return found
            if last is None:
                return found
            if last:
                self._last, found = last, True

    def _over(self) -> Position | None:
        """Goes over some batches of which only the last is decoded; None if that one has no entry, or there
        is none."""
        if self._log is None or self._two_phase:
            return None
        found = self._log.scan()
        if not len(found.starts):
            return None
        try:
            last = self._last_of(decode(found.data, found.starts[-1:], found.ends[-1:]))
        except (TwoPhase, MalformedLog):
            return None
        if last:
            self._log.advance(found, len(found.starts))
            self.expected = -1
        return last or None

    @staticmethod
    def _last_of(entries: Step | None) -> Position | tuple[()] | None:
        """Empty if there is no entry among them."""
        if entries is None:
            return None
        if isinstance(entries, Unreadable):
            return entries.last
        if isinstance(entries, Gap) or not len(entries.tags):
            return ()
        batch = int(np.flatnonzero(entries.rows)[-1])
        return Position(int(entries.sequences[batch]), int(entries.rows[batch]) - 1)

    def _open(self, number: int) -> None:
        try:
            log = OpenLog(self._folders, number)
        except FileNotFoundError:
            raise LogUnreachable(f"log file {number} was deleted as it was opened; read again") from None
        self.close()
        self._log = log

    def step(self, most: int = CHUNK_BYTES) -> Step | None:
        """The batches that follow; None if there is nothing (yet)."""
        if self._log is None:
            logs = self.firsts()
            if not logs:
                return None
            number, first = logs[0]
            self._open(number)
            return self._continued(first, f"log files before {number:06d}.log were deleted") or self.step(
                most
            )
        found = self._log.scan(most)
        if len(found.starts):
            return self._decoded(self._log, found)
        if found.problem:
            raise MalformedLog(f"log file {self._log.number:06d}.log, byte {found.upto}: {found.problem}")
        return self._next_file(self._log)

    def _logs(self) -> list[int]:
        """The log files, looked for only now and then while nothing happens in their folder: there may be
        thousands in the archive."""
        changed = folder_changed(self._folders)
        now = time.monotonic()
        if changed != self._changed or now > self._listed_at + _LIST_S:
            # Times of files are coarse: what changes right after the list is made may bear the same.
            settled = time.time_ns() - changed > _COARSE_NS
            self._listed, self._listed_at = list_logs(self._folders), now
            self._changed = changed if settled else 0
        return self._listed

    def _next_file(self, log: OpenLog) -> Step | None:
        listed = self._logs()
        later = ((number, self._first(number)) for number in listed if number > log.number)
        following = next(((number, first) for number, first in later if first is not None), None)
        if following is None:
            return None
        found = log.scan()  # what was written between the last scan and the beginning of the next file
        if len(found.starts):
            return self._decoded(log, found)
        if found.problem:
            raise MalformedLog(f"log file {log.number:06d}.log, byte {found.upto}: {found.problem}")
        number, first = following
        there = log.number in listed
        reason = f"log files between {log.number:06d}.log and {number:06d}.log were deleted"
        if found.torn and there:
            reason = f"{log.number:06d}.log breaks off at byte {found.upto}"
        elif there:
            reason = _UNLOGGED
        self._open(number)
        return self._continued(first, reason) or self.step()

    def _continued(self, first: int, reason: str) -> Gap | None:
        """At the beginning of a file."""
        if 0 <= first < self.expected:
            raise _went_back(self.expected, first)
        told = first > self.expected >= 0 and not (self._unlogged and reason is _UNLOGGED)
        gap = Gap(self.expected, first - 1, reason) if told else None
        self.expected = first
        return gap

    def _decoded(self, log: OpenLog, found: Scan) -> Step | None:
        """The first batches of a scan, as many as follow each other and can be read."""
        entries, used = self._readable(log, found, min(len(found.starts), self._together))
        if isinstance(entries, Unreadable):
            return self._passed(log, found, entries)
        self._together = min(self._together * 2, _ALL)
        if isinstance(entries, Gap):
            log.advance(found, used)
            return entries
        rows = entries.rows.astype(np.uint64)
        nexts = entries.sequences + rows
        start = int(entries.sequences[0]) if self.expected < 0 else self.expected
        due = np.concatenate([[np.uint64(start)], nexts[:-1]])
        bad = np.flatnonzero((entries.sequences < due) | ((entries.sequences > due) & (not self._unlogged)))
        if not len(bad):
            log.advance(found, used)
            self.expected = int(nexts[-1])
            return entries
        row = int(bad[0])
        if row == 0:
            first = int(entries.sequences[0])
            if first < start:
                raise _went_back(start, first)
            self.expected = first
            return Gap(start, first - 1, _UNLOGGED)
        log.advance(found, row)
        self.expected = int(nexts[row - 1])
        return _head(entries, row)

    def _passed(self, log: OpenLog, found: Scan, batch: Unreadable) -> Gap | Unreadable:
        """How many numbers it took is what the next batch says: its own count may be what is wrong with
        it."""
        missing = batch.sequence > self.expected >= 0 and not self._unlogged
        first, self.expected = self.expected, batch.sequence
        if missing:
            return Gap(first, batch.sequence - 1, _UNLOGGED)
        log.advance(found, 1)
        self.expected, self._together = -1, 1
        return batch

    def _readable(self, log: OpenLog, found: Scan, count: int) -> tuple[Step, int]:
        """What lies before a batch that cannot be read is given first."""
        try:
            return self._entries(log, found, count)
        except MalformedLog as error:
            if count > 1:
                return self._readable(log, found, count // 2)
            start, end = int(found.starts[0]), int(found.ends[0])
            where = f"log file {log.number:06d}.log, byte {log.state.offset}"
            if end - start < BATCH_HEADER_BYTES:
                raise MalformedLog(f"{where}: {error}") from None
            batch = found.data[start:end]
            if is_prepared(
                batch
            ):  # nothing of it counts before its commit, which is what cannot be read then
                return decode(batch[:8] + bytes(4), np.zeros(1, np.int64), np.full(1, BATCH_HEADER_BYTES)), 1
            prepared = error.original
            rows = rows_of(prepared or batch)
            sequence = int.from_bytes(batch[:8], "little")
            return Unreadable(sequence, rows, f"{where}: {error}", prepared + batch), 1

    def _entries(self, log: OpenLog, found: Scan, count: int) -> tuple[Entries | Gap, int]:
        starts, ends = found.starts[:count], found.ends[:count]
        if not self._two_phase:
            try:
                return decode(found.data, starts, ends), count
            except TwoPhase:
                self._two_phase = True
        resolved = resolve(found.data, starts, ends, self._prepared)
        if resolved.missing is not None and not len(resolved.starts):
            if not self._find_prepared(resolved.missing, log):
                if resolved.missing in self._spoiled:
                    raise self._spoiled[resolved.missing]
                return self._uncommitted(found, resolved.missing), 1
            resolved = resolve(found.data, starts, ends, self._prepared)
        return decode(resolved.data, resolved.starts, resolved.ends), len(resolved.starts)

    def _uncommitted(self, found: Scan, name: bytes) -> Gap:
        """A commit whose entries are gone takes as many numbers as there are before the next batch."""
        first = int.from_bytes(found.data[found.starts[0] : found.starts[0] + 8], "little")
        self.expected = -1
        return Gap(
            first, first, f"transaction {name!r} was prepared in a log file that was deleted", 0xFFFFFFFF
        )

    def _find_prepared(self, name: bytes, until: OpenLog) -> bool:
        """Reads the log once more from its beginning, up to the commit, for the entries that were prepared
        under this name."""
        for number in list_logs(self._folders):
            if number > until.number:
                break
            try:
                log = OpenLog(self._folders, number)
            except FileNotFoundError:
                continue
            try:
                self._gather(log, name, until)
            finally:
                log.close()
        return self._prepared.get(name) is not None

    def _gather(self, log: OpenLog, name: bytes, until: OpenLog) -> None:
        while True:
            found = log.scan()
            for record in range(len(found.starts)):
                last = log.number == until.number and int(found.nexts[record]) > until.state.offset
                if last:
                    return
                start, end = int(found.starts[record]), int(found.ends[record])
                if found.data.find(name, start, end) >= 0:
                    part = slice(record, record + 1)
                    try:
                        resolve(
                            found.data, found.starts[part], found.ends[part], self._prepared, partial=True
                        )
                    except MalformedLog as error:
                        self._spoiled[name] = MalformedLog(
                            f"transaction {name!r} was prepared with something in it that is not read:"
                            f" {error}",
                            original=found.data[start:end],
                        )
            if not len(found.starts):
                return
            log.advance(found, len(found.starts))


_UNLOGGED = "they were written without the log (disableWAL), or ingested as files"


def _went_back(expected: int, first: int) -> MalformedLog:
    return MalformedLog(
        f"sequence numbers go back from {expected} to {first}: the database was restored, lost in a crash"
        " what it had not synced, or counts batches (write-prepared transactions); seek to where the log is"
        " to be read on"
    )


def _head(entries: Entries, batches: int) -> Entries:
    rows = int(entries.rows[:batches].sum())
    columns = (column[:rows] for column in entries[3:])
    return Entries(entries.data, entries.sequences[:batches], entries.rows[:batches], *columns)

"""The durable log of one stream: append, sync, read, collect.

Threads: `append` and `append_numbered` write to the page cache and never wait for the disk; they suit an
event loop. `sync` waits for the disk and `collect` does bulk work: both belong in a worker thread, and both
run while appends and reads go on. Any method may be called from any thread.
"""

import os
import threading
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from qanat.events.batch import Batch, Kind
from qanat.events.layout import KINDS, NUMBERS_END, SEQS
from qanat.events.position import Position
from qanat.events.tombstones import from_sequence
from qanat.events.verify import check_given
from qanat.log import staged
from qanat.log.collection import MARKS_MAX, Collected, Collection
from qanat.log.collector import Collector
from qanat.log.config import MIB, LogConfig
from qanat.log.cover import check_covered
from qanat.log.disk import Disk, OsDisk
from qanat.log.disk_memory import MemoryDisk
from qanat.log.errors import CorruptLog, NotForThisLog, SequenceGap
from qanat.log.positions import Highest, chosen
from qanat.log.reader import Chunk, Reader, Truncated
from qanat.log.recovery import recover
from qanat.log.stats import Stats, stats_of
from qanat.log.store import Store
from qanat.log.synced import NAME
from qanat.log.walk import check_times, events_in, first_since


class Appended(NamedTuple):
    """first..last are the new numbers (last < first if there is none); `dropped` rows were known already."""

    first: int
    last: int
    dropped: int


class Parts(NamedTuple):
    """What a log is made of, for the other modules of this package."""

    store: Store
    reader: Reader
    collector: Collector
    collection: Collection


class StreamLog:
    """One stream's log. Made by `open`, which recovers what is there."""

    def __init__(
        self, disk: Disk, folder: str, stream: int, config: LogConfig, *, repair: bool, synced: str
    ) -> None:
        self.stream, self.config = stream, config
        self.folder = os.path.abspath(folder) if isinstance(disk, OsDisk) else ""
        """Where its files are for other processes of this machine; empty if they are on no disk."""
        self._lock = threading.RLock()
        self._collector = Collector(config)
        found = recover(disk, folder, stream, config, visit=self._collector, repair=repair, synced=synced)
        self._positions = found.positions
        self.recovery_notes: list[str] = found.lost
        """What opening had to cut off or to make again, one sentence each."""
        self._store = Store(disk, folder, config, found, self._lock)
        self._reader = Reader(disk, folder, stream, self._store.tail, self._lock)
        self._collection = Collection(self._store, self._reader, self._collector, config)
        if not self._store.born_us and self.first == 1 < self.next:
            self._note_birth(self._first_batch())

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        stream: int,
        config: LogConfig | None = None,
        *,
        repair: bool = False,
        synced: str = "",
    ) -> "StreamLog":
        """Opens the log in `folder`, or makes one.

        What a crash tore is cut off; damage to what had been synced raises `CorruptLog`, unless `repair` is
        given: then the newest segments are cut off at the damage, and `recovery_notes` says what is lost.
        `synced` is the file where it is written down what was synced, best outside of the folder: then a
        folder that vanished is noticed too. In mode `memory` the disk is not touched.
        """
        config = config or LogConfig()
        if config.mode == "memory":
            return cls(MemoryDisk(), folder, stream, config, repair=repair, synced="")
        return cls(disk, folder, stream, config, repair=repair, synced=synced or f"{folder}/{NAME}")

    # --- what it holds ------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The lowest sequence number that can be read: 1, unless retention dropped some."""
        return self._store.manifest.truncated_last + 1

    @property
    def next(self) -> int:
        """The next sequence number to be given."""
        return self._store.next

    @property
    def durable(self) -> int:
        """The highest sequence number that would survive a power cut."""
        return self._store.durable

    @property
    def born_us(self) -> int:
        """Publish time of sequence number 1, which tells a stream from another of the same name; 0 while it
        is not known.

        It is known wherever that event ever was, however long it has been collected since.
        """
        return self._store.born_us

    @property
    def newest_us(self) -> int | None:
        """The newest publish time of an event that is here, or None."""
        with self._lock:
            times = [segment.max_time_us for segment in self._store.segments if segment.rows]
        return max(times, default=None)

    @property
    def readable(self) -> int:
        """The highest sequence number that `read` gives by default.

        In mode `always` only what is durable: a reader that got an event which a power cut then took back
        would disagree with the stream about that number for ever.
        """
        return self._store.durable if self.config.mode == "always" else self._store.next - 1

    def position(self, source: str) -> Position:
        """The highest position of one source; (0, 0) if it is not known."""
        with self._lock:
            return Position(*self._positions.highest.get(source, (0, 0)))

    def positions(self) -> Highest:
        """Highest position per source, a copy; what a new replica starts from (see `adopt_positions`)."""
        with self._lock:
            return dict(self._positions.highest)

    def adopt_positions(self, highest: Highest) -> None:
        """Takes the higher of each position: a replica that was given tombstones never saw those events' own.

        They are durable from the next segment on.
        """
        with self._lock:
            self._positions.merge(highest)

    def stats(self) -> Stats:
        with self._lock:
            return stats_of(self._store, self._collector, len(self._positions.highest))

    # --- memory ---------------------------------------------------------------------------------------

    @property
    def in_memory_bytes(self) -> int:
        """Events that are nowhere but in memory."""
        return self._store.bytes if self.config.mode == "memory" else 0

    @property
    def remembered_bytes(self) -> int:
        """What is kept in memory beside the events, about: the newest bytes, positions, keys, indexes."""
        return self.stats().remembered_bytes

    def forget(self, *, keys: bool = False) -> None:
        """Gives up what only makes it faster: the newest bytes; with `keys`, half of the index of keys."""
        with self._lock:
            self._store.tail.shrink()
            self._collector.forget(keys=keys)

    def keep_at_most(self, size: int | None) -> None:
        """A log in memory drops its oldest events beyond that from now on. None: as it is configured."""
        if self.config.mode == "memory":
            self._collection.keep_at_most(size)

    # --- append -------------------------------------------------------------------------------------

    def append(self, batch: Batch, *, given: bool = False, latest_us: int | None = None) -> Appended:
        """Numbers the batch's new rows and writes them to the page cache; rows already had are dropped.

        `given`: the batch's memory is the log's from now on, which may number it where it lies and keep it.
        `latest_us`: no event may be
        dated later.

        Raises, always with nothing stored: `DiskFull`, `PositionGap`, `PositionOrder`, `PositionLeap`,
        `SourceLimit`, `TimeAhead`, `NotForThisLog`, `LogClosed`.
        """
        with self._lock:
            self._store.check_open()
            self._check_publishable(batch)
            if latest_us is not None:
                check_times(batch, latest_us)
            rows, after = self._positions.admit(batch)
            appended = self._append(chosen(batch, rows), after, batch.count, given=given)
        self._bound_memory()
        return appended

    def adopt(self, name: str, latest_us: int | None = None) -> Appended | None:
        """Takes a staged file of the folder over as a segment: nothing is copied.

        None if that cannot be, because some of it is had already or a file of its size does not fit: then
        `append` what `staged` gives. Raises what `append` raises, and `MalformedBatch`; with nothing stored,
        and the file still there.
        """
        with self._lock:
            store, path = self._store, f"{self._store.folder}/{name}"
            store.check_open()
            if not store.takes(store.disk.size(path)):
                return None
            found = staged.whole(store.disk, path, self._positions, latest_us)
            if found is None or any(part.header.flags & (SEQS | KINDS) for part in found.laid):
                return None
            if any(part.header.stream != self.stream for part in found.laid):
                raise NotForThisLog(f"{path} has batches of another stream than {self.stream:#x}")
            self._check_numbers(sum(part.header.count for part in found.laid))
            first = store.next
            store.adopt(path, found.laid)
            self._positions.learn(
                found.after
            )  # first: it is stored, and a retry must be known for one whatever fails below
            self._learn_laid(found.laid)
            if self._collector.marks_waiting > MARKS_MAX and self._collection.step is None:
                self._collection.bury_marks()
        return Appended(first, store.next - 1, 0)

    def _learn_laid(self, laid: list[staged.Laid]) -> None:
        store, collector = self._store, self._collector
        path = f"{store.folder}/{store.segments[-1].name}"
        for part in laid:
            if collector.wants(part.header):
                view = store.disk.read(path, part.offset, part.header.size)
                collector.ingest(Batch.decode(view, verify=False))

    def staged_bytes(self, name: str) -> int:
        try:
            return self._store.disk.size(f"{self._store.folder}/{name}")
        except FileNotFoundError:
            raise NotForThisLog(f"there is no file {name!r} in {self._store.folder}") from None

    def staged(self, name: str, most: int | None = None) -> list[Batch]:
        """The batches of a staged file (of the first `most`), checked."""
        path = f"{self._store.folder}/{name}"
        return [batch for _, batch in islice(staged.batches(self._store.disk, path), most)]

    def discard(self, beginning: str) -> None:
        """Removes staged files whose names begin so."""
        staged.remove(self._store.disk, self._store.folder, beginning)

    def discard_but(self, beginnings: Iterable[str]) -> None:
        """Removes staged files whose names begin otherwise."""
        staged.remove_but(self._store.disk, self._store.folder, tuple(beginnings))

    def append_numbered(self, batch: Batch) -> Appended:
        """Takes a batch that the stream's owner numbered; what is already here is dropped, a gap is refused.

        A tombstone may begin before `next`: the part from `next` on is kept.
        """
        with self._lock:
            self._store.check_open()
            next_ = self._store.next
            if batch.stream != self.stream:
                raise NotForThisLog(f"a batch of stream {batch.stream:#x} for the log of {self.stream:#x}")
            if batch.first > next_:
                raise SequenceGap(
                    f"the batch starts at {batch.first}, but {next_} comes next: ask for that first"
                )
            if batch.last < next_:
                return Appended(next_, next_ - 1, batch.count)
            check_covered(batch)
            part = from_sequence(batch, next_)
            appended = self._append([part], self._positions.observe(part), batch.count)
        self._bound_memory()
        return appended

    def _append(self, parts: list[Batch], after: Highest, rows: int, *, given: bool = False) -> Appended:
        first = self._store.next
        collector = self._collector
        if first == 1 and parts:
            self._note_birth(parts[0])
        for part, view in zip(parts, self._store.write(parts, given=given), strict=True):
            if collector.wants(part.header):
                collector.ingest(Batch.decode(view, verify=False))
        self._positions.learn(after)
        if collector.marks_waiting > MARKS_MAX and self._collection.step is None:
            self._collection.bury_marks()
        return Appended(first, self._store.next - 1, rows - sum(part.count for part in parts))

    def _note_birth(self, batch: Batch | None) -> None:
        """A tombstone says nothing of it: its time is that of the newest event that it stands for."""
        if batch is not None and batch.count:
            kinds = batch.kinds
            if kinds is None or kinds[0] != Kind.TOMBSTONE:
                self._store.born_us = int(batch.times()[0])

    def _first_batch(self) -> Batch | None:
        try:
            chunk = self.read(1, 1, upto=self.next - 1)
        except CorruptLog:  # whoever reads it is told
            return None
        return None if isinstance(chunk, Truncated) else next(iter(chunk.batches()), None)

    def _bound_memory(self) -> None:
        if self.config.mode == "memory" and self._store.sealing:
            self._collection.retain()

    def _check_publishable(self, batch: Batch) -> None:
        if batch.stream != self.stream:
            raise NotForThisLog(f"a batch of stream {batch.stream:#x} for the log of {self.stream:#x}")
        check_given(batch)
        self._check_numbers(batch.count)
        if not batch.header.flags & (SEQS | KINDS):
            return
        if not batch.is_dense or events_in(batch) < batch.count:
            raise NotForThisLog("only data and GC events are published; tombstones come from collecting them")
        self._collector.check(batch)

    def _check_numbers(self, rows: int) -> None:
        """A batch numbered past the end could never be read again: nobody takes such a header."""
        if self._store.next + rows > NUMBERS_END:
            raise NotForThisLog(
                f"{rows} events do not fit: sequence numbers end at 2^63, and {self._store.next} comes next; "
                "publish to a new stream"
            )

    # --- sync, collect, close -----------------------------------------------------------------------

    def sync(self) -> int:
        """Waits until everything appended before the call would survive a power cut; returns `durable`.

        One call serves all that were made while the one before it ran (group commit). After a failed sync it
        is unknown what the disk holds, so the log stops: open it again to find out.
        """
        return self._store.sync()

    def collect(
        self,
        budget_bytes: int = 64 * MIB,
        *,
        everything: bool = False,
        settled: int | None = None,
        now_us: int | None = None,
    ) -> Collected:
        """Finds what predicates match, and rewrites segments of which enough is dead; for a worker thread.

        Works through about `budget_bytes` of log and stops at the next segment's end; `Collected.more` says
        that there is more to do. With `everything` the newest segment is closed too, and one dead row is
        enough. Appends, syncs and reads go on meanwhile. `settled` is up to where the stream can no longer
        change (all of it by default): for the sake of an event beyond it nothing is removed yet; the step
        waits, and a later call goes on with it. `now_us` is the clock: an event dated ahead of it makes
        nothing else older than it is. Raises `DiskFull` if there is no room for the rewritten segment; the
        log is unharmed.
        """
        return self._collection.run(budget_bytes, everything=everything, settled=settled, now_us=now_us)

    @property
    def parts(self) -> Parts:
        return Parts(self._store, self._reader, self._collector, self._collection)

    def keep_as(self, config: LogConfig, collector: Collector | None = None) -> None:
        """Under the lock. `qanat.log.rekeeping` knows what of a configuration may change."""
        self.config = config
        self._collection.keep_as(config, collector)
        if collector is not None:
            self._collector = collector

    def close(self) -> None:
        """Waits for a step of `collect`, syncs, and gives the files back. Chunks stay valid."""
        with self._collection.busy:
            self._store.close()

    # --- read ---------------------------------------------------------------------------------------

    def read(self, start: int, max_bytes: int, *, upto: int | None = None) -> Chunk | Truncated:
        """Whole batches from the one that covers `start`, at most `max_bytes` unless the first alone is
        larger.

        No data (an empty list) when `start` is past `readable`, or past `upto` where that is given. Without
        copying: the views are of the file's pages or of memory, and stay valid whatever happens to the log.
        """
        store, start = self._store, max(start, 1)
        while True:
            with self._lock:
                if start < self.first:
                    return Truncated(start, self.first - 1)
                limit = self.readable if upto is None else min(upto, store.next - 1)
                if start > limit:
                    return Chunk([], start, start - 1)
                segment = store.segment_of(start)
                if limit >= segment.last:
                    limit, limit_at = segment.last, segment.bytes
                elif limit == store.durable and store.durable_at[0] is segment:
                    limit_at = store.durable_at[1]
                else:
                    limit_at, limit = self._reader.boundary(segment, limit, start)
                    if limit < start:
                        return Chunk([], start, start - 1)
                place = self._reader.place(segment, start, max_bytes, limit, limit_at)
            try:
                return self._reader.fetch(place)
            except FileNotFoundError:  # rewritten or dropped meanwhile: look again
                with self._lock:
                    if segment in store.segments:
                        raise

    def within(self, start: int, size: int) -> int:
        """The highest sequence number that about `size` bytes of log reach from `start`: to the end of a
        piece of the index."""
        with self._lock:
            segments = self._store.segments
            at = segments.index(self._store.segment_of(start))
            for segment in segments[at:]:
                begin = segment.start(segment.entry_of(max(start, segment.first)))[1]
                if segment.bytes - begin >= size:
                    return max(start, segment.start(segment.entry_at(begin + size))[0] - 1)
                size -= segment.bytes - begin
            return max(start, self.next - 1)

    def seek_time(self, time_us: int) -> int:
        """The first sequence number published at `time_us` or later; `next` if there is none yet.

        Publishers' clocks differ, so times need not rise along the stream; everything before the answer is
        older.
        """
        with self._lock:
            found = next((s for s in self._store.segments if s.entries and s.max_time_us >= time_us), None)
            if found is None:
                return self.next
            start, _ = found.start(found.entry_of_time(time_us))
        while True:
            chunk = self.read(start, 1, upto=self.next - 1)
            if isinstance(chunk, Truncated):
                start = chunk.last + 1
                continue
            if not chunk.data:
                return self.next
            for batch in chunk.batches():
                row = first_since(batch, time_us)
                if row is not None:
                    ranges, one = batch.ranges, batch.slice(row, row + 1)
                    seq = one.first if batch.is_dense else int(one.seqs()[0])
                    return seq - (0 if ranges is None else int(ranges[row]) - 1)
            start = chunk.last + 1

"""The durable log of one stream: append, sync, read, and what is known of it.

Threads: `append` and `append_numbered` write to the page cache and never wait for the disk; they suit an event
loop. `sync` waits for the disk and `collect` does bulk work: both belong in a worker thread, and both run while
appends and reads go on. Any method may be called from any thread.
"""

import threading
from bisect import bisect_right
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np

from qanat.events.batch import Batch, Kind, number
from qanat.log import manifest as manifests
from qanat.log.config import LogConfig
from qanat.log.cover import check_covered, from_sequence
from qanat.log.disk import Disk, DiskFile
from qanat.log.disk_memory import MemoryDisk
from qanat.log.errors import DiskFailed, DiskFull, LogClosed, NotForThisLog, SequenceGap
from qanat.log.manifest import Manifest
from qanat.log.positions import Highest
from qanat.log.reader import Chunk, Reader, Truncated
from qanat.log.recovery import recover, sealed_of
from qanat.log.segment import Segment
from qanat.log.segment_file import Head, Mark, encode_head, encode_mark
from qanat.log.tail import Tail
from qanat.log.walk import newest_time_us


class Appended(NamedTuple):
    """first..last are the new sequence numbers (last < first if there is none); `dropped` rows were known already."""

    first: int
    last: int
    dropped: int


class _Writing:
    """A segment file that is open for writing, or waits to be sealed."""

    def __init__(self, segment: Segment, file: DiskFile, mark_count: int, synced_bytes: int) -> None:
        self.segment, self.file, self.mark_count, self.synced_bytes = segment, file, mark_count, synced_bytes
        self.positions: Highest = {}
        """Highest positions when the next segment began."""


class StreamLog:
    """One stream's log. Made by `open`, which recovers what is there."""

    def __init__(self, disk: Disk, folder: str, stream: int, config: LogConfig, *, repair: bool) -> None:
        self._disk, self._folder, self.stream, self.config = disk, folder, stream, config
        self._lock = threading.RLock()
        self._sync_lock = threading.Lock()
        """Held by whoever syncs or changes the manifest; taken before `_lock`, never after."""
        self._stopped: str | None = None
        self._tail = Tail(config.tail_bytes)
        self._reader = Reader(disk, folder, stream, self._tail, self._lock)
        found = recover(disk, folder, stream, config, repair=repair)
        self._manifest: Manifest = found.manifest
        self._positions = found.positions
        self._segments: list[Segment] = found.segments
        self.recovery_notes: list[str] = found.lost
        """What opening had to cut off, one sentence each."""
        active = self._segments[-1]
        file = disk.open(f"{folder}/{active.name}")
        self._active = _Writing(active, file, found.mark_count, active.bytes)
        self._sealing: list[_Writing] = []
        self._next_generation = found.manifest.next_generation
        self._names_unsynced = False
        self._next = active.last + 1
        self._durable, self._durable_at = self._next - 1, (active, active.bytes)

    @classmethod
    def open(
        cls, disk: Disk, folder: str, stream: int, config: LogConfig | None = None, *, repair: bool = False
    ) -> "StreamLog":
        """Opens the log in `folder`, or makes one.

        What a crash tore is cut off; damage to what had been synced raises `CorruptLog`, unless `repair` is given:
        then the newest segments are cut off at the damage, and `recovery_notes` says what is lost. In mode
        `memory` the disk is not touched.
        """
        config = config or LogConfig()
        return cls(MemoryDisk() if config.mode == "memory" else disk, folder, stream, config, repair=repair)

    # --- what it holds ------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The lowest sequence number that can be read: 1, unless retention dropped some."""
        return self._manifest.truncated_last + 1

    @property
    def next(self) -> int:
        """The next sequence number to be given."""
        return self._next

    @property
    def durable(self) -> int:
        """The highest sequence number that would survive a power cut."""
        return self._durable

    @property
    def readable(self) -> int:
        """The highest sequence number that `read` gives by default.

        In mode `always` only what is durable: a reader that got an event which a power cut then took back
        would disagree with the stream about that number for ever.
        """
        return self._durable if self.config.mode == "always" else self._next - 1

    def positions(self) -> Highest:
        """Highest position per source, a copy; what a new replica starts from (see `adopt_positions`)."""
        with self._lock:
            return dict(self._positions.highest)

    def adopt_positions(self, highest: Highest) -> None:
        """Takes the higher of each position: a replica that was given tombstones never saw those events' own."""
        with self._lock:
            self._positions.merge(highest)

    # --- append -------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> Appended:
        """Numbers the batch's new rows and writes them to the page cache; rows already had are dropped.

        Raises, always with nothing stored: `DiskFull`, `PositionGap`, `PositionOrder`, `SourceLimit`, `NotForThisLog`,
        `LogClosed`.
        """
        with self._lock:
            self._check_open()
            self._check_publishable(batch)
            runs, after = self._positions.admit(batch)
            parts = [batch if run == (0, batch.count) else batch.slice(*run) for run in runs]
            first = self._next
            self._write(parts)
            self._positions.learn(after)
            return Appended(first, self._next - 1, batch.count - (self._next - first))

    def append_numbered(self, batch: Batch) -> Appended:
        """Takes a batch that the stream's owner numbered; what is already here is dropped, a gap is refused.

        A tombstone may begin before `next`: the part from `next` on is kept.
        """
        with self._lock:
            self._check_open()
            if batch.stream != self.stream:
                raise NotForThisLog(f"a batch of stream {batch.stream:#x} for the log of {self.stream:#x}")
            if batch.first > self._next:
                raise SequenceGap(
                    f"the batch starts at {batch.first}, but {self._next} comes next: ask for that first"
                )
            if batch.last < self._next:
                return Appended(self._next, self._next - 1, batch.count)
            check_covered(batch)
            part = from_sequence(batch, self._next)
            first = self._next
            seen = self._positions.observe(part)
            self._write([part])
            self._positions.learn(seen)
            return Appended(first, self._next - 1, batch.count - part.count)

    def _check_open(self) -> None:
        if self._stopped is not None:
            raise LogClosed(f"{self._folder} takes no more events: {self._stopped}")

    def _check_publishable(self, batch: Batch) -> None:
        if batch.stream != self.stream:
            raise NotForThisLog(f"a batch of stream {batch.stream:#x} for the log of {self.stream:#x}")
        kinds = batch.kinds
        if not batch.is_dense or (kinds is not None and bool((kinds == Kind.TOMBSTONE).any())):
            raise NotForThisLog("only data and GC events are published; tombstones come from collecting them")

    def _write(self, parts: list[Batch]) -> None:
        """Puts the parts behind each other at the end, all or none."""
        encoded = [part.encode() for part in parts]
        size = sum(map(len, encoded))
        if not size:
            return
        active = self._active.segment
        if active.rows and active.bytes + size > self.config.segment_bytes:
            self._roll()
            active = self._active.segment
        room = self._tail.reserve(active, size)
        at, next_ = 0, self._next
        for part, data in zip(parts, encoded, strict=True):
            room[at : at + len(data)] = data
            number(room[at : at + len(data)], next_)
            at += len(data)
            next_ += part.span
        self._active.file.write(room)
        self._tail.commit(size)
        next_ = self._next
        for part, data in zip(parts, encoded, strict=True):
            next_ += part.span
            active.add(len(data), next_ - 1, part.count, newest_time_us(part))
        self._next = next_

    def _roll(self) -> None:
        """Begins a new segment; the old one is synced and sealed by the next `sync`."""
        segment = Segment(self._next, self._next_generation, self.config.index_stride_bytes)
        path = f"{self._folder}/{segment.name}"
        file = self._disk.open(path)
        try:
            file.write(encode_head(Head(self.stream, segment.first, segment.generation)))
        except BaseException:
            file.close()
            with suppress(OSError, DiskFailed):
                self._disk.remove(path)
            raise
        self._next_generation += 1
        self._names_unsynced = True
        self._active.positions = dict(self._positions.highest)
        self._sealing.append(self._active)
        self._active = _Writing(segment, file, 0, 0)
        self._segments.append(segment)

    # --- sync ---------------------------------------------------------------------------------------

    def sync(self) -> int:
        """Waits until everything appended before the call would survive a power cut; returns `durable`.

        One call serves all that were made while the one before it ran (group commit). After a failed sync it
        is unknown what the disk holds, so the log stops: open it again to find out.
        """
        target = self._next - 1
        if self.config.mode == "memory":
            self._durable = self._next - 1
            return self._durable
        with self._sync_lock:
            if self._durable < target or self._sealing:
                self._sync()
            return self._durable

    def _sync(self) -> None:
        with self._lock:
            self._check_open()
            writings = [*self._sealing, self._active]
            ends = [(writing.segment.bytes, writing.segment.last) for writing in writings]
            names_unsynced, self._names_unsynced = self._names_unsynced, False
        try:
            for writing, (size, _) in zip(writings, ends, strict=True):
                if size > writing.synced_bytes:
                    writing.file.sync()
            if names_unsynced:
                self._disk.sync_folder(self._folder)
        except (DiskFailed, DiskFull) as error:
            self._stopped = f"a sync failed ({error}), so what is on disk is unknown; open the log again"
            raise DiskFailed(self._stopped) from error
        with self._lock:
            self._durable = ends[-1][1]
            self._durable_at = (writings[-1].segment, ends[-1][0])
        for writing, (size, last) in zip(writings, ends, strict=True):
            if size > writing.synced_bytes:
                writing.synced_bytes = size
                writing.mark_count += 1
                with suppress(DiskFull):  # an older mark is as true as a newer one
                    writing.file.write_at(*encode_mark(Mark(writing.mark_count, size, last)))
        if len(writings) > 1:
            with suppress(DiskFull):  # recovery finds the files by their names; the next sync tries again
                self._seal(writings[:-1])

    def _seal(self, writings: list[_Writing]) -> None:
        """Names complete segments in the manifest, with the positions that were known at their end."""
        follower = self._segments[self._segments.index(writings[-1].segment) + 1]
        self._store(
            sealed=self._manifest.sealed + [sealed_of(writing.segment) for writing in writings],
            active=(follower.first, follower.generation),
            positions=writings[-1].positions,
        )
        with self._lock:
            del self._sealing[: len(writings)]
        for writing in writings:
            writing.file.close()

    def _store(self, **changes: object) -> None:
        """Replaces the manifest, on disk and then here."""
        with self._lock:
            changes.setdefault("next_generation", self._next_generation)
        manifest = msgspec.structs.replace(self._manifest, **changes)
        manifests.store(self._disk, self._folder, manifest)
        self._manifest = manifest

    def close(self) -> None:
        """Syncs and gives the files back. Chunks that were read stay valid."""
        try:
            if self._stopped is None:
                self.sync()
        finally:
            with self._sync_lock, self._lock:
                if self._stopped != "it is closed":
                    for writing in [*self._sealing, self._active]:
                        writing.file.close()
                self._stopped = "it is closed"

    # --- read ---------------------------------------------------------------------------------------

    def read(self, start: int, max_bytes: int, *, upto: int | None = None) -> Chunk | Truncated:
        """Whole batches from the one that covers `start`, at most `max_bytes` unless the first alone is larger.

        No data (an empty list) when `start` is past `readable`, or past `upto` where that is given. Without copying: the
        views are of the file's pages or of memory, and stay valid whatever happens to the log.
        """
        while True:
            with self._lock:
                if start < self.first:
                    return Truncated(max(start, 1), self.first - 1)
                limit = self.readable if upto is None else min(upto, self._next - 1)
                if start > limit:
                    return Chunk([], start, start - 1)
                segment = self._segments[self._segment_index(start)]
                if limit >= segment.last:
                    limit, limit_at = segment.last, segment.bytes
                elif limit == self._durable and self._durable_at[0] is segment:
                    limit_at = self._durable_at[1]
                else:
                    limit_at, limit = self._reader.boundary(segment, limit)
                    if limit < start:
                        return Chunk([], start, start - 1)
                place = self._reader.place(segment, start, max_bytes, limit, limit_at)
            try:
                return self._reader.fetch(place)
            except FileNotFoundError:
                with self._lock:
                    if segment in self._segments:
                        raise

    def _segment_index(self, seq: int) -> int:
        return bisect_right(self._segments, seq, key=lambda segment: segment.first) - 1

    def seek_time(self, time_us: int) -> int:
        """The first sequence number published at `time_us` or later; `next` if there is none yet.

        Publishers' clocks differ, so times need not rise along the stream; everything before the answer is older.
        """
        with self._lock:
            found = next((s for s in self._segments if s.max_time_us >= time_us and s.rows), None)
            if found is None:
                return self._next
            start, _ = found.start(found.entry_of_time(time_us))
        while True:
            chunk = self.read(start, 1, upto=self._next - 1)
            if isinstance(chunk, Truncated):
                start = chunk.last + 1
                continue
            if not chunk.data:
                return self._next
            for batch in chunk.batches():
                late = np.flatnonzero(batch.times() >= time_us)
                if len(late):
                    ranges = batch.ranges
                    row = int(late[0])
                    return int(batch.seqs()[row]) - (0 if ranges is None else int(ranges[row]) - 1)
            start = chunk.last + 1

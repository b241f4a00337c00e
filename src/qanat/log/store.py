"""The segments of a log and their files: writing at the end, syncing, sealing, and swapping some for others.

Two locks. `lock` guards what is in memory and is held for microseconds. `sync_lock` is held by whoever syncs
or changes the manifest, while the disk works; it is taken before `lock`, never after.
"""

import threading
from bisect import bisect_right
from contextlib import suppress

import msgspec

from qanat.events.batch import Batch, number
from qanat.events.errors import LocalError
from qanat.log import manifest as manifests
from qanat.log.config import LogConfig
from qanat.log.disk import Disk, DiskFile
from qanat.log.errors import DiskFailed, DiskFull, LogClosed, OutOfDescriptors
from qanat.log.manifest import Manifest
from qanat.log.positions import Highest, Positions
from qanat.log.recovery import Recovered, sealed_of
from qanat.log.segment import Segment
from qanat.log.segment_file import Head, Mark, encode_head, encode_mark
from qanat.log.staged import Laid
from qanat.log.synced import Synced
from qanat.log.tail import Tail
from qanat.log.walk import events_in, times_us

_IN_PLACE_BYTES = 128 * 1024
"""From this size on a batch is kept in the memory it came in: a copy would cost more than such a buffer left
half used."""

_FEW_SEGMENTS = 256
"""Of any size; where there are more, they must be an eighth full on average before a file becomes one by
itself: files of 14 MiB and what is left over at the end of a publish are always taken."""


class _Writing:
    """A segment file that is open for writing, or waits to be sealed."""

    def __init__(self, segment: Segment, file: DiskFile, marks: int, synced_bytes: int) -> None:
        self.segment, self.file, self.marks, self.synced_bytes = segment, file, marks, synced_bytes
        self.positions: Highest = {}
        """Highest positions when the next segment began."""


class Store:
    """What a log has on disk."""

    def __init__(
        self, disk: Disk, folder: str, config: LogConfig, found: Recovered, lock: "threading.RLock"
    ) -> None:
        self.disk, self.folder, self._config, self.lock = disk, folder, config, lock
        self.sync_lock = threading.Lock()
        self.stopped: str | None = None
        self.manifest: Manifest = found.manifest
        self.born_us = found.manifest.born_us
        """What the next manifest will say; guarded by `lock`."""
        self.segments: list[Segment] = found.segments
        self.tail = Tail(config.tail_bytes)
        self._positions: Positions = found.positions
        active = self.segments[-1]
        file = disk.open(f"{folder}/{active.name}")
        self._active = _Writing(active, file, found.mark_count, active.bytes)
        self._sealing: list[_Writing] = []
        self._next_generation = found.manifest.next_generation
        self._names_unsynced = False
        self.next = active.last + 1
        self.durable, self.durable_at = self.next - 1, (active, active.bytes)
        self._record = found.record

    def check_open(self) -> None:
        if self.stopped is not None:
            raise LogClosed(f"{self.folder} takes no more events: {self.stopped}")

    def segment_of(self, seq: int) -> Segment:
        return self.segments[bisect_right(self.segments, seq, key=lambda segment: segment.first) - 1]

    @property
    def bytes(self) -> int:
        """Of all segments."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def sealed(self) -> list[Segment]:
        """Segments that the manifest names as complete."""
        return self.segments[: len(self.manifest.sealed)]

    # --- writing; lock held -------------------------------------------------------------------------

    def write(self, parts: list[Batch], *, given: bool = False) -> list[memoryview]:
        """Numbers the parts and puts them at the end, all or none; returns their bytes.

        `given`: their memory is the log's from now on. A large batch is then numbered and written where it
        lies.
        """
        encoded = [part.encode() for part in parts]
        size = sum(map(len, encoded))
        if not size:
            return []
        if self._active.segment.entries and self._active.segment.bytes + size > self._config.segment_bytes:
            self.roll()
        active = self._active.segment
        if given and len(parts) == 1 and size >= _IN_PLACE_BYTES and not encoded[0].readonly:
            number(encoded[0], self.next)
            self._active.file.write(encoded[0])
            self.tail.keep(active, encoded[0])
            self._added(active, parts[0], encoded[0])
            return encoded
        room = self.tail.reserve(active, size)
        views, at, next_ = [], 0, self.next
        for part, data in zip(parts, encoded, strict=True):
            view = room[at : at + len(data)]
            view[:] = data
            number(view, next_)
            views.append(view)
            at += len(data)
            next_ += part.span
        self._active.file.write(room)
        self.tail.commit(size)
        for part, view in zip(parts, views, strict=True):
            self._added(active, part, view)
        return views

    def _added(self, active: Segment, part: Batch, view: memoryview) -> None:
        self.next += part.span
        active.add(len(view), self.next - 1, events_in(part), times_us(part), verified=True)

    def roll(self) -> None:
        """Begins a new segment; the old one is synced and sealed by the next `sync`."""
        segment = Segment(self.next, self.new_generation(), self._config.index_stride_bytes)
        path = f"{self.folder}/{segment.name}"
        file = self.disk.open(path)
        try:
            file.write(encode_head(Head(self.manifest.stream, segment.first, segment.generation)))
        except Exception:
            file.close()
            with suppress(OSError, DiskFailed):
                self.disk.remove(path)
            raise
        self._begin(segment, file)

    def _begin(self, segment: Segment, file: DiskFile) -> None:
        self._names_unsynced = True
        self._active.positions = dict(self._positions.highest)
        self._sealing.append(self._active)
        self._active = _Writing(segment, file, 0, 0)
        self.segments.append(segment)

    def takes(self, size: int) -> bool:
        """Whether a file of `size` bytes may become a segment by itself.

        Not behind an empty one, whose place it would take before the manifest knows; nor where segments are
        many and small already: each costs a file, an entry of the manifest and an index.
        """
        limit = self._config.segment_bytes
        held = sum(segment.bytes for segment in self.segments)
        return bool(
            self._active.segment.entries
            and size <= limit
            and (len(self.segments) < _FEW_SEGMENTS or held >= len(self.segments) * limit // 8)
        )

    def adopt(self, path: str, laid: list[Laid]) -> None:
        """Makes a staged file the newest segment, all of it or nothing: its batches are numbered, then it is
        given its name."""
        segment = Segment(self.next, self.new_generation(), self._config.index_stride_bytes)
        file = self.disk.open(path)
        next_ = self.next
        try:
            for part in laid:
                number(part.head, next_)
                file.write_at(part.offset, part.head)
                next_ += part.header.span
            file.write_at(0, encode_head(Head(self.manifest.stream, segment.first, segment.generation)))
            self.disk.rename(path, f"{self.folder}/{segment.name}")
        except BaseException:
            file.close()
            raise
        self._begin(segment, file)
        for part in laid:
            self.next += part.header.span
            segment.add(part.header.size, self.next - 1, part.events, part.times_us, verified=True)

    @property
    def sealing(self) -> bool:
        return bool(self._sealing)

    def new_generation(self) -> int:
        generation = self._next_generation
        self._next_generation += 1
        return generation

    # --- the disk's pace ----------------------------------------------------------------------------

    def sync(self) -> int:
        target = self.next - 1
        with self.sync_lock:
            if self.durable < target or self._sealing:
                self._sync()
            return self.durable

    def _sync(self) -> None:
        with self.lock:
            self.check_open()
            writings = [*self._sealing, self._active]
            ends = [(writing.segment.bytes, writing.segment.last) for writing in writings]
            names_unsynced, self._names_unsynced = self._names_unsynced, False
        try:
            for writing, (size, _) in zip(writings, ends, strict=True):
                if size > writing.synced_bytes:
                    writing.file.sync()
            if names_unsynced:
                self.disk.sync_folder(self.folder)
        except OutOfDescriptors:  # nothing was asked of the disk: it is asked again
            with self.lock:
                self._names_unsynced |= names_unsynced
            raise
        except (DiskFailed, DiskFull) as error:
            self.stopped = f"a sync failed ({error}), so what is on disk is unknown; open the log again"
            raise DiskFailed(self.stopped) from error
        with self.lock:
            self.durable = ends[-1][1]
            self.durable_at = (writings[-1].segment, ends[-1][0])
        for writing, (size, last) in zip(writings, ends, strict=True):
            if size > writing.synced_bytes:
                writing.synced_bytes = size
                writing.marks += 1
                with suppress(DiskFull):  # an older mark is as true as a newer one
                    writing.file.write_at(*encode_mark(Mark(writing.marks, size, last)))
        if len(writings) > 1:
            with suppress(DiskFull):  # recovery finds the files by their names; the next sync tries again
                self._seal(writings[:-1])
        self._note(sure=False)

    def _note(self, *, sure: bool) -> None:
        """Writes down apart from the log what of it is synced; sync lock held."""
        segment, size = self.durable_at
        synced = Synced(self.manifest.serial, segment.first, segment.generation, size, self.durable)
        self._record.write(synced, sure=sure)

    def _seal(self, writings: list[_Writing]) -> None:
        """Names complete segments in the manifest, with the positions that were known at their end."""
        with self.lock:
            follower = self.segments[self.segments.index(writings[-1].segment) + 1]
        self._store(
            sealed=self.manifest.sealed + [sealed_of(writing.segment) for writing in writings],
            active=(follower.first, follower.generation),
            positions=writings[-1].positions,
        )
        with self.lock:
            del self._sealing[: len(writings)]
        for writing in writings:
            writing.file.close()

    def _store(self, **changes: object) -> None:
        """Replaces the manifest, on disk and then here; sync lock held."""
        with self.lock:
            changes |= {"next_generation": self._next_generation, "born_us": self.born_us}
            changes["serial"] = self.manifest.serial + 1
        manifest: Manifest = msgspec.structs.replace(self.manifest, **changes)
        manifests.store(self.disk, self.folder, manifest)
        with self.lock:
            self.manifest = manifest
        self._note(sure=True)

    def swap(self, old: list[Segment], new: Segment) -> None:
        """Puts a rewritten segment in place of adjacent sealed ones, and removes their files."""
        with self.sync_lock:
            at = self.segments.index(old[0])
            sealed = list(self.manifest.sealed)
            sealed[at : at + len(old)] = [sealed_of(new)]
            try:
                self._store(sealed=sealed)
            except Exception:
                self._discard(new)
                raise
            with self.lock:
                # What was marked dead while the new segment was being written.
                for segment in old:
                    new.graves.add(segment.graves.seqs(), new.first, new.last, new.rows)
                    self.tail.forget(segment)
                self.segments[at : at + len(old)] = [new]
        self._remove(old)

    def drop(self, count: int) -> None:
        """Drops the oldest sealed segments; what they held is gone, and readers are told."""
        with self.sync_lock:
            old = self.segments[:count]
            self._store(sealed=self.manifest.sealed[count:], truncated_last=old[-1].last)
            with self.lock:
                del self.segments[:count]
                for segment in old:
                    self.tail.forget(segment)
        self._remove(old)

    def _discard(self, new: Segment) -> None:
        """Removes a file that no manifest names; where only the manifest's own sync failed, the one on disk
        does, and a crash would need it."""
        with suppress(LocalError, FileNotFoundError):
            found = manifests.load(self.disk, self.folder, self.manifest.stream)
            if found is not None and all(each.generation != new.generation for each in found.sealed):
                self.disk.remove(f"{self.folder}/{new.name}")

    def _remove(self, segments: list[Segment]) -> None:
        for segment in segments:
            with suppress(FileNotFoundError):
                self.disk.remove(f"{self.folder}/{segment.name}")

    def close(self) -> None:
        try:
            if self.stopped is None:
                self.sync()
        finally:
            with self.sync_lock, self.lock:
                if self.stopped is None:
                    self._note(sure=True)
                if self.stopped != "it is closed":
                    for writing in [*self._sealing, self._active]:
                        writing.file.close()
                self.stopped = "it is closed"

"""Garbage collection at work: hunting, marking, rewriting, dropping; one step at a time, in a worker thread.

A step first takes what is known to be dead, then syncs, and only then rewrites. So whatever an event is
collected for is on disk before the event is not: a power cut never leaves a tombstone without the event that
justifies it. In a chain of replicas the disk is not enough, since a head may lose its newest events to
others: there a step waits until what it knew was settled.
"""

import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qanat.events.encode import Array
from qanat.log.collector import Collector
from qanat.log.config import LogConfig
from qanat.log.graves import Graves
from qanat.log.reader import Chunk, Reader
from qanat.log.rewrite import Part, Rewriter, choose, dead_rows
from qanat.log.segment import Segment
from qanat.log.store import Store
from qanat.log.sweep import GROUP_MAX, Sweep

MARKS_MAX = 250_000
"""Marks that wait for a step, 8 bytes each; an append that finds more puts them to their segments itself."""
_CHUNK_BYTES = 1 << 20
ROLL_MIN_BYTES = 1024 * 1024
"""The newest segment is closed for rewriting only from this size on; below it there is little to gain."""


class Collected(NamedTuple):
    """What one step did."""

    hunted_bytes: int
    rewritten_bytes: int
    freed_bytes: int
    more: bool


@dataclass(slots=True)
class Totals:
    """What all steps did since the log was opened."""

    removed_events: int = 0
    """Replaced by tombstones."""
    dropped_events: int = 0
    """Dropped by retention."""
    rewritten_bytes: int = 0
    freed_bytes: int = 0
    last_s: float | None = None
    """When something was rewritten or dropped, by the monotonic clock."""

    def rewrote(self, events: int, bytes_: int, freed_bytes: int) -> None:
        self.removed_events += events
        self.rewritten_bytes += bytes_
        self.freed_bytes += freed_bytes
        self.last_s = time.monotonic()

    def dropped(self, events: int, freed_bytes: int) -> None:
        self.dropped_events += events
        self.freed_bytes += freed_bytes
        self.last_s = time.monotonic()


class Collection:
    """The steps of one log; one runs at a time."""

    def __init__(self, store: Store, reader: Reader, collector: Collector, config: LogConfig) -> None:
        self._store, self._reader, self._collector, self._config = store, reader, collector, config
        self.busy = threading.Lock()
        self.totals = Totals()
        self._sweep = Sweep(config, reader, collector)
        self.step: tuple[int, int] | None = None
        """While one is under way or waits: the prefix, and the newest event that may have collected another.
        No marks are put to segments meanwhile: what made them may be younger."""
        self._most_bytes: int | None = None
        """What a log in memory may have just now, if that is less than it was configured to keep."""
        self._rewriting: list[Part] = []
        """What their graves no longer say while they are rewritten."""
        self._rewriter = Rewriter(store.disk, store.folder, store.manifest.stream, config, reader)

    def run(
        self, budget_bytes: int, *, everything: bool, settled: int | None = None, now_us: int | None = None
    ) -> Collected:
        with self.busy:
            hunted = 0
            if self.step is None:
                hunted = self._hunt(budget_bytes)
                with self._store.lock:
                    self._store.check_open()
                    self.bury_marks()
                    prefix = self._extend_prefix(now_us)
                    self._roll_if_worth(prefix, everything=everything)
                    self.step = (prefix, self._store.next - 1)
                self._store.sync()
            freed, budget = self._retain(now_us), budget_bytes - hunted
            prefix, newest = self.step
            if settled is not None and settled < newest:
                return Collected(hunted, 0, freed, False)
            try:
                rewritten = 0
                groups = choose(self._store.sealed, prefix, self._config, everything=everything)
                while groups and (rewritten < budget or not (rewritten or hunted)):
                    group = groups.pop(0)
                    before = sum(segment.bytes for segment in group)
                    after = self._rewrite(group, prefix)
                    rewritten, freed = rewritten + before, freed + before - after
            finally:
                self.step = None
            return Collected(hunted, rewritten, freed, bool(groups) or self._collector.hunting)

    def find(self, budget_bytes: int, now_us: int | None = None) -> int:
        """Looks for the dead and rewrites nothing, through about so many bytes of log; the first GC event
        whose matches are not all found, `next` if there is none."""
        with self.busy:
            self._hunt(budget_bytes)
            with self._store.lock:
                self._store.check_open()
                if self.step is None:
                    self.bury_marks()
                self._extend_prefix(now_us)
                collector = self._collector
                left = [hunt.context.seq for hunt in collector.hunts]
                left += [] if collector.hunt_again_from is None else [collector.hunt_again_from]
                return min(left, default=self._store.next)

    def is_dead(self, segment: Segment, seqs: Array) -> Array:
        """A flag for each number of a segment: was it found dead, and is it still there? Lock held."""
        if self.step is None:
            self.bury_marks()
        dead: Array = seqs <= np.uint64(self._collector.prefix)
        dead |= segment.graves.among(seqs)
        for part in self._rewriting:
            if part.segment is segment:
                dead |= part.graves.among(seqs)
        marks = self._collector.marks()
        if len(marks):
            dead |= np.isin(seqs, marks)
        return dead

    # --- marking; lock held -------------------------------------------------------------------------

    def bury_marks(self) -> None:
        """Puts marks to the segments that hold the events."""
        marks = self._collector.take_marks()
        if not len(marks):
            return
        # Newest first: most of the dead are young, so few marks are left after a segment or two.
        for segment in reversed(self._store.segments):
            mine = marks >= np.uint64(segment.first)
            if mine.any():
                segment.graves.add(marks[mine], segment.first, segment.last, segment.rows)
                marks = marks[~mine]
                if not len(marks):
                    break

    def _extend_prefix(self, now_us: int | None) -> int:
        """The prefix, with what the age policy adds: the numbers before the first event that is not old."""
        cutoff_us = self._collector.age_cutoff_us(now_us)
        if cutoff_us is not None:
            self._bury_older(cutoff_us)
        return self._collector.prefix

    def _bury_older(self, cutoff_us: int, before: int | None = None) -> None:
        """Takes into the prefix whatever comes before the first index entry with an event that is not that
        old.

        A prefix, and not each old event wherever it is, so that a GC event among them may go as well: all
        that it collected came before it, and is old, too.
        """
        for segment in self._store.segments:
            if segment.max_time_us >= cutoff_us:
                first, _ = segment.start(segment.entry_of_time(cutoff_us))
                bound = first - 1 if before is None else min(first, before) - 1
                self._collector.prefix = max(self._collector.prefix, bound)
                return

    def _roll_if_worth(self, prefix: int, *, everything: bool) -> None:
        active = self._store.segments[-1]
        dead = dead_rows(active, prefix)
        enough = dead >= self._config.rewrite_dead_fraction * active.rows
        if dead and (everything or (enough and active.bytes >= ROLL_MIN_BYTES)):
            self._store.roll()

    def keep_as(self, config: LogConfig, collector: Collector | None) -> None:
        """Goes by another configuration from now on; with `collector`, which has ingested the whole log, by
        another policy as well.

        Under `busy` and the lock. What the former policy alone had found dead and not rewritten yet lives
        again, as it would if the log was opened anew.
        """
        self._config = config
        if collector is not None:
            self._collector = collector
            self._sweep = Sweep(config, self._reader, collector)
            self.step = None
            for segment in self._store.segments:
                segment.graves = Graves()

    # --- hunting ------------------------------------------------------------------------------------

    def _hunt(self, budget_bytes: int) -> int:
        read = 0
        while read < budget_bytes:
            read += self._hunt_again(budget_bytes - read)
            with self._store.lock:
                self._store.check_open()
                group = list(self._collector.hunts)[:GROUP_MAX]
                if not group:
                    break
                for hunt in group:
                    if hunt.next == 1 and (cutoff_us := hunt.older_than_us()) is not None:
                        self._bury_older(cutoff_us, before=hunt.context.seq)
                start, end = min(hunt.next for hunt in group), max(hunt.context.seq for hunt in group)
                segments = [s for s in self._store.segments if s.last >= start and s.first < end]
                entries = [segment.entries for segment in segments]
                active = self._store.segments[-1]
            for segment, count in zip(segments, entries, strict=True):
                concerned = [
                    hunt for hunt in group if hunt.next <= segment.last and hunt.context.seq > segment.first
                ]
                dead, bytes_ = self._sweep.look(segment, count, concerned, written=segment is active)
                read += bytes_
                with self._store.lock:
                    for found in dead:
                        self._collector.mark(found)
                    for hunt in concerned:
                        hunt.next = segment.last + 1
                if read >= budget_bytes:
                    break
            self._bound_values()
            with self._store.lock:
                done = [hunt for hunt in group if hunt.next >= hunt.context.seq]
                for hunt in done:
                    self._collector.hunted(hunt)
        return read

    def _hunt_again(self, budget_bytes: int) -> int:
        """Once no hunt is left, takes up GC events that found no room before; returns the bytes of log read
        for it.

        A chunk at a time, outside the lock: they may lie anywhere in the rest of the log. What comes
        meanwhile lies behind them, and is found there.
        """
        read = 0
        while read < budget_bytes:
            with self._store.lock:
                self._store.check_open()
                start = self._collector.hunt_again_from
                if start is None or (self._collector.hunts and not read):
                    break
                start = max(start, self._store.segments[0].first)
                if start >= self._store.next:
                    self._collector.hunt_again_from = None
                    break
                segment = self._store.segment_of(start)
                place = self._reader.place(segment, start, _CHUNK_BYTES, segment.last, segment.bytes)
            try:
                chunk: Chunk = self._reader.fetch(place)
            except FileNotFoundError:  # dropped meanwhile: what is left begins later
                with self._store.lock:
                    if segment in self._store.segments:
                        raise
                continue
            read += chunk.size
            with self._store.lock:
                if not self._collector.take_up(chunk.batches(), start, chunk.last + 1, self._store.next):
                    break
        return read

    def _bound_values(self) -> None:
        """Forgets the value indexes of the oldest segments beyond the configured number of values."""
        left = self._config.index_events_max
        for segment in reversed(self._store.segments):
            if segment.values is not None:
                left -= segment.values.size
                if left < 0:
                    segment.values = None

    # --- rewriting ----------------------------------------------------------------------------------

    def _rewrite(self, group: list[Segment], prefix: int) -> int:
        with self._store.lock:
            generation = self._store.new_generation()
            parts = self._rewriting = [Part(segment, segment.graves) for segment in group]
            for segment in group:
                segment.graves = Graves()
        try:
            new = self._rewriter.rewrite(parts, prefix, generation)
            new.clean_upto = prefix
            if any(segment.values is not None for segment in group):
                self._sweep.index(new, new.entries)  # now, while its bytes are in memory
            self._store.swap(group, new)
        except Exception:
            with self._store.lock:
                for segment, graves in parts:
                    segment.graves.add(graves.seqs(), segment.first, segment.last, segment.rows)
            raise
        finally:
            self._rewriting = []
        before = sum(segment.bytes for segment in group)
        self.totals.rewrote(
            sum(segment.rows for segment in group) - new.rows, before, max(0, before - new.bytes)
        )
        return new.bytes

    def _retain(self, now_us: int | None = None) -> int:
        """Drops the oldest segments beyond the retention bounds; returns the bytes given back."""
        sealed, config = self._store.sealed, self._config
        total = self._store.bytes
        newest_us = max(segment.max_time_us for segment in self._store.segments)
        newest_us = newest_us if now_us is None else min(newest_us, now_us)
        most = min(
            (each for each in (config.retained_bytes, self._most_bytes) if each is not None), default=None
        )
        count = freed = events = 0
        for segment in sealed:
            over = most is not None and total - freed > most
            old = (
                config.retain_age_ms is not None
                and segment.max_time_us < newest_us - config.retain_age_ms * 1000
            )
            if not (over or old):
                break
            count, freed, events = count + 1, freed + segment.bytes, events + segment.rows
        if count:
            self._store.drop(count)
            self.totals.dropped(events, freed)
        return freed

    def retain(self) -> None:
        """Seals and drops at once; what bounds a log in memory whose owner never collects."""
        self._store.sync()
        self._retain()

    def keep_at_most(self, size: int | None) -> None:
        self._most_bytes = size
        if size is not None and self._store.bytes > size:
            with self._store.lock:
                self._store.roll()
            self.retain()

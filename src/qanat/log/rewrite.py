"""Rewriting: dead rows become tombstones, small segments become one, and the disk gets its room back.

The new file is written and synced under a name that no manifest mentions; the manifest then names it in place
of the old ones, in one atomic step; then the old ones are removed. A crash anywhere leaves the old stream or
the new one whole, and files that the manifest does not name are removed when the log is opened.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from qanat.events.batch import Batch, Kind
from qanat.events.encode import Array
from qanat.events.errors import MalformedBatch
from qanat.events.join import concat
from qanat.events.layout import GHOST, POSITIONS, POSITIONS_DENSE
from qanat.events.tombstones import bury, newest_at_end, tombstone
from qanat.log.config import LogConfig
from qanat.log.disk import Disk
from qanat.log.errors import DiskFailed
from qanat.log.graves import Graves
from qanat.log.reader import Reader
from qanat.log.segment import Segment
from qanat.log.segment_file import HEAD_BYTES, Head, encode_head
from qanat.log.walk import events_in, times_us

_ROWS_MAX = 1 << 19


class Part(NamedTuple):
    """A segment to be rewritten, with its dead as they were when the rewriting began."""

    segment: Segment
    graves: Graves


def dead_rows(segment: Segment, prefix: int) -> int:
    """How many events of a segment are dead; an estimate where a prefix ends inside one that has tombstones,
    and then not 0: whether one event is in the prefix is found out by rewriting, which is done once."""
    if segment.last <= prefix or not segment.rows:
        return segment.rows
    before = max(segment.first - 1, segment.clean_upto)
    covered, span = max(0, prefix - before), segment.last - before
    return min(segment.rows, segment.graves.count - (-segment.rows * covered // span))


def choose(
    sealed: list[Segment], prefix: int, config: LogConfig, *, everything: bool = False
) -> list[list[Segment]]:
    """Runs of adjacent segments, each to become one.

    A run has a segment of which enough is dead, or four that are small; its live bytes fit one segment. Small
    ones next to it are taken in, so files do not multiply.
    """
    groups: list[list[Segment]] = []
    run: list[Segment] = []
    worth = live = small = 0

    def finish() -> None:
        nonlocal run, worth, live, small
        if worth or small >= (2 if everything else 4):
            groups.append(run)
        run, worth, live, small = [], 0, 0, 0

    for segment in sealed:
        dead = dead_rows(segment, prefix)
        rest = (segment.bytes - HEAD_BYTES) * (segment.rows - dead) // max(1, segment.rows)
        enough = dead > 0 and (everything or dead >= config.rewrite_dead_fraction * segment.rows)
        is_small = rest * 4 <= config.segment_bytes
        if run and live + rest > config.segment_bytes:
            finish()
        if not enough and not is_small:
            finish()
            continue
        run.append(segment)
        worth, live, small = worth + enough, live + rest, small + is_small
    finish()
    return groups


class Rewriter:
    """Writes the survivors of some segments as one new segment."""

    def __init__(self, disk: Disk, folder: str, stream: int, config: LogConfig, reader: Reader) -> None:
        self._disk, self._folder, self._stream, self._config, self._reader = (
            disk,
            folder,
            stream,
            config,
            reader,
        )

    def rewrite(self, parts: list[Part], prefix: int, generation: int) -> Segment:
        """The new segment, synced but not yet part of the stream."""
        segment = Segment(parts[0].segment.first, generation, self._config.index_stride_bytes)
        path = f"{self._folder}/{segment.name}"
        file = self._disk.open(path)
        try:
            file.write(encode_head(Head(self._stream, segment.first, generation)))
            for batch in self._joined(self._survivors(parts, prefix)):
                file.write(batch.encode())
                segment.add(batch.size, batch.last, events_in(batch), times_us(batch))
            file.sync()
            self._disk.sync_folder(self._folder)
        except Exception:
            with suppress(OSError, DiskFailed):
                self._disk.remove(path)
            raise
        finally:
            file.close()
        return segment

    def _rows(self, parts: list[Part], prefix: int) -> Iterator[tuple[Batch | None, Array | None, Segment]]:
        """Batches with a flag for each dead row; (None, None, segment) for one that is dead as a whole."""
        for segment, graves in parts:
            if segment.last <= prefix:
                yield None, None, segment
                continue
            for batch in self._reader.batches(segment, HEAD_BYTES, segment.first, segment.bytes):
                seqs, kinds = batch.seqs(), batch.kinds
                dead = graves.among(seqs)
                dead |= seqs <= np.uint64(prefix)
                if kinds is not None:
                    dead |= kinds == Kind.TOMBSTONE
                yield batch, dead, segment

    def _survivors(self, parts: list[Part], prefix: int) -> Iterator[Batch]:
        """Batches that together cover the parts; a run of dead rows that crosses batches is one tombstone."""
        start = parts[0].segment.first
        since_us: int | None = None  # the newest time of the dead from `start` on
        rows = self._rows(parts, prefix)
        current = next(rows, None)
        while current is not None:
            following = next(rows, None)
            batch, dead, segment = current
            if batch is None or dead is None:
                since_us = segment.max_time_us if since_us is None else max(since_us, segment.max_time_us)
            elif len(dead):
                if start < batch.first and not dead[0]:
                    yield tombstone(self._stream, start, batch.first - 1, since_us or 0)
                    start, since_us = batch.first, None
                goes_on = following is not None and (following[1] is None or bool(following[1][:1].all()))
                left = bury(batch, dead, start, since_us=since_us, open_end=goes_on)
                since_us = newest_at_end(batch, dead, since_us) if goes_on else None
                if left is not None:
                    yield left
                    start = left.last + 1
            current = following
        if start <= parts[-1].segment.last:
            yield tombstone(self._stream, start, parts[-1].segment.last, since_us or 0)

    def _joined(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Adjacent batches of one shape made one, up to the configured size."""
        group: list[Batch] = []
        size = rows = 0
        for batch in batches:
            bytes_ = len(batch.encode())
            full = size + bytes_ > self._config.rewrite_batch_bytes or rows + batch.count > _ROWS_MAX
            if group and (full or _shape(batch) != _shape(group[0])):
                yield from _concat(group)
                group, size, rows = [], 0, 0
            group.append(batch)
            size, rows = size + bytes_, rows + batch.count
        if group:
            yield from _concat(group)


def _shape(batch: Batch) -> tuple[bool, bool, bool]:
    """What must be alike for two batches to join."""
    flags = batch.header.flags
    return bool(batch.header.source_bytes), bool(flags & (POSITIONS | POSITIONS_DENSE)), bool(flags & GHOST)


def _concat(group: list[Batch]) -> Iterator[Batch]:
    try:
        yield concat(group)
    except MalformedBatch:  # too many distinct sources or attributes for one batch
        yield from group

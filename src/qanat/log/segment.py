"""A segment in memory: where its batches begin, what of it was verified, and its newest bytes.

The index has one entry for each stride of log (64 KiB by default), not for each batch, so tiny batches do
not make it large: 33 bytes an entry, 528 KiB for each GiB of log.
"""

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from qanat.log.graves import Graves
from qanat.log.segment_file import HEAD_BYTES, file_name

if TYPE_CHECKING:
    from qanat.log.sweep import SegmentValues

_NO_TIME, _NO_MIN_TIME = -(1 << 63), (1 << 63) - 1
_ENTRY_BYTES = 33


class Segment:
    """Index and bounds of one segment file. Guarded by the log's lock."""

    def __init__(self, first: int, generation: int, stride_bytes: int) -> None:
        self.first = first
        self.last = first - 1
        self.generation = generation
        self.bytes = HEAD_BYTES
        self.rows = 0
        """Events; tombstones are not counted."""
        self.max_time_us = _NO_TIME
        self._stride_bytes = stride_bytes
        self._firsts = array("Q")
        self._offsets = array("Q")
        self._max_times = array("q")  # running: the newest time from the segment's start to the entry's end
        self._min_times = array("q")
        self._verified = bytearray()
        self.graves = Graves()
        self.clean_upto = 0
        """It was rewritten when everything up to this number was dead, and has no event of it left."""
        self.values: SegmentValues | None = None

    @property
    def name(self) -> str:
        return file_name(self.first, self.generation)

    @property
    def index_bytes(self) -> int:
        return _ENTRY_BYTES * len(self._firsts)

    def add(
        self, size: int, last: int, rows: int, times_us: tuple[int, int], *, verified: bool = False
    ) -> None:
        """Notes a batch of `size` bytes that was put at the end of the file and covers up to `last`.

        `verified` says that this process has checked the bytes: as it wrote them, or reading them from the
        disk.
        """
        offset = self.bytes
        offsets = self._offsets
        if not offsets or offset - offsets[-1] >= self._stride_bytes:
            self._firsts.append(self.last + 1)
            offsets.append(offset)
            self._min_times.append(_NO_MIN_TIME)
            self._max_times.append(self.max_time_us)
            self._verified.append(1)
        if not verified:
            self._verified[-1] = 0
        oldest_us, newest_us = times_us
        if oldest_us < self._min_times[-1]:
            self._min_times[-1] = oldest_us
        if newest_us > self.max_time_us:
            self.max_time_us = newest_us
        self._max_times[-1] = self.max_time_us
        self.bytes = offset + size
        self.last = last
        self.rows += rows

    def entry_of(self, seq: int) -> int:
        """The entry in which the batch that covers `seq` begins."""
        return max(0, bisect_right(self._firsts, seq) - 1)

    def entry_at(self, offset: int) -> int:
        """The last entry that begins at or before a file offset."""
        return max(0, bisect_right(self._offsets, offset) - 1)

    def entry_of_time(self, time_us: int) -> int:
        """The first entry that holds an event published at `time_us` or later."""
        return bisect_right(self._max_times, time_us - 1)

    def holds_before(self, entry: int, time_us: int) -> bool:
        """Whether an entry may hold an event published before `time_us`."""
        return self._min_times[entry] < time_us

    @property
    def entries(self) -> int:
        return len(self._firsts)

    def start(self, entry: int) -> tuple[int, int]:
        """(first sequence number, file offset) of an entry; those of the end for the entry after the last."""
        if entry >= len(self._firsts):
            return self.last + 1, self.bytes
        return self._firsts[entry], self._offsets[entry]

    def unverified(self, begin: int, end: int) -> list[int]:
        """Entries of begin..end whose bytes were not checked since this process started."""
        if self._verified.find(0, begin, end) < 0:
            return []
        return [entry for entry in range(begin, end) if not self._verified[entry]]

    def mark_verified(self, entry: int, end: int) -> None:
        """Notes that the entry's bytes up to file offset `end` were checked, unless it has grown since."""
        if self.start(entry + 1)[1] == end:
            self._verified[entry] = 1

"""Reading: from a sequence number to a slice of a file or of the tail, without copying an event.

Every byte is checked once by each process (both checksums of every batch): what it wrote, when it came; what
it found on disk, at the first read, an index entry at a time. After that bytes are served as they lie in the
page cache. So decay of what lay there before the start is found here, and a client that verifies what it
decodes, as ours does, finds what decays later.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from qanat.events.batch import Batch, decode_all
from qanat.events.errors import InvariantError
from qanat.events.layout import Header
from qanat.log.disk import Disk
from qanat.log.errors import CorruptLog
from qanat.log.segment import Segment
from qanat.log.tail import Tail
from qanat.log.walk import Damage, batches, headers

_CURSORS_MAX = 4096
"""Readers whose next offset is remembered, so that reading on does not walk headers; about 200 bytes each."""


class Chunk(NamedTuple):
    """Whole batches, as bytes; `first` is where the first one begins, at or before what was asked for.

    The same bytes are in the segment's `file`, at `offset`.
    """

    data: list[memoryview]
    first: int
    last: int
    file: str = ""
    offset: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.data))

    def batches(self) -> Iterator[Batch]:
        """The batches, decoded without checking again."""
        for part in self.data:
            yield from decode_all(part, verify=False)


class Truncated(NamedTuple):
    """The answer to a read below the retained range: `first`..`last` are lost; read on at last + 1."""

    first: int
    last: int


class Place(NamedTuple):
    """A range of whole batches in a segment."""

    segment: Segment
    begin: int
    end: int
    first: int
    last: int


class Reader:
    """Finds places under the log's lock, and fetches their bytes outside it."""

    def __init__(self, disk: Disk, folder: str, stream: int, tail: Tail, lock: "threading.RLock") -> None:
        self._disk, self._folder, self._stream, self._tail, self._lock = disk, folder, stream, tail, lock
        self._cursors: OrderedDict[tuple[int, int], tuple[Segment, int]] = OrderedDict()

    def place(self, segment: Segment, start: int, max_bytes: int, limit: int, limit_at: int) -> Place:
        """Where the batches are that cover start.. within `limit`, which ends at file offset `limit_at`; lock
        held."""
        begin, first = self._begin(segment, start)
        end, last = limit_at, limit
        if end - begin > max_bytes:
            end, last = self._end(segment, begin, first, begin + max_bytes)
        return Place(segment, begin, end, first, last)

    def boundary(self, segment: Segment, seq: int, start: int) -> tuple[int, int]:
        """(file offset, last sequence number) of the end of the last batch that ends at or before `seq`; lock
        held.

        A reader at `start` that was there before walks only over what is new to it.
        """
        entry = segment.entry_of(seq + 1)
        first, begin = segment.start(entry)
        cursor = self._cursors.get((segment.generation, start))
        if cursor is not None and cursor[0] is segment and cursor[1] > begin:
            first, begin = start, cursor[1]
        _, end = segment.start(entry + 1)
        last = first - 1
        for at, header in self._headers(segment, begin, end, first):
            if header.first + header.span - 1 > seq:
                return at, header.first - 1
            begin, last = at + header.size, header.first + header.span - 1
        return begin, last

    def _begin(self, segment: Segment, start: int) -> tuple[int, int]:
        cursor = self._cursors.get((segment.generation, start))
        if cursor is not None and cursor[0] is segment:
            self._cursors.move_to_end((segment.generation, start))
            return cursor[1], start
        entry = segment.entry_of(start)
        first, offset = segment.start(entry)
        if first == start:
            return offset, first
        _, end = segment.start(entry + 1)
        for at, header in self._headers(segment, offset, end, first):
            if start < header.first + header.span:
                return at, header.first
        raise InvariantError(
            f"{segment.name}: the index says that {start} is before byte {end}, but it is not"
        )

    def _end(self, segment: Segment, begin: int, first: int, wanted: int) -> tuple[int, int]:
        """The last batch boundary at or before `wanted`, but after one batch at least."""
        after, offset = segment.start(segment.entry_at(wanted))
        if begin < offset <= wanted:
            return offset, after - 1
        _, entry_end = segment.start(segment.entry_at(begin) + 1)
        end, last = begin, first - 1
        for at, header in self._headers(segment, begin, entry_end, first):
            if last >= first and at + header.size > wanted:
                break
            end, last = at + header.size, header.first + header.span - 1
        return end, last

    def _headers(self, segment: Segment, begin: int, end: int, first: int) -> Iterator[tuple[int, Header]]:
        parts = self._bytes(segment, begin, end)
        try:
            for part in parts:
                for at, header in headers(part, begin, self._stream, first):
                    yield at, header
                    first = header.first + header.span
                begin += len(part)
        except Damage as damage:
            raise self._corrupt(segment, damage) from damage

    def _bytes(self, segment: Segment, begin: int, end: int) -> list[memoryview]:
        """begin..end from the tail as far as it reaches, otherwise from the disk."""
        parts = []
        while begin < end:
            part = self._tail.read(segment, begin, end)
            if part is None:
                part = self._disk.read(f"{self._folder}/{segment.name}", begin, end - begin)
                if len(part) < end - begin:
                    raise self._corrupt(segment, Damage(begin + len(part), "the file ends here"))
            parts.append(part)
            begin += len(part)
        return parts

    def fetch(self, place: Place) -> Chunk:
        """The bytes of a place, verified; raises `FileNotFoundError` if the segment was replaced
        meanwhile."""
        segment = place.segment
        with self._lock:
            in_memory = self._tail.read(segment, place.begin, place.end) is not None
            data = self._bytes(segment, place.begin, place.end) if in_memory else []
            begin, end = segment.entry_at(place.begin), segment.entry_at(place.end - 1) + 1
            unverified = [] if in_memory else segment.unverified(begin, end)
            ranges = [(entry, *segment.start(entry), segment.start(entry + 1)[1]) for entry in unverified]
        if not in_memory:
            for entry, first, at, until in ranges:
                self._verify(segment, entry, first, at, until)
            data = [self._disk.read(f"{self._folder}/{segment.name}", place.begin, place.end - place.begin)]
            if len(data[0]) < place.end - place.begin:
                raise self._corrupt(segment, Damage(place.begin + len(data[0]), "the file ends here"))
        with self._lock:
            self._cursors[segment.generation, place.last + 1] = (segment, place.end)
            if len(self._cursors) > _CURSORS_MAX:
                self._cursors.popitem(last=False)
        return Chunk(data, place.first, place.last, segment.name, place.begin)

    def _verify(self, segment: Segment, entry: int, first: int, at: int, until: int) -> None:
        data = self._disk.read_copy(f"{self._folder}/{segment.name}", at, until - at)
        try:
            if len(data) < until - at:
                raise Damage(at + len(data), "the file ends here")
            for _ in headers(data, at, self._stream, first, bodies=True):
                pass
        except Damage as damage:
            raise self._corrupt(segment, damage) from damage
        with self._lock:
            segment.mark_verified(entry, until)

    def _corrupt(self, segment: Segment, damage: Damage) -> CorruptLog:
        return CorruptLog(
            f"{self._folder}/{segment.name}",
            damage.offset,
            damage.reason,
            "the log goes on elsewhere; restore this file from a replica or a backup",
        )

    def batches(self, segment: Segment, begin: int, first: int, end: int) -> Iterator[Batch]:
        """Batches of a range that starts at an entry, verified, for bulk work outside the lock."""
        data = self._disk.read_copy(f"{self._folder}/{segment.name}", begin, end - begin)
        try:
            if len(data) < end - begin:
                raise Damage(begin + len(data), "the file ends here")
            for _, batch in batches(data, begin, self._stream, first):
                yield batch
        except Damage as damage:
            raise self._corrupt(segment, damage) from damage

"""The newest bytes of the log, kept in memory in the layout of the file.

An append copies its batch once into a block; the file is written from there, and readers at the live edge get
slices of the same block: one contiguous run of batches, without the page cache. A block that is dropped stays
valid for as long as a reader holds a view of it; after that its memory serves again, for fresh memory costs a
page fault for every 4 KiB. A large batch whose memory the log was given is not copied: it is a block by
itself.
"""

from collections import deque
from contextlib import suppress
from typing import cast

from qanat.events.buffers import unseen
from qanat.log.segment import Segment

_BLOCK_MIN_BYTES = 64 * 1024
_BLOCK_MAX_BYTES = 1024 * 1024
_RETIRED = 4  # dropped blocks watched for the moment their last view is gone


class _Block:
    __slots__ = ("given", "segment", "start", "used", "view")

    def __init__(self, segment: Segment, start: int, memory: bytearray | memoryview, used: int = 0) -> None:
        self.segment, self.start, self.used = segment, start, used
        self.view = memoryview(memory)
        self.given = used > 0
        """Whether it came full: its memory is somebody else's to use again."""


class Tail:
    """A bounded run of blocks; the newest block stays even if it alone is over the bound."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._blocks: deque[_Block] = deque()
        self._retired: deque[bytearray] = deque(maxlen=_RETIRED)
        self.bytes = 0

    def reserve(self, segment: Segment, size: int) -> memoryview:
        """Writable room for the next `size` bytes of the segment; nothing is kept until `commit`."""
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.segment is not segment or block.used + size > len(block.view):
            grown = _BLOCK_MIN_BYTES if block is None else min(2 * len(block.view), _BLOCK_MAX_BYTES)
            block = _Block(segment, segment.bytes, self._memory(max(size, min(grown, _BLOCK_MAX_BYTES))))
            self._add(block)
        return block.view[block.used : block.used + size]

    def keep(self, segment: Segment, view: memoryview) -> None:
        """These bytes were written to the segment's end, and stay as they are: nobody will change their
        memory."""
        self._add(_Block(segment, segment.bytes, view, len(view)))

    def shrink(self) -> None:
        """Drops all of it, and the memory that waits to be used again: readers take the file."""
        self._blocks.clear()
        self._retired.clear()
        self.bytes = 0

    def _add(self, block: _Block) -> None:
        self._blocks.append(block)
        self.bytes += len(block.view)
        while self.bytes > self._limit_bytes and len(self._blocks) > 1:
            self._retire(self._blocks.popleft())

    def _memory(self, size: int) -> bytearray:
        if size == _BLOCK_MAX_BYTES:
            for _ in range(len(self._retired)):
                candidate = self._retired.popleft()
                if unseen(candidate):
                    return candidate
                self._retired.append(candidate)
        return bytearray(size)

    def _retire(self, block: _Block) -> None:
        self.bytes -= len(block.view)
        if len(block.view) == _BLOCK_MAX_BYTES and not block.given:
            memory = cast(bytearray, block.view.obj)
            with suppress(BufferError):  # somebody has a view of this very view: then it is not ours to reuse
                block.view.release()
                self._retired.append(memory)

    def commit(self, size: int) -> None:
        self._blocks[-1].used += size

    def read(self, segment: Segment, offset: int, end: int) -> memoryview | None:
        """As much of offset..end as lies in one block, or None if the offset is in none."""
        for block in reversed(self._blocks):
            if block.segment is segment and block.start <= offset:
                inside = offset - block.start
                if inside >= block.used:
                    return None
                return block.view[inside : min(end - block.start, block.used)].toreadonly()
        return None

    def forget(self, segment: Segment) -> None:
        """Drops the blocks of a segment that was replaced or removed."""
        kept = [block for block in self._blocks if block.segment is not segment]
        self.bytes = sum(len(block.view) for block in kept)
        self._blocks = deque(kept)

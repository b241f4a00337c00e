"""Received bytes to frames, without I/O and without copying attachments."""

from collections.abc import Callable
from typing import NoReturn

from qanat.events.buffers import unseen
from qanat.events.checksum import crc32c
from qanat.wire.frame import CONTROL_LIMIT, FRAME_LIMIT, HEADER, HEADER_BYTES, Bytes, Frame, MalformedFrame

_NOTHING = memoryview(b"")
_LARGE = 128 * 1024
"""Behind a frame of so many attached bytes another like it is expected. It is received by itself where a
third would have no room behind it, and would have to be moved from there."""
_RETIRED = 12  # used buffers watched for the moment their last view is gone; a log keeps the newest 8 MiB


class FrameReader:
    """Turns received bytes into frames; holds the receive buffer.

    Fill `get_buffer()`, tell `advance(n)`, then take `next_frame()` until it is None. Attachments are
    views of the buffer. A buffer that may be seen through a view is never written again: the reader goes on
    in another one, copying only the fragment of a frame that has not fully arrived. Used buffers are
    taken back once the last view of them is gone, so a steady flow allocates nothing.

    Buffers grow with the flow from `initial_bytes` to `largest_bytes`. For a single larger frame they double
    as it arrives: what a header claims reserves nothing.
    """

    __slots__ = (
        "_attached",
        "_buffer",
        "_capacity",
        "_channel",
        "_control",
        "_end",
        "_expected",
        "_given",
        "_grew",
        "_initial_bytes",
        "_largest_bytes",
        "_offered",
        "_retired",
        "_size",
        "_start",
        "_type",
        "_view",
        "_want",
        "control_limit",
        "limit",
    )

    def __init__(
        self,
        limit: int = FRAME_LIMIT,
        *,
        control_limit: int = CONTROL_LIMIT,
        initial_bytes: int = 16 * 1024,
        largest_bytes: int = 1024 * 1024,
        grew: Callable[[int], None] | None = None,
    ) -> None:
        """`grew` is told of each large buffer that is made."""
        self.limit = limit
        self.control_limit = control_limit
        self._initial_bytes = initial_bytes
        self._largest_bytes = max(largest_bytes, initial_bytes)
        self._grew = grew
        self._size = initial_bytes
        self._capacity = 0
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._retired: list[bytearray] = []
        self._start = self._end = self._offered = 0
        self._given = False  # a view of this buffer was handed out
        self._want = HEADER_BYTES  # bytes from _start that the frame being read needs to get further
        self._expected = 0  # bytes of the next frame, if it is like the last one and that was large
        self._attached = -1  # attachment bytes of the frame being read, once its control part was checked
        self._type = self._channel = 0
        self._control = b""

    @property
    def pending_bytes(self) -> int:
        """Received bytes that were not yet given out as frames."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """What the buffer being filled takes in memory."""
        return self._capacity

    @property
    def held_bytes(self) -> int:
        """What all its buffers take in memory."""
        return self._capacity + sum(map(len, self._retired))

    @property
    def _goal(self) -> int:
        """Bytes from _start that the buffer should have room for: all of a frame that is as large as others
        before it, or twice what there is of it."""
        wanted = max(self._want, self._expected)
        if wanted <= self._size:
            return wanted
        return min(wanted, max(self._size, 1 << (self._end - self._start).bit_length()))

    def get_buffer(self) -> memoryview:
        """Room for at least one byte."""
        if self._start == self._end and not self._given:
            self._start = self._end = 0
            if self._capacity < self._size:
                self._turn()
        elif (
            self._start == self._end and not self._expected
        ):  # nothing is under way, and nothing large is expected
            room = self._capacity - self._end
            if room < self._want or room < self._size >> 2:
                self._turn()
        elif self._capacity - self._start < self._goal:
            self._turn()
        elif self._capacity - self._end < self._size >> 2:
            # A frame whose length is known and fits is received to its end, rather than moved.
            if self._attached < 0 or self._end - self._start >= self._want:
                self._turn()
        stop = self._capacity
        if self._expected:
            behind = self._start + max(self._want, self._expected)
            if self._end < behind and stop - behind < self._expected:
                stop = behind
        self._offered = stop - self._end
        return self._view[self._end : stop]

    def advance(self, count: int) -> None:
        """`count` bytes were written to the start of the room."""
        self._end += count
        if count == self._offered and self._size < self._largest_bytes:
            self._size = min(self._size * 4, self._largest_bytes)

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None.

        Raises `MalformedFrame`; after that the reader is of no more use, for where the next frame would
        begin is not known.
        """
        start = self._start
        have = self._end - start
        if have < self._want:
            return None
        view = self._view
        attached = self._attached
        if attached < 0:
            length, type_, flags, channel, size, crc = HEADER.unpack_from(view, start)
            attached = length - size
            if (
                attached < 0
                or attached > self.limit
                or size > self.control_limit
                or flags > 7
                or flags > size
            ):
                self._refuse(attached, size, flags)
            body = start + HEADER_BYTES
            if have < HEADER_BYTES + size:
                self._want = HEADER_BYTES + size
                return None
            padded = view[body : body + size]
            if crc32c(padded, crc32c(view[start : start + 12])) != crc:
                raise MalformedFrame(
                    "malformed", "a frame's header or control part does not match its checksum"
                )
            control = bytes(padded[: size - flags]) if flags else bytes(padded)
            total = HEADER_BYTES + size + attached
            if have < total:
                self._want = total
                self._attached, self._type, self._channel, self._control = attached, type_, channel, control
                return None
        else:
            total = self._want
            type_, channel, control = self._type, self._channel, self._control
            self._control = b""
            self._attached = -1
        self._want = HEADER_BYTES
        self._expected = total if attached >= _LARGE and total <= self._size else 0
        end = self._start = start + total
        if not attached:
            return Frame(type_, channel, control, _NOTHING)
        self._given = True
        return Frame(type_, channel, control, view[end - attached : end])

    def feed(self, data: Bytes) -> None:
        """Copies bytes in, for those who have them already."""
        view = memoryview(data).cast("B")
        while view.nbytes:
            room = self.get_buffer()
            count = min(room.nbytes, view.nbytes)
            room[:count] = view[:count]
            self.advance(count)
            view = view[count:]

    def trim(self) -> None:
        """Gives back what holds nothing, for connections that fell silent."""
        self._retired.clear()
        if self._start == self._end:
            self._size = self._initial_bytes
            self._expected = 0
            self._use(bytearray(), 0)

    def close(self) -> None:
        """Nothing more comes: the part of a frame that waits is thrown away too."""
        self._start = self._end
        self.trim()

    def _refuse(self, attached: int, size: int, flags: int) -> NoReturn:
        if attached > self.limit:
            raise MalformedFrame(
                "over_limit", f"a frame announces {attached} attached bytes, over the limit of {self.limit}"
            )
        if attached >= 0 and size > self.control_limit:
            raise MalformedFrame(
                "over_limit",
                f"a frame announces {size} control bytes, over the limit of {self.control_limit}",
            )
        raise MalformedFrame(
            "malformed",
            f"a frame's lengths or flags cannot be: control {size}, attachment {attached}, flags {flags:#x}",
        )

    def _turn(self) -> None:
        """Goes on in a buffer that nobody looks at, with room for the frame being read."""
        tail = self._end - self._start
        goal = self._goal
        needed = max(self._size, goal, tail + (self._size >> 2))
        old, view = self._buffer, self._view
        if goal > self._size:
            self._size = min(1 << (2 * goal - 1).bit_length(), self._largest_bytes)
        fresh = None
        for i, candidate in enumerate(self._retired):
            if len(candidate) >= needed and unseen(candidate):
                fresh = self._retired.pop(i)
                break
        if fresh is None:
            if not tail and len(old) >= needed:
                view.release()
                if unseen(old):
                    self._use(old, 0)
                    return
            fresh = bytearray(needed)
            if self._grew is not None and needed >= _LARGE:
                self._grew(needed)
        if tail:
            fresh[:tail] = view[self._start : self._end]
        view.release()
        if self._size <= len(old) <= self._largest_bytes:
            self._retired.append(old)
            if len(self._retired) > _RETIRED:
                del self._retired[0]
        self._use(fresh, tail)

    def _use(self, buffer: bytearray, filled: int) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._capacity = len(buffer)
        self._start = 0
        self._end = filled
        self._given = False

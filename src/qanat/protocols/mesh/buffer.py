"""`Recv`: the received events that a client still has for its neighbours, within a bound of bytes."""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from operator import attrgetter
from typing import NamedTuple

from qanat.events.batch import Batch


class Held(NamedTuple):
    first: int
    last: int
    size: int
    batch: Batch


_first = attrgetter("first")


class ReceiveBuffer:
    """Batches in the order in which they were received; beyond the bound the oldest goes (discardEvent)."""

    __slots__ = ("_limit_bytes", "_order", "_streams", "bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._order: deque[tuple[int, Held]] = deque()
        """Each batch held with its stream, oldest first."""
        self._streams: dict[int, list[Held]] = {}
        """Of each stream the same batches by their first numbers."""
        self.bytes = 0

    def add(self, stream: int, first: int, last: int, batch: Batch) -> None:
        size = batch.virtual_size
        if size > self._limit_bytes:
            # It would push out everything and not stay itself; neighbours get it from the proxy.
            return
        self._keep(stream, Held(first, last, size, batch))
        while self.bytes > self._limit_bytes:
            self._discard()

    def find(self, stream: int, nxt: int, cnt: int, max_bytes: int) -> tuple[list[Batch], int]:
        """Batches that overlap `nxt`..`cnt`, from the lowest, and up to where the answer speaks."""
        chosen: list[Batch] = []
        for held in self._overlapping(stream, nxt, cnt):
            max_bytes -= held.size
            if chosen and max_bytes < 0:
                return chosen, held.first - 1
            chosen.append(held.batch)
        return chosen, cnt

    def forget(self, stream: int) -> None:
        self.bytes -= sum(held.size for held in self._streams.pop(stream, ()))
        self._order = deque(one for one in self._order if one[0] != stream)

    def _keep(self, stream: int, new: Held) -> None:
        held = self._streams.get(stream)
        if held is None:
            held = self._streams[stream] = []
        if held and held[-1].first > new.first:
            insort(held, new, key=_first)
        else:
            held.append(new)
        self._order.append((stream, new))
        self.bytes += new.size

    def _overlapping(self, stream: int, nxt: int, cnt: int) -> list[Held]:
        """Looks from the end of the range backwards: what lies before it is not looked at."""
        held = self._streams.get(stream)
        if not held:
            return []
        end = bisect_right(held, cnt, key=_first)
        start = end
        while start and held[start - 1].last >= nxt:
            start -= 1
        return held[start:end]

    def _discard(self) -> None:
        stream, old = self._order.popleft()
        held = self._streams[stream]
        at = bisect_left(held, old.first, key=_first)
        while held[at] is not old:
            at += 1
        del held[at]
        self.bytes -= old.size

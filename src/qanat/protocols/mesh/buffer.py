"""`Recv`: the delivered events that a client still has for its neighbours, within a bound of bytes."""

from collections import deque
from typing import NamedTuple

from qanat.events.batch import Batch


class Held(NamedTuple):
    first: int
    last: int
    size: int
    batch: Batch


class ReceiveBuffer:
    """Batches in the order in which they were delivered; beyond the bound the oldest goes (discardEvent)."""

    __slots__ = ("_limit_bytes", "_order", "_streams", "bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._order: deque[int] = deque()
        """The stream of each batch held, oldest first."""
        self._streams: dict[int, deque[Held]] = {}
        self.bytes = 0

    def add(self, stream: int, first: int, last: int, batch: Batch) -> None:
        size = batch.virtual_size
        if size > self._limit_bytes:
            # It would push out everything and not stay itself; neighbours get it from the proxy.
            return
        held = self._streams.get(stream)
        if held is None:
            held = self._streams[stream] = deque()
        held.append(Held(first, last, size, batch))
        self._order.append(stream)
        self.bytes += size
        while self.bytes > self._limit_bytes:
            self._discard()

    def find(self, stream: int, nxt: int, cnt: int, max_bytes: int) -> tuple[list[Batch], int]:
        """Batches that overlap `nxt`..`cnt`, from the lowest, and up to where the answer speaks.

        Looks from the newest backwards, since neighbours ask for what is new.
        """
        chosen: list[Batch] = []
        for held in self._overlapping(stream, nxt, cnt):
            max_bytes -= held.size
            if chosen and max_bytes < 0:
                return chosen, held.first - 1
            chosen.append(held.batch)
        return chosen, cnt

    def forget(self, stream: int) -> None:
        self.bytes -= sum(held.size for held in self._streams.pop(stream, ()))
        self._order = deque(one for one in self._order if one != stream)

    def _overlapping(self, stream: int, nxt: int, cnt: int) -> list[Held]:
        found: list[Held] = []
        for held in reversed(self._streams.get(stream, ())):
            if held.last < nxt:
                break
            if held.first <= cnt:
                found.append(held)
        found.reverse()
        return found

    def _discard(self) -> None:
        self.bytes -= self._streams[self._order.popleft()].popleft().size

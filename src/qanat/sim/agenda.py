"""What is to happen when: events in order of time, and at one instant in the order in which they were
scheduled.

A heap of everything is slow once there are hundreds of thousands of timers, most of them far off: each step
through it is a miss of the cache. So only what is due in the present slice of time is in a heap; the rest
lies in a list for each later slice, and is put in order when its slice begins.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

Event = tuple[int, int, Any, Any, Any]
"""(time in µs, number, what, and two things for it)."""

SLICE_BITS = 12
"""A slice is 4 ms: some one-way latencies inside a region, so that most messages never wait in a list."""


class Agenda:
    """`heap` is the present slice; `horizon_us` its end. When it is empty, `turn` begins the next."""

    __slots__ = ("_later", "_slices", "heap", "horizon_us")

    def __init__(self) -> None:
        self.heap: list[Event] = []
        self.horizon_us = 1 << SLICE_BITS
        self._later: dict[int, list[Event]] = {}
        self._slices: list[int] = []
        """A heap of the slices that have a list."""

    def push(self, event: Event) -> None:
        if event[0] < self.horizon_us:
            heappush(self.heap, event)
            return
        number = event[0] >> SLICE_BITS
        events = self._later.get(number)
        if events is None:
            self._later[number] = [event]
            heappush(self._slices, number)
        else:
            events.append(event)

    def turn(self, until_us: int) -> bool:
        """Begin the next slice in which there is anything, if it begins by `until_us`; the heap must be
        empty."""
        if not self._slices or self._slices[0] << SLICE_BITS > until_us:
            return False
        number = heappop(self._slices)
        self.heap.extend(self._later.pop(number))
        heapify(self.heap)
        self.horizon_us = (number + 1) << SLICE_BITS
        return True

    def __len__(self) -> int:
        return len(self.heap) + sum(map(len, self._later.values()))

    def __iter__(self) -> Iterator[Event]:
        """In no order."""
        yield from self.heap
        for events in self._later.values():
            yield from events

    def clear(self) -> None:
        self.heap.clear()
        self._later.clear()
        self._slices.clear()

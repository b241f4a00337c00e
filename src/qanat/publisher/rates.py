"""How fast counters grew lately."""

import time
from collections import deque
from collections.abc import Callable, Mapping

WINDOW_S = 10.0
"""Rates are of the last seconds: long enough to be steady, short enough to follow."""


class Rates:
    """Give it samples about once a second."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()

    def sample(self, counters: Mapping[str, int]) -> None:
        now = self._now()
        self._samples.append((now, counters))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    def of(self, name: str) -> float:
        """A second; 0 while too little is known. A counter that appeared since began at 0."""
        if len(self._samples) < 2:
            return 0.0
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        grown = last.get(name, 0) - first.get(name, 0)
        return max(0.0, grown / (ended - began)) if ended > began else 0.0

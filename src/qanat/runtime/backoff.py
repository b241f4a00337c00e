"""How long to wait before trying again."""

import random
import time

DATASTORE_MS = (50.0, 1_000.0)
"""First and longest pause before a datastore that is away is asked again: back soon, and never hammered."""


class Backoff:
    """Doubles from `first_ms` to `limit_ms`; each pause is shortened at random by up to a half.

    The jitter is drawn from the given generator, so a seeded one makes the pauses repeatable.
    """

    def __init__(self, first_ms: float, limit_ms: float, rng: random.Random | None = None) -> None:
        self._first_ms = first_ms
        self._limit_ms = limit_ms
        self._rng = rng or random.Random()
        self.failures = 0

    def reload(self, first_ms: float, limit_ms: float) -> None:
        """Other pauses from now on; failures so far count."""
        self._first_ms, self._limit_ms = first_ms, limit_ms

    def next_ms(self) -> float:
        """The pause after one more failure."""
        pause_ms = min(self._first_ms * 2.0 ** min(self.failures, 60), self._limit_ms)
        self.failures += 1
        return pause_ms * (1 - self._rng.random() / 2)

    def sleep(self) -> None:
        """That pause, in a thread of the caller's own."""
        time.sleep(self.next_ms() / 1000)

    def reset(self) -> None:
        self.failures = 0

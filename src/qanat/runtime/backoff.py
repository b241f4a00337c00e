"""How long to wait before trying again."""

import random


class Backoff:
    """Doubles from `first_ms` to `limit_ms`; each pause is shortened at random by up to a half.

    The jitter is drawn from the given generator, so a seeded one makes the pauses repeatable.
    """

    def __init__(self, first_ms: float, limit_ms: float, rng: random.Random) -> None:
        self._first_ms = first_ms
        self._limit_ms = limit_ms
        self._rng = rng
        self.failures = 0

    def reload(self, first_ms: float, limit_ms: float) -> None:
        """Other pauses from now on; failures so far count."""
        self._first_ms, self._limit_ms = first_ms, limit_ms

    def next_ms(self) -> float:
        """The pause after one more failure."""
        pause_ms = min(self._first_ms * 2.0 ** min(self.failures, 60), self._limit_ms)
        self.failures += 1
        return pause_ms * (1 - self._rng.random() / 2)

    def reset(self) -> None:
        self.failures = 0

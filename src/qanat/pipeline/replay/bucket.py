"""A token bucket: so many bytes per second, on average; its rate may be changed at any time. Reads no
clock."""

from qanat.events.errors import LocalError

LONGEST_S = 0.1
"""At most so long is waited at once: then a changed rate counts."""


class Bucket:
    """Who takes more than there is owes it, and the next one waits until the debt is paid: batches of any
    size pass.

    What nobody took is kept for `LONGEST_S`: a pause is not made up for by a burst.
    """

    def __init__(self, rate: float, now: float) -> None:
        """`rate` in bytes per second; 0 is without limit."""
        self._rate, self._tokens, self._at = 0.0, 0.0, now
        self.set_rate(rate, now)

    @property
    def rate(self) -> float:
        return self._rate

    def set_rate(self, rate: float, now: float) -> None:
        """From now on."""
        if rate < 0:
            raise LocalError(f"a rate of {rate} bytes per second is less than nothing; 0 is without limit")
        self._refill(now)
        self._rate = float(rate)

    def delay(self, now: float) -> float:
        """Seconds to wait before asking again; 0 if something may be taken."""
        if not self._rate:
            return 0.0
        self._refill(now)
        # Less than a byte is none: a clock need not tell the moments that it would take.
        return 0.0 if self._tokens > -1 else min(-self._tokens / self._rate, LONGEST_S)

    def take(self, size: int, now: float) -> None:
        self._refill(now)
        if self._rate:
            self._tokens -= size

    def _refill(self, now: float) -> None:
        if self._rate:
            self._tokens = min(self._tokens + (now - self._at) * self._rate, self._rate * LONGEST_S)
        else:
            self._tokens = 0.0
        self._at = now

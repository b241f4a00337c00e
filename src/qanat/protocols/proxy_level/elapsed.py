"""Time that never goes back, made of a wall clock that may and a periodic timer that does not."""


class Elapsed:
    """Microseconds since the start. Between two ticks the wall clock says how far, but never past the next
    tick.

    So a jump of the wall clock, either way, costs at most one interval of precision.
    """

    def __init__(self, now_us: int) -> None:
        self._base_us = 0
        self._wall_us = now_us
        self._armed_us = 0
        self._latest_us = 0

    def arm(self, now_us: int, after_us: int) -> None:
        """The periodic timer has run out (or is set for the first time), and will again in `after_us`."""
        self._base_us += self._armed_us
        self._wall_us, self._armed_us = now_us, after_us
        self._latest_us = max(self._latest_us, self._base_us)

    def read(self, now_us: int) -> int:
        since_us = min(max(now_us - self._wall_us, 0), self._armed_us)
        self._latest_us = max(self._latest_us, self._base_us + since_us)
        return self._latest_us

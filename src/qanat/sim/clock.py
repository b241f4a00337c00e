"""A node's own idea of the time."""

EPOCH_US = 1_700_000_000_000_000
"""Where every wall clock starts (November 2023): large, as real ones are, and never negative under skew."""
PPM = 1_000_000


class Clock:
    """Maps true time to a node's wall clock: an offset that may jump, and a rate that may drift.

    `drift_ppm` is how many microseconds the clock gains in each true second; monotonic time (timers)
    drifts alike but never jumps.
    """

    __slots__ = ("offset_us", "drift_ppm", "_anchor_us")

    def __init__(self) -> None:
        self.offset_us = EPOCH_US
        self.drift_ppm = 0
        self._anchor_us = 0

    def read(self, now_us: int) -> int:
        return now_us + self.offset_us + (now_us - self._anchor_us) * self.drift_ppm // PPM

    def jump(self, by_us: int) -> None:
        self.offset_us += by_us

    def drift(self, now_us: int, ppm: int) -> None:
        """Change the rate from now on, without a jump."""
        self.offset_us = self.read(now_us) - now_us
        self._anchor_us = now_us
        self.drift_ppm = ppm

    def true_us(self, local_us: int) -> int:
        """How long `local_us` of this node's monotonic time takes in true time, at its present rate."""
        if not self.drift_ppm:
            return local_us
        return -(-local_us * PPM // (PPM + self.drift_ppm))

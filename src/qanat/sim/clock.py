"""A node's own ideas of the time."""

EPOCH_US = 1_700_000_000_000_000
"""Where every wall clock starts (November 2023): large, as real ones are, and never negative under skew."""
PPM = 1_000_000
_BOOTS_APART_US = 7_919_000_003
"""Monotonic time begins somewhere else on each machine, and after each of its starts."""


class Clock:
    """Maps true time to a node's monotonic time, which never jumps, and to its wall clock, which may.

    `drift_ppm` is how many microseconds both gain in each true second. `offset_us` is what the wall clock has
    more than monotonic time.
    """

    __slots__ = ("base_us", "offset_us", "drift_ppm", "_anchor_us")

    def __init__(self, boots: int = 0) -> None:
        self.base_us = _BOOTS_APART_US * (1 + boots)
        self.offset_us = EPOCH_US - self.base_us
        self.drift_ppm = 0
        self._anchor_us = 0

    def monotonic(self, now_us: int) -> int:
        return now_us + self.base_us + (now_us - self._anchor_us) * self.drift_ppm // PPM

    def wall(self, now_us: int) -> int:
        return self.monotonic(now_us) + self.offset_us

    def jump(self, by_us: int) -> None:
        self.offset_us += by_us

    def boot(self) -> None:
        """Monotonic time begins anew, and means nothing to who kept a time of before."""
        self.base_us += _BOOTS_APART_US
        self.offset_us -= _BOOTS_APART_US

    def drift(self, now_us: int, ppm: int) -> None:
        """Change the rate from now on, without a jump."""
        self.base_us = self.monotonic(now_us) - now_us
        self._anchor_us = now_us
        self.drift_ppm = ppm

    def true_us(self, local_us: int) -> int:
        """How long `local_us` of this node's monotonic time takes in true time, at its present rate."""
        if not self.drift_ppm:
            return local_us
        return -(-local_us * PPM // (PPM + self.drift_ppm))

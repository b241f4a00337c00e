"""The two clocks of a machine."""

import time

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux' own goes on while the machine sleeps, as do the leases that others granted."""


def monotonic_us() -> int:
    """Never jumps, and begins anywhere: for durations, and for nothing that another process hears."""
    return time.clock_gettime_ns(_MONOTONIC) // 1000


def wall_clock_us() -> int:
    """Microseconds since the epoch, as this machine believes: for dates. It may jump either way."""
    return time.time_ns() // 1000

"""Latencies as counts in buckets that grow by a hundredth: of any number of events, summed over blocks,
regions and machines."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

GROWTH = 1.01
_LONGEST_US = 30 * 24 * 3600 * 1_000_000
"""A month: what took longer counts as a month."""
BUCKETS = int(math.log(_LONGEST_US) / math.log(GROWTH)) + 3
"""Bucket 0 is for times that are not above 0: clocks of two machines that differ. The others are a hundredth
wide."""

Array = np.ndarray[Any, Any]


def histogram(taken_us: Array) -> Array:
    """How many of these times fall into each bucket."""
    above = np.clip(taken_us, 1, _LONGEST_US)
    index = np.where(taken_us > 0, 1 + (np.log(above) / math.log(GROWTH)).astype(np.int64), 0)
    return np.bincount(index, minlength=BUCKETS)


def percentile(counts: Array, share: float) -> float:
    """The time in µs below which that share of them is, within a hundredth; 0 if there are none."""
    total = int(counts.sum())
    if not total:
        return 0.0
    rank = min(int(share * total), total - 1)
    index = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
    return 0.0 if index == 0 else GROWTH ** (index - 0.5)


def summary(counts: Array, shares: Sequence[float] = (0.5, 0.9, 0.99, 0.999)) -> dict[str, float]:
    """Milliseconds by name: p50, p90, p99, p99_9."""
    return {f"p{share * 100:g}".replace(".", "_"): percentile(counts, share) / 1000 for share in shares}

"""How fast each caravan may read: the three limits, and 1.25 to 2 times the lead's rate for those behind it
(Wormhole, section 3.1), or a rate that they may always have: a lead that has come to the end of the log reads
as fast as the log grows, and twice nothing is nothing."""

import math
from typing import Any

from qanat.protocols.caravans.allocation import Caravans
from qanat.protocols.caravans.limits import CaravanLimits
from qanat.protocols.caravans.travel import AnyCaravan

_MEMORY_S = 2.0
"""How long the past counts in a caravan's measured rate."""
_BURST_S = 0.25
"""What a caravan that has not read for a while may read at once, in seconds of its allowance."""
_LEAST_US = 1_000
"""It is not worth while to wait for less."""


class _Bucket:
    __slots__ = ("at_us", "debt", "rate")

    def __init__(self) -> None:
        self.rate = self.debt = 0.0
        self.at_us = 0


class Meter:
    """What each caravan has read lately, and when it may read on.

    The lead takes its part first. What the total leaves is for trailing caravans, nearest to the lead first:
    each gets between `catch_up_least` and `catch_up_most` times the lead's rate, or `replay_bytes_s` if that
    is more, or waits; only the nearest takes what there is, were it less.
    """

    def __init__(self, config: CaravanLimits) -> None:
        self.config = config
        self._buckets: dict[int, _Bucket] = {}
        self._allowed: dict[int, float] = {}

    def took(self, caravan: AnyCaravan[Any], size: int, now_us: int) -> None:
        allowed = self._allowed.get(caravan.number, 0.0)
        bucket = self._buckets.get(caravan.number)
        if (
            bucket is None
        ):  # it has saved up nothing: or many that are made one after the other would read faster than one
            bucket = self._buckets[caravan.number] = _Bucket()
            bucket.debt = 0.0 if allowed == float("inf") else allowed * _BURST_S
            bucket.at_us = now_us
        self._age(bucket, now_us, allowed)
        bucket.rate += size / _MEMORY_S
        bucket.debt += size

    def rate(self, caravan: AnyCaravan[Any], now_us: int) -> float:
        """Bytes a second, lately."""
        bucket = self._buckets.get(caravan.number)
        if bucket is None:
            return 0.0
        return bucket.rate * _remains(now_us - bucket.at_us)

    def allot(self, caravans: Caravans[Any, Any], now_us: int) -> None:
        """Anew, as the lead's rate and the limits are now."""
        self._buckets = {number: self._buckets[number] for number in self._buckets if number in caravans.all}
        lead = caravans.lead
        if lead is None:
            self._allowed = {}
            return
        config, pace = self.config, self.rate(lead, now_us)
        each = config.caravan_bytes_s or float("inf")
        total = config.total_bytes_s or float("inf")
        self._allowed = {lead.number: min(each, total)}
        left = max(0.0, total - pace)
        most = min(each, max(config.catch_up_most * pace, config.replay_bytes_s))
        least = min(most, config.catch_up_least * pace)
        trailing = sorted(caravans.all.values(), key=lambda one: one.at, reverse=True)
        for number, caravan in enumerate(one for one in trailing if one is not lead):
            share = min(most, left)
            if share < least and number:  # the nearest one gets what is left, however little
                share = 0.0
            self._allowed[caravan.number] = share
            left -= share

    def allowed(self, caravan: AnyCaravan[Any]) -> float:
        return self._allowed.get(caravan.number, float("inf"))

    def delay_us(self, caravan: AnyCaravan[Any], now_us: int) -> int | None:
        """How long until it may read; None: not before the next allotment."""
        allowed = self.allowed(caravan)
        if allowed <= 0:
            return None
        bucket = self._buckets.get(caravan.number)
        if bucket is None or allowed == float("inf"):
            return 0
        self._age(bucket, now_us, allowed)
        over_us = int((bucket.debt / allowed - _BURST_S) * 1e6)
        return over_us if over_us >= _LEAST_US else 0  # the rest is a debt that it keeps

    def _age(self, bucket: _Bucket, now_us: int, allowed: float) -> None:
        passed_us = max(0, now_us - bucket.at_us)  # a clock that was set back has not undone anything
        bucket.at_us = now_us
        bucket.rate *= _remains(passed_us)
        bucket.debt = 0.0 if allowed == float("inf") else max(0.0, bucket.debt - allowed * passed_us / 1e6)


def explained(
    caravans: Caravans[Any, Any], meter: Meter, caravan: AnyCaravan[Any], takes: bool, now_us: int
) -> str:
    """Why a caravan reads as fast as it does; `takes`: somebody aboard takes more."""
    config, lead = meter.config, caravans.lead
    allowed = meter.allowed(caravan)
    limits = [
        f"{name} {value:,.0f}"
        for name in ("caravan_bytes_s", "total_bytes_s")
        if (value := getattr(config, name))
    ]
    within = f", within {' and '.join(limits)}" if limits else ""
    if not takes:
        return "it waits: no subscriber aboard takes more"
    if caravan is lead or lead is None:
        return f"the lead reads as fast as the log grows{within}"
    if allowed <= 0 and not limits:
        return "it waits: the lead reads nothing, and replay_bytes_s is 0"
    if allowed <= 0:
        return (
            f"it waits: what {' and '.join(limits)} leave is less than {config.catch_up_least} times the"
            " lead's rate"
        )
    return (
        f"trailing: up to {config.catch_up_most:g} times the lead's {meter.rate(lead, now_us):,.0f} bytes/s"
        f"{f', or replay_bytes_s {config.replay_bytes_s:,.0f}' if config.replay_bytes_s else ''}{within}"
    )


def _remains(passed_us: int) -> float:
    return math.exp(-max(0, passed_us) / 1e6 / _MEMORY_S)

"""What a link is like, and which link joins two nodes."""

from collections.abc import Mapping

import msgspec

"""Microseconds in a millisecond."""


class LinkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of link; each direction of each pair of nodes has its own, unless `shared`."""

    latency_ms: float = 1.0
    """One way: half the round trip. 0.1–1 inside a data centre, 10–150 between regions."""
    jitter_ms: float = 0.0
    """Added to each message, uniformly between 0 and this; datagrams overtake each other by it."""
    bandwidth_mbit_s: float | None = None
    """Messages queue and are sent one after the other at this rate; none: no limit."""
    shared: bool = False
    """All pairs of the two regions go through one transmitter per direction, as over a leased line."""
    uplinks: bool = True
    """Whether it goes through the nodes' own uplinks and downlinks; not, if it has an interface of its
    own."""
    loss: float = 0.0
    """Chance that a datagram is lost; a channel's message is retransmitted instead, after a while."""
    duplicate: float = 0.0
    """Chance that a datagram arrives twice."""
    reorder: float = 0.0
    """Chance that a datagram is held back by up to `reorder_ms`."""
    reorder_ms: float = 50.0
    queue_ms: float = 200.0
    """A datagram that would wait longer than this for the transmitter is dropped (a router's buffer)."""
    backlog_mb: float = 64.0
    """A channel with more than this waiting to be sent breaks: a sender without limits is a bug to see."""
    detect_ms: float = 3000.0
    """How long a channel over a dead path lives before both ends are told: a keep-alive of 1 s, missed
    thrice."""
    retransmit_ms: float = 200.0
    """What one loss costs a channel's message: TCP's least retransmission timeout on Linux."""

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, between 0 and 1")
        if self.loss == 1:
            raise ValueError("loss = 1 is a cut: use a fault of kind `cut`")
        for name in ("latency_ms", "jitter_ms", "reorder_ms", "queue_ms", "detect_ms", "retransmit_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        for name in ("bandwidth_mbit_s", "backlog_mb"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0; leave it out for no limit")


LOOPBACK = LinkSpec(latency_ms=0.01)
"""A node to itself: through the kernel, never lost."""


def us_per_byte(mbit_s: float) -> float:
    return 8.0 / mbit_s


class Links:
    """Which link joins two regions: an exact pair if one is given, else inside or between regions."""

    def __init__(
        self,
        default: LinkSpec | None = None,
        *,
        within: LinkSpec | None = None,
        between: Mapping[tuple[str, str], LinkSpec] | None = None,
    ) -> None:
        self.default = default or LinkSpec()
        self._within = within or self.default
        self._between = dict(between or {})

    def spec(self, source: str, target: str) -> LinkSpec:
        """The link from one region to another; a pair given one way round holds both ways."""
        exact = self._between.get((source, target)) or self._between.get((target, source))
        if exact is not None:
            return exact
        return self._within if source == target else self.default

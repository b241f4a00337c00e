"""Settings of publishers, of the applications that they serve, and of subscribers."""

from typing import Annotated, Literal

import msgspec

from qanat.events.errors import LocalError
from qanat.events.filters import Filter, parse
from qanat.events.layout import FRAME_LIMIT
from qanat.events.position import Position
from qanat.protocols.caravans.limits import CaravanLimits

EARLIEST, LATEST, SNAPSHOT = "earliest", "latest", "snapshot"
NAME_BYTES = 200
"""Longest name of an application: it is part of a path in the coordinator and of metrics."""


class ApplicationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One application: its filter, its starting point and its timing."""

    where: str = ""
    """Filter of updates (docs/filters.md); empty: every update. A change takes effect with the next read."""
    start: str = LATEST
    """Where a new application begins: `earliest`, `latest`, a position `sequence:index`, or `snapshot` (the
    current rows, then every change). Later it resumes at its datamarkers."""
    mode: Literal["reliable", "real-time"] = "reliable"
    """`reliable` gets every update. `real-time` gets new updates only and a loss for those that it missed: it
    needs no reader behind the lead."""
    stale_ms: float = 0.0
    """Age above which updates are left out and reported as a loss, by the publisher's clock; 0: no limit."""
    tolerates_ms: float = 0.0
    """How long updates may be held back so that many are sent together, compressed; 0: each is sent at
    once."""
    columns: bool = False
    """Whether to send the columns of rows as attributes, beside the lines of JSON that also have them: for
    applications that use `attributes()`. Columns that a filter reads are always sent."""
    copies: tuple[str, ...] = ()
    """Publishers that may serve the application, in order of preference; none: any, in order of names. For
    datasets with several copies."""

    def __post_init__(self) -> None:
        if min(self.stale_ms, self.tolerates_ms) < 0:
            raise ValueError("stale_ms and tolerates_ms must not be negative")
        if self.start == SNAPSHOT and self.mode == "real-time":
            raise ValueError("a real-time application gets new updates only: it cannot start with a snapshot")
        try:
            found = self.filter
            if self.start not in (EARLIEST, LATEST, SNAPSHOT):
                Position.parse(self.start)
        except (LocalError, ValueError) as error:
            raise ValueError(str(error)) from error
        if found is not None and found.contextual:
            raise ValueError(
                f"{found} is for garbage collection: a filter of updates must look at one update alone"
            )

    @property
    def filter(self) -> Filter | None:
        return parse(self.where) if self.where else None


class PublisherConfig(CaravanLimits, frozen=True, forbid_unknown_fields=True):
    """The readers of a publisher, its subscribers and its flows."""

    marker_ms: float = 30_000.0
    """Time between two datamarkers of a subscriber, the paper's 30 s: a failure repeats half of it on
    average."""
    lease_ms: float = 3_000.0
    """Lease of a subscriber: how long it may work without hearing from the publisher. Afterwards its shards
    may go to another."""
    clock_rate_bound: float = 0.06
    """Largest error of any clock's rate: a subscriber counts its lease shorter by it, a publisher longer."""
    settle_ms: float = 200.0
    """Time after a subscriber's arrival in which others may arrive; then all of them get shards."""
    window_bytes: int = 16 << 20
    """Most bytes sent to a subscriber and not handled; a subscriber with a full window leaves its caravan.
    Some times the size of one read."""
    read_rows: int = 4_096
    """Updates per read of the log: some megabytes, so that the cost of each read vanishes."""
    balance: str = "weighted-random"
    """Rule that assigns shards to subscribers: `weighted-random`, `coordinated` (even over all publishers of
    a coordinator), or your own class, `module:Class`."""
    rebalance_ms: float = 60_000.0
    """Time between two checks of the balance of flows, the paper's minute; `weighted-random` moves flows only
    when a subscriber arrives."""
    near: int = 1_000
    """Sequence numbers of the log within which flows may share a caravan."""
    shards_max: int = 65_536
    """Most shards of one application. With more the application stops with an error and skips nothing."""
    subscribers_max: int = 1_000
    """Most subscribers of one application at a time; further ones are refused."""
    held_bytes: int = 1 << 20
    """Most bytes held back per subscriber of an application with `tolerates_ms`; more is sent at once. At
    most half a frame."""
    parts: Annotated[int, msgspec.Meta(extra={"fixed": True})] = 1
    """Parts into which the shards of an application are divided; one copy of the dataset serves each part.
    Set the same number at all copies and never change it: datamarkers are stored by part."""
    announce_ms: float = 2_000.0
    """Time between two announcements of a copy's log position: a preferred copy gets a part back only when
    its log has reached the part's datamarkers."""
    return_ms: float = 5_000.0
    """How long a preferred copy must have run before it gets parts back: longer than a restart that fails."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("marker_ms", "lease_ms", "announce_ms", "return_ms", "rebalance_ms"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
        for name in ("window_bytes", "read_rows", "shards_max", "subscribers_max", "parts", "held_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.held_bytes > FRAME_LIMIT // 2:
            raise ValueError(
                f"held_bytes must be at most {FRAME_LIMIT // 2:,}: held updates go out with the"
                f" last batch in one message, which has at most {FRAME_LIMIT:,} bytes"
            )
        if min(self.near, self.settle_ms) < 0:
            raise ValueError("near and settle_ms must not be negative")
        if not 0 <= self.clock_rate_bound < 1:
            raise ValueError("clock_rate_bound must be between 0 and 1")

    @property
    def lease_us(self) -> int:
        """As a subscriber counts it, from when it asked."""
        return int(self.lease_ms * 1000 * (1 - self.clock_rate_bound) / (1 + self.clock_rate_bound))

    def lease_within_us(self, outlasts_us: int) -> int:
        """As a subscriber counts it, if it must be over after so long on any clock."""
        return int((outlasts_us - 1) * ((1 - self.clock_rate_bound) / (1 + self.clock_rate_bound)) ** 2)

    @property
    def outlasts_us(self) -> int:
        """How long to wait, on any clock, until a lease that was granted now has surely run out."""
        return int(self.lease_ms * 1000 * (1 + self.clock_rate_bound) / (1 - self.clock_rate_bound)) + 1


class SubscriberConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One instance of an application."""

    application: str
    weight: float = 1.0
    """Share of the shards, relative to other instances: instances of weight 1 and 2 get a third and two
    thirds."""
    window_bytes: int = 16 << 20
    """Most bytes of each publisher that wait at the instance; the publisher may allow less."""
    retry_ms: float = 200.0
    """Time between two requests for a session with a publisher."""
    ahead: int = 2
    """Items handed to the application at a time: with two, it need not wait for the next."""

    def __post_init__(self) -> None:
        if not self.application or len(self.application.encode()) > NAME_BYTES or "/" in self.application:
            raise ValueError("an application needs a name of at most 200 bytes without /")
        if self.weight <= 0 or self.retry_ms <= 0:
            raise ValueError("weight and retry_ms must be above 0")
        if self.window_bytes < 1 or self.ahead < 1:
            raise ValueError("window_bytes and ahead must be at least 1")

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
"""Longest name of an application: it is a part of a path in the coordinator, and of metrics."""


class ApplicationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One application: what it wants of the log, from where on, and how soon."""

    where: str = ""
    """Filter of the one language; empty: every update. It may change while flows run, and counts from the
    next read on."""
    start: str = LATEST
    """Where a new application begins: `earliest`, `latest`, a position `sequence:index`, or with a
    `snapshot`: the rows as they are, then what changes. One that has begun goes on at its datamarkers."""
    mode: Literal["reliable", "real-time"] = "reliable"
    """`real-time` gets what is new and never what it missed, which it is told as a loss: it needs no reader
    behind the lead."""
    stale_ms: float = 0.0
    """Updates that were committed longer ago are left out, and told as a loss; 0: however old. By the
    publisher's clock."""
    tolerates_ms: float = 0.0
    """How long updates may be held so that many travel together, and compressed; 0: sent at once."""
    columns: bool = False
    """Whether the columns of rows are sent beside the lines of JSON, which have them too: for those who use
    `attributes()`. Columns that a filter looks at are sent in any case."""
    copies: tuple[str, ...] = ()
    """Publishers that may serve it, the preferred one first; none: any, by name. For datasets with several
    copies."""

    def __post_init__(self) -> None:
        if min(self.stale_ms, self.tolerates_ms) < 0:
            raise ValueError("stale_ms and tolerates_ms must not be negative")
        if self.start == SNAPSHOT and self.mode == "real-time":
            raise ValueError("a real-time application gets what is new: it does not begin with a snapshot")
        try:
            found = self.filter
            if self.start not in (EARLIEST, LATEST, SNAPSHOT):
                Position.parse(self.start)
        except (LocalError, ValueError) as error:
            raise ValueError(str(error)) from error
        if found is not None and found.contextual:
            raise ValueError(
                f"{found}: this is for garbage collection; a filter of updates looks at one alone"
            )

    @property
    def filter(self) -> Filter | None:
        return parse(self.where) if self.where else None


class PublisherConfig(CaravanLimits, frozen=True, forbid_unknown_fields=True):
    """How a publisher reads its log and serves its applications."""

    marker_ms: float = 30_000.0
    """Between two datamarkers of a subscriber, the paper's 30 s: what is sent again after a failure is half
    of it on average."""
    lease_ms: float = 3_000.0
    """How long a subscriber may work on what it has without hearing from the publisher; after it, its shards
    may go to another."""
    clock_rate_bound: float = 0.06
    """Largest error of any clock's rate; a subscriber counts its lease shorter, a publisher longer."""
    settle_ms: float = 200.0
    """After a subscriber came, others may come; then shards are given out, to all of them."""
    window_bytes: int = 16 << 20
    """Sent to a subscriber and not handled by it; one that has more gets off its caravan. Some times what one
    read gives."""
    read_rows: int = 4_096
    """Updates asked of the log at once: some megabytes, so that what each read costs vanishes."""
    balance: str = "weighted-random"
    """Which subscriber gets which shards: `weighted-random`, `coordinated` (evened out over all publishers of
    a coordinator), or a class of your own, `module:Class`."""
    rebalance_ms: float = 60_000.0
    """Between two looks whether flows are out of balance, the paper's minute; `weighted-random` moves flows
    only when a subscriber comes."""
    near: int = 1_000
    """Flows that are no more than so many sequence numbers of the log apart may share a caravan."""
    shards_max: int = 65_536
    """Shards of one application. With more it stands still, and says so: nothing is passed over."""
    subscribers_max: int = 1_000
    """Subscribers of one application at a time; one more is refused."""
    held_bytes: int = 1 << 20
    """For who tolerates staleness: held at most, per subscriber, before it is sent all the same. Half of what
    one message carries is the most."""
    parts: Annotated[int, msgspec.Meta(extra={"fixed": True})] = 1
    """Into how many parts the shards of an application are divided among the copies of a dataset; one copy
    serves a part. Must be the same at all copies, and stay: markers are kept by part."""
    announce_ms: float = 2_000.0
    """Between two words of a copy on how far its log is: one that others prefer gets a part back only when
    its log has what is marked."""
    return_ms: float = 5_000.0
    """How long a preferred copy must have been back before parts are given to it: longer than a restart that
    fails."""

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
                f"held_bytes is at most {FRAME_LIMIT // 2:,}: what is held goes out as one message, with the"
                f" batch that comes last, and that carries {FRAME_LIMIT:,} bytes"
            )
        if min(self.near, self.settle_ms) < 0:
            raise ValueError("near and settle_ms must not be negative")
        if not 0 <= self.clock_rate_bound < 1:
            raise ValueError("clock_rate_bound lies between 0 and 1")

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
    """Its share of the shards, compared with other instances: two of weight 1 and 2 get a third and two
    thirds."""
    window_bytes: int = 16 << 20
    """At most so much of each publisher waits here; the publisher may allow less."""
    retry_ms: float = 200.0
    """Between two attempts to be welcomed by a publisher."""
    ahead: int = 2
    """What the application is handed before it is done with the one before: with two, it need not wait for
    the next."""

    def __post_init__(self) -> None:
        if not self.application or len(self.application.encode()) > NAME_BYTES or "/" in self.application:
            raise ValueError("an application has a name of at most 200 bytes, without /")
        if self.weight <= 0 or self.retry_ms <= 0:
            raise ValueError("weight and retry_ms must be above 0")
        if self.window_bytes < 1 or self.ahead < 1:
            raise ValueError("window_bytes and ahead must be at least 1")

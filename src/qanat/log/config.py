"""Settings of one stream's log. Every default has its unit in its name and its reason beside it."""

from typing import Literal

import msgspec

from qanat.events.errors import LocalError
from qanat.events.layout import FRAME_LIMIT

KIB, MIB = 1024, 1024 * 1024


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Garbage-collection policy of a stream, beside GC events (Sprinkler, section 3.4). You can combine all.

    Under a policy every event is a garbage-collection event with the policy's predicate, so every region
    that holds the same events collects the same ones.
    """

    by_key: bool = False
    """An event collects every earlier event of its key. Events without a key collect nothing."""
    keep_last: int | None = None
    """Number of events to keep: event i collects all events up to i - keep_last."""
    age_ms: int | None = None
    """An event with time t collects earlier events with a time before t - age_ms."""

    def __post_init__(self) -> None:
        if self.keep_last is not None and self.keep_last < 1:
            raise LocalError(f"keep_last must be at least 1 event, not {self.keep_last}")
        if self.age_ms is not None and self.age_ms < 1:
            raise LocalError(f"age_ms must be at least 1 ms, not {self.age_ms}")


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a stream's log."""

    mode: Literal["always", "interval", "memory"] = "always"
    """`always`: an append is acknowledged and readable after a sync. `interval`: at once; the log syncs every
    `interval_ms`. `memory`: nothing is on disk."""
    interval_ms: int = 50
    """Most milliseconds of events that a crash loses with `interval`. A sync costs 0.1 to 10 ms, at most a
    fifth of a slow disk's time."""
    segment_bytes: int = 64 * MIB
    """Size at which a new segment begins. Small enough to rewrite in a fraction of a second, large enough
    that a terabyte is 16,384 files."""
    index_stride_bytes: int = 64 * KIB
    """Log bytes per index entry of 33 bytes: 528 KiB of memory per GiB; a read scans at most this much."""
    tail_bytes: int = 8 * MIB
    """Newest bytes kept in memory: they serve subscribers at the live edge without the page cache."""
    sources_max: int = 65_536
    """Sources whose highest position the log remembers, about 200 bytes each. Beyond this number it forgets
    the temporary source (`~…`) that has been silent for longest; it never forgets a named one, whose retries
    would then be stored twice."""
    policy: Policy = Policy()
    indexed: tuple[str, ...] = ()
    """Attributes with an index, so that `name = value` predicates find their matches without a scan."""
    index_keys_max: int = 1_000_000
    """Keys in the index, about 115 bytes each for a key of 10 bytes. At the limit the index drops the keys
    whose last event is oldest: their events stay until another predicate collects them. 0 turns the index
    off."""
    index_events_max: int = 16_000_000
    """Events linked to the previous event of their key (4 bytes each) or to an indexed attribute's value (8
    bytes each). A scan in the background finds older events."""
    rewrite_dead_fraction: float = 0.5
    """Share of dead rows at which a segment is rewritten: at 0.5 the log rewrites at most one byte for each
    byte that it frees."""
    rewrite_batch_bytes: int = 256 * KIB
    """Size of the batches into which live events are joined: large enough for bulk work, small enough for one
    read."""
    retain_bytes: int | None = None
    """If set, the log drops its oldest segments beyond this size without tombstones, and tells readers the
    lost range. If not set: 256 MiB in `memory` mode, no limit otherwise."""
    ahead_ms: int = 86_400_000
    """How far a published event's time may be ahead of the server's clock: a day, more than time zones
    differ. The server refuses later times, because policies and readers that go by time would take them for
    the present."""
    retain_age_ms: int | None = None
    """If set, the log also drops segments whose newest event is this much older than the stream's newest."""

    def __post_init__(self) -> None:
        limits = {
            "interval_ms": (1, 3_600_000),
            "segment_bytes": (64 * KIB, 4 * 1024 * MIB),
            "index_stride_bytes": (KIB, 16 * MIB),
            "tail_bytes": (0, 16 * 1024 * MIB),
            "sources_max": (1, 16_777_216),
            "index_keys_max": (0, 1 << 32),
            "index_events_max": (0, 1 << 40),
            "rewrite_batch_bytes": (KIB, FRAME_LIMIT // 4),
            "retain_bytes": (64 * KIB, 1 << 60),
            "retain_age_ms": (1, 1 << 50),
            "ahead_ms": (0, 1 << 50),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise LocalError(f"{name} = {value} is outside {low}..{high}")
        if self.policy.by_key and not self.index_keys_max:
            raise LocalError("by_key needs the index of keys: set index_keys_max above 0")
        if not 0.01 <= self.rewrite_dead_fraction <= 1.0:
            raise LocalError(f"rewrite_dead_fraction = {self.rewrite_dead_fraction} is outside 0.01..1")

    @property
    def retained_bytes(self) -> int | None:
        """`retain_bytes`, with the default that bounds memory when there is no disk."""
        return 256 * MIB if self.retain_bytes is None and self.mode == "memory" else self.retain_bytes

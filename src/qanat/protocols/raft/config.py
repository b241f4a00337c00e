"""Settings of an ensemble that keeps a log."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class RaftConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    beat_ms: float = 100.0
    """Between two messages of a leader that has nothing to say: a sixth of `election_ms`, so that five may be
    late. A member costs 20 small messages a second."""
    election_ms: float = 600.0
    """Silence after which a leader is taken for gone; who tries to succeed waits between this and twice this,
    drawn by chance. Well below a session's timeout (2 s), so that sessions outlive a leader that stands
    still; a leader whose process dies is missed at once."""
    message_bytes: int = 256 * KIB
    """Records in one message, unless one alone is larger, and bytes of a snapshot in one: a quarter of what a
    frame's control part may have."""
    window_bytes: int = 4 * MIB
    """Sent to one member and not acknowledged: what a gigabit holds at 32 ms, and all that a dead member
    costs."""
    window_messages: int = 64
    """And no more messages than these: bounds what is remembered when records are tiny."""
    pending_records: int = 10_000
    """Proposed and not yet committed. A leader with more gives its office up: whoever asked learns that it
    may or may not have happened."""
    pending_bytes: int = 32 * MIB
    """The same in bytes."""
    log_bytes: int = 1 * MIB
    """Committed records after which the log before them becomes a snapshot, if they are also more than that
    has: then writing snapshots costs no more than writing records."""
    snapshot_bytes: int = 256 * MIB
    """Largest snapshot that is taken from a leader: four times what a coordinator's tree may hold."""

    def __post_init__(self) -> None:
        if self.beat_ms <= 0 or self.election_ms < 2 * self.beat_ms:
            raise ValueError("beat_ms must be above 0, election_ms at least twice beat_ms")
        if self.message_bytes > 512 * KIB:
            raise ValueError(
                "message_bytes must not be above 524288: a message's control part has a megabyte"
            )
        for name in (
            "message_bytes",
            "window_bytes",
            "window_messages",
            "pending_records",
            "pending_bytes",
            "log_bytes",
            "snapshot_bytes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")

    @property
    def beat_us(self) -> int:
        return round(self.beat_ms * 1000)

    @property
    def election_us(self) -> int:
        return round(self.election_ms * 1000)

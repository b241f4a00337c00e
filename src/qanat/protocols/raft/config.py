"""Settings of an ensemble that keeps a log."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class RaftConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Raft, by which the coordinators of an ensemble agree."""

    beat_ms: float = 100.0
    """Time between two messages of an idle leader: a sixth of `election_ms`, so that five may be late. A
    member costs 20 small messages a second."""
    election_ms: float = 600.0
    """Silence after which a member stands for election; each waits a random time between this and twice this.
    Well below a session's timeout (2 s), so that sessions outlive a leader that hangs. Members notice at once
    if a leader's process dies."""
    message_bytes: int = 256 * KIB
    """Most bytes of records in one message, unless one record is larger, or of a snapshot: a quarter of a
    frame's largest control part."""
    window_bytes: int = 4 * MIB
    """Most bytes sent to one member and not acknowledged: a gigabit per second times 32 ms. A dead member
    costs no more."""
    window_messages: int = 64
    """Most unacknowledged messages to one member: bounds memory when records are tiny."""
    pending_records: int = 10_000
    """Most records proposed and not yet committed. A leader with more steps down and answers its clients that
    their changes may or may not have happened."""
    pending_bytes: int = 32 * MIB
    """Most bytes of records proposed and not yet committed."""
    log_bytes: int = 1 * MIB
    """Bytes of committed records after which they become a snapshot, if they are also larger than the last
    snapshot: then writing snapshots costs no more than writing records."""
    snapshot_bytes: int = 256 * MIB
    """Largest snapshot that a member accepts from a leader: four times a coordinator's largest tree."""

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

"""Settings of one replica's part in its chain."""

import msgspec


class ChainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    replicas: int = 2
    """Wanted length, the paper's f + 1: two survive the loss of one."""
    hello_ms: float = 100.0
    """Between two attempts to be welcomed by the predecessor: some round trips within a region."""
    ack_ms: float = 250.0
    """A successor that has nothing new says so this often."""
    failure_ms: float = 3_000.0
    """Silence of the successor after which it is reported as failed. Above the session's timeout, so that a
    dead one is found by its session first; this is for two that reach the coordinator but not each other."""
    vouch_ms: float = 5_000.0
    """How often it is written down, apart from the logs, how far they are on disk: a log that is an older
    copy than that is noticed. Each time costs what one change of the chain does, two syncs of a small
    file."""
    frame_bytes: int = 1 << 20
    """At most this much in one message, unless one batch alone is larger."""
    window_bytes: int = 4 << 20
    """Sent and not acknowledged by the successor, over all streams; bounds what waits in channels."""
    handover_bytes: int = 1 << 20
    """The tail stops serving, to hand over, once the joining replica lacks no more than this."""
    tickets_max: int = 10_000
    """Publishes that wait for their answer; one more is refused."""
    eras_max: int = 1_024
    """Changes of the head that are remembered. A replica that was away for longer starts from nothing."""

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= 64:
            raise ValueError("replicas lies between 1 and 64")
        for name in ("hello_ms", "ack_ms", "failure_ms", "vouch_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
        for name in ("frame_bytes", "window_bytes", "tickets_max", "eras_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.failure_ms < 2 * self.ack_ms:
            raise ValueError("failure_ms must be at least twice ack_ms, or one late message is a failure")

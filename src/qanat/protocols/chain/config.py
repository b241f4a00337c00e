"""Settings of one replica's part in its chain."""

import msgspec


class ChainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The chain of replicas of a region."""

    replicas: int = 2
    """Wanted length of the chain, the paper's f + 1: two replicas survive the loss of one."""
    hello_ms: float = 100.0
    """Time between two attempts of a replica to join its predecessor: some round trips within a region."""
    ack_ms: float = 250.0
    """Time between two acknowledgements of an idle successor."""
    failure_ms: float = 3_000.0
    """Silence of the successor after which a replica reports it as failed. Above the session's timeout, so
    that the coordinator finds a dead replica first: this is for two replicas that reach the coordinator but
    not each other."""
    vouch_ms: float = 5_000.0
    """How often a replica records, apart from the logs, how far they are on disk: so it notices a log that
    was replaced by an older copy. Each time costs two syncs of a small file, as one change of the chain
    does."""
    frame_bytes: int = 1 << 20
    """Most bytes in one message, unless one batch is larger."""
    window_bytes: int = 4 << 20
    """Most bytes sent and not acknowledged by the successor, over all streams; bounds the queues of
    channels."""
    handover_bytes: int = 1 << 20
    """Backlog of a joining replica at which the tail stops serving and hands over."""
    tickets_max: int = 10_000
    """Most publishes that wait for their answer; further ones are refused."""
    eras_max: int = 1_024
    """Changes of the head that replicas remember. A replica that was away for longer starts with empty
    logs."""

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= 64:
            raise ValueError("replicas must be between 1 and 64")
        for name in ("hello_ms", "ack_ms", "failure_ms", "vouch_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
        for name in ("frame_bytes", "window_bytes", "tickets_max", "eras_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.failure_ms < 2 * self.ack_ms:
            raise ValueError(
                "failure_ms must be at least twice ack_ms, because one late message is no failure"
            )

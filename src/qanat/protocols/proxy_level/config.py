"""Settings of the Proxy-Level Protocol."""

import msgspec

KIB = 1024


class ProxyLevelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The protocol by which proxies of regions send streams to each other."""

    advertise_ms: float = 200.0
    """Time between two advertisements, give or take a tenth. A proxy notices a dead source after one or two
    of them. One costs about 20 bytes per stream: with 100 streams 10 kB/s to each region."""
    c_event_s: float = 1.0
    """The paper's C, in events times seconds. A source without progress for t seconds loses the stream to one
    that is more than C/t events ahead: with 1, ten events after 0.1 s, one event after a second. Zero
    switches at the slightest lead; a large C keeps a dead source for long in a stream of few events."""
    stall_ms: float = 2000.0
    """Time without events after which a proxy gives up a source that has announced more; it doubles with each
    time in a row, up to 64-fold. Well above a round trip between regions (0.3 s) and some retransmissions."""
    window_bytes: int = 4096 * KIB
    """Most bytes sent to one subscriber and not acknowledged: a gigabit per second times 32 ms. A dead
    subscriber costs no more."""
    peer_window_bytes: int = 32 * 1024 * KIB
    """The same for all streams of one subscriber together: half of the queue at which a connection is
    closed."""
    message_bytes: int = 256 * KIB
    """Most bytes in one message, unless one batch is larger: a sixteenth of the window, so that
    acknowledgements flow."""
    window_messages: int = 1024
    """Most unacknowledged messages: bounds memory when batches are tiny."""
    pending_publishes: int = 10_000
    """Most publishes that wait for the disk; further ones are refused. One second's worth at 10,000 a
    second."""

    def __post_init__(self) -> None:
        if self.advertise_ms <= 0 or self.stall_ms <= 0 or self.c_event_s < 0:
            raise ValueError("advertise_ms and stall_ms must be above 0, c_event_s not negative")
        for name in (
            "window_bytes",
            "peer_window_bytes",
            "message_bytes",
            "window_messages",
            "pending_publishes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")

"""Settings of the Proxy-Level Protocol."""

import msgspec

KIB = 1024


class ProxyLevelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    advertise_ms: float = 200.0
    """Between two advertisements, give or take a tenth. A dead source is noticed after one or two of them,
    and one costs about 20 bytes per stream: with 100 streams 10 kB/s to each region."""
    c_event_s: float = 1.0
    """The paper's C, in events times seconds. A source that has not got on for t seconds loses the stream to
    one that is more than C/t events ahead of it: with 1, ten events after 0.1 s, one event after a second.
    Zero switches at the slightest lead; much more keeps a dead source for long in a stream of few events."""
    stall_ms: float = 2000.0
    """A source that promised more than we have and sent nothing for this long is given up, and for twice as
    long after each time in a row. Well above a round trip between regions (0.3 s), and above a retransmission
    or three."""
    window_bytes: int = 4096 * KIB
    """Sent to one subscriber and not acknowledged. Bandwidth times round trip of a gigabit at 32 ms; the one
    thing that a dead subscriber costs."""
    peer_window_bytes: int = 32 * 1024 * KIB
    """The same, of all streams of one subscriber together: half of what a connection queues before it is cut
    off."""
    message_bytes: int = 256 * KIB
    """Events in one message, unless one batch alone is larger: a sixteenth of the window, so that
    acknowledgements flow."""
    window_messages: int = 1024
    """And not acknowledged either: bounds what is remembered when batches are tiny."""
    pending_publishes: int = 10_000
    """Publishes that wait for the disk; further ones are refused. A second of them at 10,000 a second."""

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

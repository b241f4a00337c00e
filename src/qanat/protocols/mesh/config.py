"""Settings of the region's dissemination."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class MeshConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mesh through which clients of a region pass events on to each other."""

    fanout: int = 4
    """Neighbours that a member notifies of progress (the paper's F). Fewer make paths longer, more spend a
    client's uplink on few events; the paper finds 4 best."""
    shuffle_ms: float = 30.0
    """Time after which a member chooses F other neighbours at random from its view; the paper's value for its
    latency figures."""
    proxy_shuffle_ms: float = 30.0
    """The same at the proxy, which always sends F copies of every event. A shorter time feeds more members in
    turn, so that no member passes on every event for long."""
    idle_ms: float = 1000.0
    """Longest time between shuffles. While no events come, each shuffle sends all counters and the time
    doubles up to this value: a member that missed the last event of a burst learns of it within about a
    second."""
    notify_ms: float = 5.0
    """Least time between two NOTIFYs to the same neighbours: the first goes at once, a later one covers all
    events since. A few one-way latencies of a region (1 ms), so that load grows with batches, not with
    events."""
    buffer_bytes: int = 8 * MIB
    """Received events that a client keeps for neighbours; it discards the oldest. At 1 Gbit/s it holds the
    last 67 ms, many one-way latencies."""
    early_bytes: int = 16 * MIB
    """Events that a client keeps because earlier ones are missing. When half of it is full, the client
    requests only the next events: at 200 Mbit/s that is 300 ms of events, some times as long as the slowest
    answer takes."""
    answer_bytes: int = 256 * KIB
    """Most bytes in one EVENTS, but at least one batch: 2 ms of a 1 Gbit/s uplink, so that one slow neighbour
    does not delay the others for long."""
    request_events: int = 262_144
    """Most sequence numbers in one REQUEST; bounds how far requests run ahead of deliveries."""
    requests: int = 32
    """Most open requests or known missing parts of a stream at a time, and as many gaps between them."""
    older_after: int = 4
    """Neighbours that must have announced old events of a gap before a member requests them. Otherwise a
    member that becomes a neighbour of a leading one would request everything that it lacks; a moment later it
    hears of most of these events as news, from members with less load."""
    neighbour_requests: int = 1
    """Open requests at one neighbour per stream. A slow neighbour has too many requests already, and others
    soon have the same events. With two, a region with F = 8 delivered a third less under the same load."""
    proxy_requests: int = 2
    """Open requests at the proxy per stream; further ones wait at the client."""
    answer_ms: float = 100.0
    """Time without an answer, checked once per such time, after which a member requests the events from
    another neighbour. Fifty round trips; a full answer takes 2 ms to send."""
    proxy_answers: int = 50
    """Times `answer_ms` until a member repeats a request to the proxy (5 s). A broken channel is noticed at
    once, so silence means that the proxy is busy; repeating would only add load."""
    attached_limit: int = 10_000
    """Most clients that accept no connections and that one proxy notifies; it refuses others, which ask again
    after `idle_ms`."""

    def __post_init__(self) -> None:
        numbers = (
            "fanout",
            "buffer_bytes",
            "early_bytes",
            "answer_bytes",
            "request_events",
            "requests",
            "older_after",
            "neighbour_requests",
            "proxy_requests",
            "proxy_answers",
            "attached_limit",
        )
        for name in numbers:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("shuffle_ms", "proxy_shuffle_ms", "notify_ms", "answer_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
        if self.idle_ms < max(self.shuffle_ms, self.proxy_shuffle_ms):
            raise ValueError("idle_ms must not be below shuffle_ms and proxy_shuffle_ms")

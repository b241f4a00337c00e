"""Settings of the region's dissemination."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class MeshConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fanout: int = 4
    """Neighbours that hear of progress (the paper's F). Fewer make paths long, more spend a client's uplink
    on few events: the paper finds 4 best."""
    shuffle_ms: float = 30.0
    """Time after which another random F of the view are chosen; the paper's setting for its latency
    figures."""
    proxy_shuffle_ms: float = 30.0
    """The same at the proxy, which sends F copies of everything whatever this is; a shorter time lets it feed
    more members one after the other, so that none of them has to pass on everything for long."""
    idle_ms: float = 1000.0
    """While nothing is new, each shuffle tells its F all counters and the time between shuffles doubles, up
    to this. So whoever missed the last event of a burst hears of it within about a second."""
    notify_ms: float = 5.0
    """Least time between two NOTIFYs to the same neighbours: the first goes at once, later ones say all that
    came meanwhile. A few one-way latencies of a region (1 ms), so load goes by batches, not by events."""
    buffer_bytes: int = 8 * MIB
    """What a client keeps of the received, for neighbours; the oldest is discarded. At 1 Gbit/s it holds the
    last 67 ms, which is many one-way latencies."""
    early_bytes: int = 16 * MIB
    """What a client keeps of events that came before their turn. When half of it is full, only what is next
    is asked for: at 200 Mbit/s that is 300 ms of events, some times what the slowest piece of them takes."""
    answer_bytes: int = 256 * KIB
    """At most so much in one EVENTS (but at least one batch): 2 ms of a 1 Gbit/s uplink, so that one slow
    neighbour does not hold up the others for long."""
    request_events: int = 262_144
    """At most so many sequence numbers in one REQUEST; bounds how far requests run ahead of deliveries."""
    requests: int = 32
    """Parts of a stream that may be asked for, or known to be missing, at a time; and as many gaps between
    them."""
    older_after: int = 4
    """So many neighbours must have said that they have a gap's events, and not as news, before one is asked
    for them. Whoever comes among the F of a leading member would otherwise ask it for all it lags behind by;
    of most events it hears as news a moment later, from members that are less sought after."""
    neighbour_requests: int = 1
    """Requests open at one neighbour per stream. Whoever is slow to answer has too many who ask: what it
    would be asked for next, others have in a moment. With two, a region with F = 8 delivered a third less
    under the same load."""
    proxy_requests: int = 2
    """Requests open at the proxy per stream; what more is missing waits here, not there."""
    answer_ms: float = 100.0
    """A neighbour that has not answered by then (or within twice that: it is looked at once per such time) is
    given up, and the next asked that has the same. Fifty round trips; a full answer takes 2 ms to send."""
    proxy_answers: int = 50
    """Times `answer_ms` until the proxy is asked again (5 s). A broken channel is told at once, so silence
    means that it is busy with many who ask; asking again would only add to that."""
    attached_limit: int = 10_000
    """Clients without a way in that one proxy notifies; others are refused and ask again after `idle_ms`."""

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

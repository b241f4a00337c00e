"""What streams count, at /metrics: the same of a server's and of a replica's."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from qanat.nodes.served_stream import ServedStream
from qanat.runtime.metrics import Metrics

_S = TypeVar("_S", bound=ServedStream)


def export_streams(
    metrics: Metrics,
    streams: Callable[[], Mapping[str, _S]],
    more: Mapping[str, tuple[str, Callable[[_S], int]]] | None = None,
) -> None:
    """Counters and gauges of each stream there is when somebody looks; `more` are gauges: what each says, and its number."""

    def of_each(read: Callable[[_S], int]) -> Any:
        return lambda: [((name,), float(read(stream))) for name, stream in streams().items()]

    counters: dict[str, tuple[str, Callable[[_S], int]]] = {
        "published_events": ("Events stored for publishers here.", lambda s: s.published_events),
        "published_bytes": ("Bytes of batches taken from publishers.", lambda s: s.published_bytes),
        "duplicate_events": ("Events dropped, their position was had.", lambda s: s.duplicate_events),
        "delivered_bytes": ("Bytes of batches given to subscribers.", lambda s: s.delivered_bytes),
    }
    gauges: dict[str, tuple[str, Callable[[_S], int]]] = {
        "next": ("Next sequence number.", lambda s: s.log.next),
        "durable": ("Highest sequence number that survives a power cut here.", lambda s: s.log.durable),
        "subscribers": ("Subscriptions.", lambda s: len(s.subscribers)),
        "largest_lag": ("Events that the slowest subscription is behind.", lambda s: s.largest_lag()),
        **(more or {}),
    }
    for name, (what, read) in counters.items():
        metrics.counter_of(f"stream_{name}", what, ("stream",), of_each(read))
    for name, (what, read) in gauges.items():
        metrics.gauge_of(f"stream_{name}", what, ("stream",), of_each(read))

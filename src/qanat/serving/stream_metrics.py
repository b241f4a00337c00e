"""What streams count, at /metrics: the same of a server's and of a replica's."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from qanat.runtime.metrics import Metrics
from qanat.serving.served_stream import ServedStream

_S = TypeVar("_S", bound=ServedStream)


def export_streams(
    metrics: Metrics,
    streams: Callable[[], Mapping[str, _S]],
    more: Mapping[str, tuple[str, Callable[[_S], int]]] | None = None,
) -> None:
    """Counters and gauges of each stream there is when somebody looks; `more` are gauges: what each says, and
    its number."""

    def of_each(read: Callable[[_S], int]) -> Any:
        return lambda: [((name,), float(read(stream))) for name, stream in streams().items()]

    counters: dict[str, tuple[str, Callable[[_S], int]]] = {
        "published_events": ("Events stored for publishers here.", lambda s: s.published_events),
        "published_bytes": ("Bytes of batches taken from publishers.", lambda s: s.published_bytes),
        "duplicate_events": ("Events dropped, their position was had.", lambda s: s.duplicate_events),
        "delivered_bytes": ("Bytes of batches given to subscribers.", lambda s: s.delivered_bytes),
        "caravan_reads": ("Reads of the log by caravans, each for all aboard.", lambda s: s.trailing.reads),
        "caravan_read_bytes": ("Bytes that caravans read.", lambda s: s.trailing.read_bytes),
        "caravan_sent_bytes": ("Bytes sent to those aboard.", lambda s: s.trailing.sent_bytes),
        "caravan_losses": ("Parts of the log that were gone when one came by.", lambda s: s.trailing.losses),
        "caravan_plans": ("Looks at who should travel together.", lambda s: s.trailing.caravans.plans),
        "caravan_splits": ("Caravans made.", lambda s: s.trailing.caravans.splits),
        "caravan_merges": (
            "Caravans that came to another and joined it.",
            lambda s: s.trailing.caravans.merges,
        ),
        "caravan_moves": ("Subscribers that changed or left a caravan.", lambda s: s.trailing.caravans.moves),
        "caravan_fallen": ("Subscribers that could not keep up with theirs.", lambda s: s.trailing.fallen),
        "caravan_arrived": ("Subscribers that came to the edge in one.", lambda s: s.trailing.arrived),
        "alone_reads": ("Reads of the log for one subscriber alone.", lambda s: s.alone_reads),
        "alone_bytes": ("Bytes read for one subscriber alone.", lambda s: s.alone_bytes),
    }
    gauges: dict[str, tuple[str, Callable[[_S], int]]] = {
        "next": ("Next sequence number.", lambda s: s.log.next),
        "durable": ("Highest sequence number that survives a power cut here.", lambda s: s.log.durable),
        "caravans": ("Caravans, the live edge included.", lambda s: len(s.trailing.caravans.all)),
        "trailing": ("Subscriptions that travel or wait for a caravan.", lambda s: len(s.trailing.laggards)),
        "subscribers": ("Subscriptions.", lambda s: len(s.subscribers)),
        "largest_lag": ("Events that the slowest subscription is behind.", lambda s: s.largest_lag()),
        **(more or {}),
    }
    for name, (what, read) in counters.items():
        metrics.counter_of(f"stream_{name}", what, ("stream",), of_each(read))
    for name, (what, read) in gauges.items():
        metrics.gauge_of(f"stream_{name}", what, ("stream",), of_each(read))

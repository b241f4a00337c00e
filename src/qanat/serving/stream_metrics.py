"""The metrics of streams at /metrics, the same for a server and for a replica."""

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
    """Exports counters and gauges of each stream; `more` are gauges: name, help text and reader of the
    number."""

    def of_each(read: Callable[[_S], int]) -> Any:
        return lambda: [((name,), float(read(stream))) for name, stream in streams().items()]

    counters: dict[str, tuple[str, Callable[[_S], int]]] = {
        "published_events": ("Events stored for publishers.", lambda s: s.published_events),
        "published_bytes": ("Bytes of batches received from publishers.", lambda s: s.published_bytes),
        "duplicate_events": (
            "Events dropped because their position was stored already.",
            lambda s: s.duplicate_events,
        ),
        "delivered_bytes": ("Bytes of batches delivered to subscribers.", lambda s: s.delivered_bytes),
        "caravan_reads": (
            "Reads of the log by caravans, each for all its subscribers.",
            lambda s: s.trailing.reads,
        ),
        "caravan_read_bytes": ("Bytes read by caravans.", lambda s: s.trailing.read_bytes),
        "caravan_sent_bytes": ("Bytes sent to subscribers in caravans.", lambda s: s.trailing.sent_bytes),
        "caravan_losses": (
            "Parts of the log that were gone before a caravan read them.",
            lambda s: s.trailing.losses,
        ),
        "caravan_plans": ("Plans of the caravans made.", lambda s: s.trailing.caravans.plans),
        "caravan_splits": ("Caravans created.", lambda s: s.trailing.caravans.splits),
        "caravan_merges": (
            "Caravans merged into another.",
            lambda s: s.trailing.caravans.merges,
        ),
        "caravan_moves": ("Subscribers that changed or left a caravan.", lambda s: s.trailing.caravans.moves),
        "caravan_fallen": (
            "Subscribers that could not keep up with their caravan.",
            lambda s: s.trailing.fallen,
        ),
        "caravan_arrived": (
            "Subscribers that reached the live edge in a caravan.",
            lambda s: s.trailing.arrived,
        ),
        "alone_reads": ("Reads of the log for one subscriber alone.", lambda s: s.alone_reads),
        "alone_bytes": ("Bytes read for one subscriber alone.", lambda s: s.alone_bytes),
    }
    gauges: dict[str, tuple[str, Callable[[_S], int]]] = {
        "next": ("Next sequence number.", lambda s: s.log.next),
        "durable": ("Highest sequence number that survives a power cut here.", lambda s: s.log.durable),
        "caravans": (
            "Caravans of the stream, the live edge included.",
            lambda s: len(s.trailing.caravans.all),
        ),
        "trailing": ("Subscriptions in a caravan or waiting for one.", lambda s: len(s.trailing.laggards)),
        "subscribers": ("Subscriptions of the stream.", lambda s: len(s.subscribers)),
        "largest_lag": ("Events that the slowest subscription lags behind.", lambda s: s.largest_lag()),
        **(more or {}),
    }
    for name, (what, read) in counters.items():
        metrics.counter_of(f"stream_{name}", what, ("stream",), of_each(read))
    for name, (what, read) in gauges.items():
        metrics.gauge_of(f"stream_{name}", what, ("stream",), of_each(read))

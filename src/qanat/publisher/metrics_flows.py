"""The metrics of a publisher by application and by subscriber."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from qanat.protocols.publisher.flows import Served
from qanat.protocols.publisher.link import Link
from qanat.publisher.status import behind, end_of, lag_s
from qanat.runtime.clocks import wall_clock_us
from qanat.runtime.metrics import Metrics

if TYPE_CHECKING:
    from qanat.publisher.node import PublisherNode

Numbers = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
ITEMS = ("Notice", "Updates", "Token", "Loss")
_MOST = 1_000
"""Most subscribers with a label of their own: a collector keeps every label that it has seen."""


def export_flows(metrics: Metrics, node: "PublisherNode") -> None:
    def each(read: Callable[[Served], float]) -> Numbers:
        return lambda: (
            []
            if node.machine is None
            else [((served.name,), float(read(served))) for served in node.machine.served.values()]
        )

    def links(read: Callable[[Link], float]) -> Numbers:
        return lambda: (
            []
            if node.machine is None
            else [
                ((link.served.name, str(link.address)), float(read(link)))
                for link in list(node.machine.links.values())[:_MOST]
            ]
        )

    def items() -> Iterable[tuple[tuple[str, ...], float]]:
        if node.machine is None:
            return []
        return [
            ((served.name, kind.lower()), float(served.counts[kind]))
            for served in node.machine.served.values()
            for kind in ITEMS
        ]

    def rear(served: Served) -> float:
        if node.machine is None:
            return 0.0
        end = end_of(node.machine)
        return max((behind(one.position, end) for one in served.travellers), default=0)

    def unmarked(served: Served) -> float:
        if node.machine is None:
            return 0.0
        end = end_of(node.machine)
        return max((behind(flow.marked, end) for flow in served.flows.values()), default=0)

    counter, gauge = metrics.counter_of, metrics.gauge_of
    of: tuple[str, ...] = ("application",)
    gauge(
        "publisher_applications",
        "Applications served.",
        (),
        lambda: [] if node.machine is None else [((), float(len(node.machine.served)))],
    )
    gauge("application_behind", "Sequence numbers that the last flow is behind the lead.", of, each(rear))
    gauge(
        "application_lag_seconds",
        "Seconds that the last flow is behind; NaN if unknown.",
        of,
        each(_lag),
    )
    gauge(
        "application_unmarked",
        "Sequence numbers since the oldest datamarker: a crash repeats these.",
        of,
        each(unmarked),
    )
    gauge("application_flows", "Flows, one for each shard.", of, each(lambda s: len(s.flows)))
    gauge(
        "application_flows_unassigned",
        "Flows without a subscriber.",
        of,
        each(lambda s: sum(f.link is None for f in s.flows.values())),
    )
    gauge(
        "application_flows_waiting",
        "Flows that wait for a caravan.",
        of,
        each(lambda s: sum(f.caravan is None for f in s.flows.values())),
    )
    gauge(
        "application_flows_leaving",
        "Flows that move to another subscriber.",
        of,
        each(lambda s: sum(f.leaving for f in s.flows.values())),
    )
    gauge(
        "application_flows_untold",
        "Flows with an unacknowledged loss.",
        of,
        each(lambda s: sum(f.untold is not None for f in s.flows.values())),
    )
    gauge(
        "application_parts",
        "Parts of the application served by this publisher.",
        of,
        each(lambda s: len(s.scouts)),
    )
    gauge(
        "application_caravans",
        "Caravans with flows of the application.",
        of,
        each(lambda s: len({o.caravan.number for o in s.travellers if o.caravan})),
    )
    gauge("application_subscribers", "Subscribers of the application.", of, each(lambda s: len(s.links)))
    gauge(
        "application_subscribers_open",
        "Subscribers that are connected.",
        of,
        each(lambda s: sum(k.open for k in s.links.values())),
    )
    gauge(
        "application_subscribers_full",
        "Subscribers whose window is full.",
        of,
        each(lambda s: sum(k.open and not k.takes for k in s.links.values())),
    )
    gauge(
        "application_weight",
        "Sum of the subscribers' weights.",
        of,
        each(lambda s: sum(k.weight for k in s.links.values())),
    )
    gauge(
        "application_waiting_bytes",
        "Bytes sent or held, and not yet handled.",
        of,
        each(lambda s: sum(k.waiting_bytes for k in s.links.values())),
    )
    gauge(
        "application_held_bytes",
        "Bytes held back to send more at once (tolerates_ms).",
        of,
        each(lambda s: sum(k.held_bytes for k in s.links.values())),
    )
    gauge(
        "application_tokens",
        "Datamarkers sent and not yet acknowledged.",
        of,
        each(lambda s: sum(len(k.tokens) for k in s.links.values())),
    )
    gauge(
        "application_problem",
        "1 while the application has stopped itself, has too many shards, or has parts that this"
        " publisher cannot serve.",
        of,
        each(lambda s: bool(s.problem or s.troubles or s.dispute)),
    )
    gauge(
        "application_filtered", "1 if the application has a filter.", of, each(lambda s: s.filter is not None)
    )
    gauge(
        "application_most_flows",
        "Flows of the subscriber with the most.",
        of,
        each(lambda s: max((len(k.flows) for k in s.links.values()), default=0)),
    )
    gauge(
        "application_fewest_flows",
        "Flows of the subscriber with the fewest.",
        of,
        each(lambda s: min((len(k.flows) for k in s.links.values()), default=0)),
    )
    counter("application_sent_updates", "Updates sent.", of, each(lambda s: s.sent_updates))
    counter(
        "application_sent_bytes",
        "Bytes of updates sent, before compression.",
        of,
        each(lambda s: s.sent_bytes),
    )
    gauge(
        "application_updates_per_second",
        "Updates sent, over 10 s.",
        of,
        each(lambda s: node.rates.of(f"updates/{s.name}")),
    )
    gauge(
        "application_bytes_per_second",
        "Bytes sent, over 10 s.",
        of,
        each(lambda s: node.rates.of(f"bytes/{s.name}")),
    )
    counter(
        "application_filtered_updates",
        "Updates that the filter left out.",
        of,
        each(lambda s: s.counts["filtered"]),
    )
    counter(
        "application_stale_updates",
        "Updates left out because they are older than stale_ms.",
        of,
        each(lambda s: s.counts["stale"]),
    )
    counter(
        "application_losses",
        "Losses reported to the application, one per range and subscriber.",
        of,
        each(lambda s: s.lost_ranges),
    )
    counter(
        "application_shards_found",
        "Shards found since the publisher started.",
        of,
        each(lambda s: s.counts["found"]),
    )
    counter(
        "application_windows_filled",
        "Times that a subscriber's window filled up.",
        of,
        each(lambda s: s.counts["full"]),
    )
    counter("application_items", "Items sent, by kind.", ("application", "kind"), items)
    of = ("application", "subscriber")
    gauge("subscriber_flows", "Flows of the subscriber.", of, links(lambda k: len(k.flows)))
    gauge("subscriber_open", "1 while the subscriber is connected.", of, links(lambda k: k.open))
    gauge("subscriber_takes", "1 while the subscriber's window has room.", of, links(lambda k: k.takes))
    gauge("subscriber_weight", "Weight of the subscriber.", of, links(lambda k: k.weight))
    gauge("subscriber_window_bytes", "Size of the subscriber's window.", of, links(lambda k: k.window))
    gauge("subscriber_waiting_bytes", "Bytes of the window in use.", of, links(lambda k: k.waiting_bytes))
    gauge(
        "subscriber_unhandled_items",
        "Items not yet handled by the subscriber.",
        of,
        links(lambda k: k.number - k.handled),
    )
    counter("subscriber_sent_updates", "Updates sent to the subscriber.", of, links(lambda k: k.sent_updates))
    counter(
        "subscriber_sent_bytes", "Bytes of updates sent to the subscriber.", of, links(lambda k: k.sent_bytes)
    )


def _lag(served: Served) -> float:
    found = lag_s(served, wall_clock_us())
    return float("nan") if found is None else found

"""What a publisher counts by application and by subscriber."""

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
"""Subscribers that are told of by name, at most: labels are kept by whoever collects them."""


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
        "Applications that are served.",
        (),
        lambda: [] if node.machine is None else [((), float(len(node.machine.served)))],
    )
    gauge("application_behind", "Sequence numbers that its last flow is behind the lead.", of, each(rear))
    gauge(
        "application_lag_seconds",
        "For how long its last flow lacks something; NaN if that is not known.",
        of,
        each(_lag),
    )
    gauge(
        "application_unmarked",
        "Sequence numbers since its last datamarker: what a crash sends again.",
        of,
        each(unmarked),
    )
    gauge("application_flows", "Shards.", of, each(lambda s: len(s.flows)))
    gauge(
        "application_flows_unassigned",
        "Shards that no subscriber has.",
        of,
        each(lambda s: sum(f.link is None for f in s.flows.values())),
    )
    gauge(
        "application_flows_waiting",
        "Flows in no caravan.",
        of,
        each(lambda s: sum(f.caravan is None for f in s.flows.values())),
    )
    gauge(
        "application_flows_leaving",
        "Flows on their way to another subscriber.",
        of,
        each(lambda s: sum(f.leaving for f in s.flows.values())),
    )
    gauge(
        "application_flows_untold",
        "Flows with a loss that is not acknowledged.",
        of,
        each(lambda s: sum(f.untold is not None for f in s.flows.values())),
    )
    gauge("application_parts", "Parts that are served here.", of, each(lambda s: len(s.scouts)))
    gauge(
        "application_caravans",
        "Caravans in which it has flows.",
        of,
        each(lambda s: len({o.caravan.number for o in s.travellers if o.caravan})),
    )
    gauge("application_subscribers", "Subscribers.", of, each(lambda s: len(s.links)))
    gauge(
        "application_subscribers_open",
        "Those that are connected.",
        of,
        each(lambda s: sum(k.open for k in s.links.values())),
    )
    gauge(
        "application_subscribers_full",
        "Those whose window is full.",
        of,
        each(lambda s: sum(k.open and not k.takes for k in s.links.values())),
    )
    gauge(
        "application_weight",
        "Weights of its subscribers, together.",
        of,
        each(lambda s: sum(k.weight for k in s.links.values())),
    )
    gauge(
        "application_waiting_bytes",
        "Sent or held, and not handled.",
        of,
        each(lambda s: sum(k.waiting_bytes for k in s.links.values())),
    )
    gauge(
        "application_held_bytes",
        "Held, so that more travels together.",
        of,
        each(lambda s: sum(k.held_bytes for k in s.links.values())),
    )
    gauge(
        "application_tokens",
        "Datamarkers under way.",
        of,
        each(lambda s: sum(len(k.tokens) for k in s.links.values())),
    )
    gauge(
        "application_problem",
        "1 while it stands still by itself, has no room for more shards, or has parts that cannot be served"
        " here.",
        of,
        each(lambda s: bool(s.problem or s.troubles or s.dispute)),
    )
    gauge("application_filtered", "1 if it has a filter.", of, each(lambda s: s.filter is not None))
    gauge(
        "application_most_flows",
        "Flows of the subscriber that has most.",
        of,
        each(lambda s: max((len(k.flows) for k in s.links.values()), default=0)),
    )
    gauge(
        "application_fewest_flows",
        "Flows of the subscriber that has fewest.",
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
        "Updates of its shards that its filter left out.",
        of,
        each(lambda s: s.counts["filtered"]),
    )
    counter(
        "application_stale_updates",
        "Updates left out because they were too old for it.",
        of,
        each(lambda s: s.counts["stale"]),
    )
    counter(
        "application_losses",
        "Losses that it was told, by range and subscriber.",
        of,
        each(lambda s: s.lost_ranges),
    )
    counter(
        "application_shards_found",
        "Shards that were found since the publisher started.",
        of,
        each(lambda s: s.counts["found"]),
    )
    counter(
        "application_windows_filled",
        "Times that a subscriber's window was full.",
        of,
        each(lambda s: s.counts["full"]),
    )
    counter("application_items", "Items sent, by kind.", ("application", "kind"), items)
    of = ("application", "subscriber")
    gauge("subscriber_flows", "Shards that it has.", of, links(lambda k: len(k.flows)))
    gauge("subscriber_open", "1 while it is connected.", of, links(lambda k: k.open))
    gauge("subscriber_takes", "1 while it takes more.", of, links(lambda k: k.takes))
    gauge("subscriber_weight", "Its share.", of, links(lambda k: k.weight))
    gauge("subscriber_window_bytes", "What may be under way to it.", of, links(lambda k: k.window))
    gauge("subscriber_waiting_bytes", "What is.", of, links(lambda k: k.waiting_bytes))
    gauge(
        "subscriber_unhandled_items",
        "Items that it has not handled.",
        of,
        links(lambda k: k.number - k.handled),
    )
    counter("subscriber_sent_updates", "Updates sent to it.", of, links(lambda k: k.sent_updates))
    counter("subscriber_sent_bytes", "Bytes of updates sent to it.", of, links(lambda k: k.sent_bytes))


def _lag(served: Served) -> float:
    found = lag_s(served, wall_clock_us())
    return float("nan") if found is None else found

"""The metrics of a publisher at /metrics, read when Prometheus asks. docs/metrics.md has the table."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from qanat.protocols.publisher.copy import CopyPublisher
from qanat.protocols.publisher.flows import Caravan
from qanat.protocols.publisher.machine import Publisher
from qanat.publisher.metrics_flows import export_flows
from qanat.publisher.status import behind, end_of
from qanat.runtime.clocks import monotonic_us, wall_clock_us
from qanat.runtime.metrics import Metrics
from qanat.runtime.process_metrics import export_process

if TYPE_CHECKING:
    from qanat.publisher.node import PublisherNode

COUNTED = {
    "joins": ("Join", "Requests of subscribers for a session, repeats included."),
    "alives": ("Alive", "Signs of life of subscribers."),
    "leases_granted": ("Granted", "Leases renewed."),
    "handled_messages": ("Handled", "Reports of subscribers on what they handled."),
    "acknowledgements": ("Acknowledge", "Datamarkers that subscribers acknowledged."),
    "reached_messages": ("Reached", "Datamarkers that subscribers set on their own."),
    "give_aways": ("GiveAway", "Times that a subscriber gave shards away."),
    "leaves": ("Leave", "Subscribers that stopped in order."),
    "gone_messages": ("Gone", "Times that the publisher told a subscriber that it has no session."),
    "sessions": ("sessions", "Sessions begun."),
    "channels_broken": ("channels_broken", "Broken connections to subscribers."),
    "leases_over": ("leases_over", "Subscribers whose lease ran out."),
    "subscribers_gone": ("subscribers_gone", "Subscribers that lost their shards to others, for any reason."),
    "flows_given": ("flows_given", "Flows given to a subscriber."),
    "flows_withdrawn": ("flows_withdrawn", "Flows asked back from a subscriber."),
    "flows_moved": ("flows_moved", "Flows moved from one subscriber to another, with no update sent twice."),
    "flows_rebalanced": ("flows_rebalanced", "Flows moved to even out the load."),
    "markers": ("markers", "Datamarkers of flows stored."),
    "reads_empty": ("reads_empty", "Reads that found no new updates."),
    "reads_delayed": ("reads_delayed", "Reads delayed by a limit on bytes per second."),
    "losses_read": ("WasLost", "Reads that found updates missing from the log."),
    "locates": ("Located", "Positions of the log's begin or end found."),
    "measures": ("Measured", "Measurements of the log's extent for other copies."),
    "configurations": ("Configure", "Configurations applied."),
    "moves": ("Move", "Times that an operator moved flows to a position."),
    "gives": ("Give", "Times that an operator gave flows to a subscriber."),
}  # fmt: skip
"""Metric: the name under which the machine counts it, and the help text."""

Numbers = Callable[[], Iterable[tuple[tuple[str, ...], float]]]


def export_publisher(metrics: Metrics, node: "PublisherNode") -> None:
    """Exports nothing before the machine exists."""

    def one(read: Callable[[Publisher], float]) -> Numbers:
        return lambda: [] if node.machine is None else [((), float(read(node.machine)))]

    def caravan(read: Callable[[Publisher, Caravan], float]) -> Numbers:
        return lambda: (
            []
            if (machine := node.machine) is None
            else [((str(each.number),), float(read(machine, each))) for each in machine.caravans.all.values()]
        )

    def logs(name: str, scale: float = 1.0) -> Numbers:
        return lambda: [] if node.machine is None else [((), node.readers.counts[name] * scale)]

    counter, gauge = metrics.counter_of, metrics.gauge_of
    for name, (counted, what) in COUNTED.items():
        counter(f"publisher_{name}", what, (), one(lambda machine, counted=counted: machine.counts[counted]))  # type: ignore[misc]
    for name, label, what, prefix in (
        ("refusals", "code", "Subscribers refused, by reason.", "refused/"),
        ("records", "kind", "Journal records, by kind.", "record/"),
    ):
        counter(f"publisher_{name}", what, (label,), _by_prefix(node, prefix))

    # the log
    counter("publisher_reads", "Reads of the log.", (), one(lambda m: m.reads))
    counter("publisher_read_updates", "Updates read.", (), one(lambda m: m.read_updates))
    counter("publisher_read_bytes", "Bytes read, counted as by the limits.", (), one(lambda m: m.read_bytes))
    gauge(
        "publisher_read_updates_per_second",
        "Updates read, over 10 s.",
        (),
        one(lambda m: node.rates.of("read_updates")),
    )
    gauge(
        "publisher_read_bytes_per_second",
        "Bytes read, over 10 s.",
        (),
        one(lambda m: node.rates.of("read_bytes")),
    )
    counter("publisher_losses", "Ranges missing from the log.", (), one(lambda m: m.losses))
    gauge("publisher_end_sequence", "Last sequence number read from the log.", (), one(_end))
    gauge(
        "publisher_log_away",
        "1 while the publisher cannot read the log.",
        (),
        one(lambda m: bool(node.readers.problem)),
    )
    gauge("publisher_readers", "Open readers of the log.", (), one(lambda m: node.readers.count))
    counter("publisher_reader_opens", "Readers opened.", (), one(lambda m: node.readers.opens))
    counter("publisher_reader_seeks", "Seeks of readers in the log.", (), logs("seeks"))
    counter("publisher_reader_failures", "Failed reads of the log.", (), logs("failures"))
    counter("publisher_reader_pieces", "Batches cut from reads.", (), logs("pieces"))
    counter("publisher_reader_losses", "Ranges and updates that readers could not deliver.", (), logs("lost"))
    gauge(
        "publisher_snapshots",
        "Open readers of tables, for applications that start with a snapshot.",
        (),
        one(lambda m: len(m.snapshots.all)),
    )
    counter(
        "publisher_archive_updates",
        "Updates read from the archive because the log no longer has them.",
        (),
        one(lambda m: 0 if node.archive is None else node.archive.updates),
    )
    counter("publisher_reader_questions", "Queries for the log's begin and end.", (), logs("questions"))
    counter(
        "publisher_reader_busy_seconds",
        "Seconds spent in reads of the log, waits included.",
        (),
        logs("busy_us", 1e-6),
    )

    # caravans
    gauge("publisher_caravans", "Caravans of the publisher.", (), one(lambda m: len(m.caravans.all)))
    counter(
        "publisher_plans",
        "Plans of the caravans made.",
        (),
        one(lambda m: m.caravans.plans),
    )
    counter("publisher_caravan_splits", "Caravans created.", (), one(lambda m: m.caravans.splits))
    counter(
        "publisher_caravan_merges",
        "Caravans merged into another.",
        (),
        one(lambda m: m.caravans.merges),
    )
    counter(
        "publisher_caravan_moves",
        "Flows that changed or left a caravan.",
        (),
        one(lambda m: m.caravans.moves),
    )
    gauge(
        "publisher_companies",
        "Companies with a reader: flows that an operator keeps together.",
        (),
        one(lambda m: len(m.honoured)),
    )
    gauge(
        "publisher_companies_waiting",
        "Companies without a reader.",
        (),
        one(lambda m: len(m.companies) - len(m.honoured)),
    )
    of = ("caravan",)
    gauge("caravan_sequence", "Sequence number of the caravan.", of, caravan(lambda m, c: c.at.sequence))
    gauge(
        "caravan_behind",
        "Sequence numbers that the caravan is behind the lead.",
        of,
        caravan(lambda m, c: behind(c.at, end_of(m))),
    )
    gauge("caravan_lag_seconds", "Age of the last update read; 0 at the end of the log.", of, caravan(_lag))
    gauge(
        "caravan_flows",
        "Flows in the caravan.",
        of,
        caravan(lambda m, c: sum(len(r.flows) for r in c.riders.values())),
    )
    gauge("caravan_scouts", "Scouts in the caravan.", of, caravan(lambda m, c: len(c.scouts)))
    gauge(
        "caravan_subscribers",
        "Subscribers with flows in the caravan.",
        of,
        caravan(lambda m, c: len(c.riders)),
    )
    gauge(
        "caravan_blocked",
        "Subscribers in the caravan whose window is full.",
        of,
        caravan(lambda m, c: sum(not r.link.takes for r in c.riders.values())),
    )
    counter("caravan_reads", "Reads of the caravan.", of, caravan(lambda m, c: c.reads))
    counter("caravan_read_updates", "Updates read by the caravan.", of, caravan(lambda m, c: c.read_updates))
    counter("caravan_read_bytes", "Bytes read by the caravan.", of, caravan(lambda m, c: c.read_bytes))
    gauge(
        "caravan_bytes_per_second",
        "Recent read rate.",
        of,
        caravan(lambda m, c: m.meter.rate(c, monotonic_us())),
    )
    gauge(
        "caravan_allowed_bytes_per_second", "Allowed read rate.", of, caravan(lambda m, c: m.meter.allowed(c))
    )
    gauge(
        "caravan_lead",
        "1 for the caravan that is farthest in the log.",
        of,
        caravan(lambda m, c: c is m.caravans.lead),
    )
    gauge(
        "caravan_company",
        "1 if an operator chose the flows of the caravan.",
        of,
        caravan(lambda m, c: bool(c.company)),
    )

    # copies
    gauge(
        "copy_leased",
        "1 while this copy holds its lease and may serve.",
        (),
        one(lambda m: isinstance(m, CopyPublisher) and m.session.leased(monotonic_us())),
    )
    gauge(
        "copy_parts",
        "Parts of applications that this copy owns.",
        (),
        one(lambda m: len(m.owners.owned) if isinstance(m, CopyPublisher) else 0),
    )
    gauge(
        "copy_waits",
        "Parts whose last owner may still have active subscribers.",
        (),
        one(lambda m: len(m.waits_for) if isinstance(m, CopyPublisher) else 0),
    )
    counter(
        "copy_records_refused",
        "Records of parts refused by the coordinator for lack of room.",
        (),
        one(lambda m: m.owners.refused if isinstance(m, CopyPublisher) else 0),
    )
    counter(
        "copy_takeovers",
        "Parts taken over from a copy that died.",
        (),
        one(lambda m: getattr(m, "takeovers", 0)),
    )
    counter(
        "copy_returns", "Parts given back to a preferred copy.", (), one(lambda m: getattr(m, "returns", 0))
    )

    gauge(
        "publisher_limit", "Value of each number of [publisher], by name.", ("name",), lambda: _limits(node)
    )
    export_flows(metrics, node)
    export_process(metrics)


def _end(machine: Publisher) -> float:
    end = end_of(machine)
    return 0.0 if end is None else float(end.sequence)


def _lag(machine: Publisher, caravan: Caravan) -> float:
    if caravan.current or not caravan.time_us:
        return 0.0
    return max(0, wall_clock_us() - caravan.time_us) / 1e6


def _by_prefix(node: "PublisherNode", prefix: str) -> Numbers:
    return lambda: (
        []
        if node.machine is None
        else [
            ((name.removeprefix(prefix),), float(count))
            for name, count in sorted(node.machine.counts.items())
            if name.startswith(prefix)
        ]
    )


def _limits(node: "PublisherNode") -> list[tuple[tuple[str, ...], float]]:
    return [
        ((name,), float(value))
        for name, value in msgspec.to_builtins(node.settings.publisher).items()
        if isinstance(value, int | float)
    ]

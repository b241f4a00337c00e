"""What a publisher counts, at /metrics: read from where it is kept when somebody asks. docs/metrics.md has
the table."""

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
    "joins": ("Join", "Subscribers that asked to be welcomed, also again."),
    "alives": ("Alive", "Signs of life of subscribers."),
    "leases_granted": ("Granted", "Leases that were renewed."),
    "handled_messages": ("Handled", "Times that a subscriber said how far it is."),
    "acknowledgements": ("Acknowledge", "Datamarkers that subscribers stood for."),
    "reached_messages": ("Reached", "Datamarkers of subscribers' own accord."),
    "give_aways": ("GiveAway", "Times that a subscriber wanted to be rid of shards."),
    "leaves": ("Leave", "Subscribers that stopped in peace."),
    "gone_messages": ("Gone", "Times that one was told that it has no session."),
    "sessions": ("sessions", "Sessions that were begun."),
    "channels_broken": ("channels_broken", "Connections of subscribers that broke."),
    "leases_over": ("leases_over", "Subscribers that were given up when their lease was over."),
    "subscribers_gone": ("subscribers_gone", "Subscribers whose shards went to others, for any reason."),
    "flows_given": ("flows_given", "Flows that were given to a subscriber."),
    "flows_withdrawn": ("flows_withdrawn", "Flows that were asked back from a subscriber."),
    "flows_moved": ("flows_moved", "Flows that went from one subscriber to another, nothing sent twice."),
    "flows_rebalanced": ("flows_rebalanced", "Of those, to even out the load."),
    "markers": ("markers", "Datamarkers of flows that were stored."),
    "reads_empty": ("reads_empty", "Reads that found nothing more."),
    "reads_delayed": ("reads_delayed", "Reads that waited for a limit on bytes a second."),
    "losses_read": ("WasLost", "Reads that found that the log no longer has something."),
    "locates": ("Located", "Answers to where the log begins or ends."),
    "measures": ("Measured", "Times that the log's extent was measured for other copies."),
    "configurations": ("Configure", "Configurations that were taken."),
    "moves": ("Move", "Times that an operator set flows to a position."),
    "gives": ("Give", "Times that an operator gave flows to a subscriber."),
}  # fmt: skip
"""Metric: the name under which the machine counts it, and what it is."""

Numbers = Callable[[], Iterable[tuple[tuple[str, ...], float]]]


def export_publisher(metrics: Metrics, node: "PublisherNode") -> None:
    """Nothing is told before the machine is there."""

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
        ("refusals", "code", "Subscribers that were refused, by reason.", "refused/"),
        ("records", "kind", "Records in the journal, by kind.", "record/"),
    ):
        counter(f"publisher_{name}", what, (label,), _by_prefix(node, prefix))

    # the log
    counter("publisher_reads", "Reads of the log.", (), one(lambda m: m.reads))
    counter("publisher_read_updates", "Updates read.", (), one(lambda m: m.read_updates))
    counter("publisher_read_bytes", "Bytes read, as limits count them.", (), one(lambda m: m.read_bytes))
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
    counter("publisher_losses", "Ranges that the log no longer had.", (), one(lambda m: m.losses))
    gauge("publisher_end_sequence", "Sequence number up to which the log was read.", (), one(_end))
    gauge(
        "publisher_log_away", "1 while the log cannot be read.", (), one(lambda m: bool(node.readers.problem))
    )
    gauge("publisher_readers", "Open readers of the log.", (), one(lambda m: node.readers.count))
    counter(
        "publisher_reader_opens", "Times that a reader was opened.", (), one(lambda m: node.readers.opens)
    )
    counter("publisher_reader_seeks", "Times that a reader went elsewhere in the log.", (), logs("seeks"))
    counter("publisher_reader_failures", "Times that the log could not be read.", (), logs("failures"))
    counter("publisher_reader_pieces", "Batches into which reads were cut.", (), logs("pieces"))
    counter("publisher_reader_losses", "Ranges and updates that readers could not bring.", (), logs("lost"))
    gauge(
        "publisher_snapshots",
        "Readers of tables, for applications that begin with a snapshot.",
        (),
        one(lambda m: len(m.snapshots.all)),
    )
    counter(
        "publisher_archive_updates",
        "Updates that came from the archive, since the log no longer had them.",
        (),
        one(lambda m: 0 if node.archive is None else node.archive.updates),
    )
    counter("publisher_reader_questions", "Questions where the log begins and ends.", (), logs("questions"))
    counter(
        "publisher_reader_busy_seconds",
        "Time in reads of the log, waiting included.",
        (),
        logs("busy_us", 1e-6),
    )

    # caravans
    gauge("publisher_caravans", "Caravans.", (), one(lambda m: len(m.caravans.all)))
    counter(
        "publisher_plans",
        "Times that it was planned who travels together.",
        (),
        one(lambda m: m.caravans.plans),
    )
    counter("publisher_caravan_splits", "Caravans that were made.", (), one(lambda m: m.caravans.splits))
    counter(
        "publisher_caravan_merges",
        "Caravans that came to another and became one.",
        (),
        one(lambda m: m.caravans.merges),
    )
    counter(
        "publisher_caravan_moves",
        "Flows that changed caravans or got off.",
        (),
        one(lambda m: m.caravans.moves),
    )
    gauge(
        "publisher_companies",
        "Companies that an operator keeps together.",
        (),
        one(lambda m: len(m.honoured)),
    )
    gauge(
        "publisher_companies_waiting",
        "Companies for which there is no reader.",
        (),
        one(lambda m: len(m.companies) - len(m.honoured)),
    )
    of = ("caravan",)
    gauge("caravan_sequence", "Sequence number where it is.", of, caravan(lambda m, c: c.at.sequence))
    gauge(
        "caravan_behind",
        "Sequence numbers behind the lead.",
        of,
        caravan(lambda m, c: behind(c.at, end_of(m))),
    )
    gauge("caravan_lag_seconds", "Age of what it read last; 0 if it found nothing more.", of, caravan(_lag))
    gauge(
        "caravan_flows",
        "Flows aboard.",
        of,
        caravan(lambda m, c: sum(len(r.flows) for r in c.riders.values())),
    )
    gauge("caravan_scouts", "Scouts aboard.", of, caravan(lambda m, c: len(c.scouts)))
    gauge(
        "caravan_subscribers", "Subscribers whose flows are aboard.", of, caravan(lambda m, c: len(c.riders))
    )
    gauge(
        "caravan_blocked",
        "Of those, who take no more.",
        of,
        caravan(lambda m, c: sum(not r.link.takes for r in c.riders.values())),
    )
    counter("caravan_reads", "Its reads.", of, caravan(lambda m, c: c.reads))
    counter("caravan_read_updates", "Updates that it read.", of, caravan(lambda m, c: c.read_updates))
    counter("caravan_read_bytes", "Bytes that it read.", of, caravan(lambda m, c: c.read_bytes))
    gauge(
        "caravan_bytes_per_second",
        "How fast it reads, lately.",
        of,
        caravan(lambda m, c: m.meter.rate(c, monotonic_us())),
    )
    gauge(
        "caravan_allowed_bytes_per_second", "How fast it may.", of, caravan(lambda m, c: m.meter.allowed(c))
    )
    gauge("caravan_lead", "1 for the one that is farthest.", of, caravan(lambda m, c: c is m.caravans.lead))
    gauge(
        "caravan_company",
        "1 where an operator decided who travels in it.",
        of,
        caravan(lambda m, c: bool(c.company)),
    )

    # copies
    gauge(
        "copy_leased",
        "1 while this copy may serve.",
        (),
        one(lambda m: isinstance(m, CopyPublisher) and m.session.leased(monotonic_us())),
    )
    gauge(
        "copy_parts",
        "Parts of applications that it owns.",
        (),
        one(lambda m: len(m.owners.owned) if isinstance(m, CopyPublisher) else 0),
    )
    gauge(
        "copy_waits",
        "Parts whose last owner may have subscribers at work.",
        (),
        one(lambda m: len(m.waits_for) if isinstance(m, CopyPublisher) else 0),
    )
    counter(
        "copy_records_refused",
        "Records of parts that the coordinator had no room for.",
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

    gauge("publisher_limit", "Every number of [publisher], by name.", ("name",), lambda: _limits(node))
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

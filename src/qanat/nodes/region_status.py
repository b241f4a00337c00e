"""What a replica tells people: its chain, and each stream with where it comes from and how far it is."""

from collections.abc import Callable
from typing import Any

from qanat.nodes.chained_stream import ChainedStream
from qanat.nodes.stream_metrics import export_streams
from qanat.protocols.chain import Placed
from qanat.protocols.region import RegionReplica
from qanat.runtime.metrics import Metrics


def role_of(place: Placed, me: str, joining: str | None) -> str:
    if place.is_head or place.is_tail:
        return "head and tail" if place.is_head and place.is_tail else "head" if place.is_head else "tail"
    return "joining" if joining == me else "middle" if place.epoch else "none"


def chain_status(machine: RegionReplica | None, place: Placed, now_us: int) -> dict[str, Any]:
    """The chain as this replica knows it."""
    configuration = None if machine is None else machine.chain.configuration
    if machine is None or configuration is None:
        return {"epoch": 0, "replicas": [], "joining": "", "head": "", "tail": "", "role": "none"} | {
            "confirmed": False, "serves": False, "leased": False
        }  # fmt: skip
    joining = "" if configuration.joining is None else configuration.joining.address
    me = machine.context.address
    names = [member.address for member in configuration.replicas]
    role = role_of(place, me, joining)
    return {
        "epoch": configuration.epoch,
        "replicas": names,
        "joining": joining,
        "head": configuration.head.address,
        "tail": configuration.tail.address,
        "role": role if role != "middle" or me in names else "out",
        "confirmed": configuration.confirmed,
        "serves": machine.chain.serves(now_us),
        "leased": machine.session.leased(now_us),
    }


def stream_status(stream: ChainedStream, machine: RegionReplica | None) -> dict[str, Any]:
    """One stream. `source`: whom the head takes a remote stream from, and `behind_source` how many events that one said
    it has more. `readers`: the regions' heads that take it from this tail, and how many events each was not sent yet."""
    expects = None if machine is None else machine.receiving.expects.get(stream.log.stream)
    active = machine is not None and machine.receiving.active
    source = expects.source if active and expects is not None else None
    promised = expects.seq if source is not None and expects is not None else 0
    cursors = {} if machine is None else machine.sending.cursors.get(stream.log.stream, {})
    return {
        **stream.status(),
        "owner": stream.owner,
        "counter": stream.log.next - 1,
        "stable": stream.stable,
        "source": source or "",
        "behind_source": max(0, promised - stream.log.next + 1),
        "readers": {peer: max(0, stream.stable + 1 - each.following) for peer, each in cursors.items()},
        "unanswered": stream.unanswered,
    }


def export(
    metrics: Metrics,
    streams: Callable[[], dict[str, ChainedStream]],
    machine: Callable[[], RegionReplica | None],
) -> None:
    """The same for /metrics."""
    export_streams(
        metrics,
        streams,
        {
            "stable": ("Highest sequence number that the whole chain has.", lambda s: s.stable),
            "unanswered": ("Requests of publishers that wait for the chain.", lambda s: s.unanswered),
            "behind_source": (
                "Events that the source of a remote stream has more, as it said.",
                lambda s: int(stream_status(s, machine())["behind_source"]),
            ),
        },
    )
    metrics.gauge_of(
        "chain_epoch", "Number of the chain's configuration.", (), lambda: [((), float(_epoch(machine())))]
    )


def _epoch(machine: RegionReplica | None) -> int:
    return 0 if machine is None else machine.chain.epoch

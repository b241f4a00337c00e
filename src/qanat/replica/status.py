"""What a replica tells people: its chain, and each stream with where it comes from and how far it is."""

from collections.abc import Callable
from typing import Any

from qanat.protocols.chain import Placed
from qanat.protocols.region import RegionReplica
from qanat.replica.chained_stream import ChainedStream
from qanat.runtime.metrics import Metrics
from qanat.serving.stream_metrics import export_streams


def role_of(place: Placed, me: str, joining: str | None) -> str:
    if place.is_head or place.is_tail:
        return "head and tail" if place.is_head and place.is_tail else "head" if place.is_head else "tail"
    return "joining" if joining == me else "middle" if place.epoch else "none"


def chain_status(
    machine: RegionReplica | None, place: Placed, now_us: int, answers: bool, waits: str
) -> dict[str, Any]:
    """The chain as this replica knows it. `answers`: it is the head, and answers; `waits`: whom or what the
    chain waits for."""
    configuration = None if machine is None else machine.chain.configuration
    if machine is None or configuration is None:
        return {"epoch": 0, "replicas": [], "joining": "", "head": "", "tail": "", "role": "none"} | {
            "confirmed": False, "serves": False, "answers": False, "leased": False, "waits": waits,
            "knows": knows(machine),
        }  # fmt: skip
    joining = "" if configuration.joining is None else configuration.joining.address
    me = machine.context.address
    names = [] if configuration.recovering else [member.address for member in configuration.replicas]
    role = role_of(place, me, joining)
    return {
        "epoch": configuration.epoch,
        "replicas": names,
        "joining": joining,
        "head": names[0] if names else "",
        "tail": names[-1] if names else "",
        "role": role if role != "middle" or me in names else "out",
        "confirmed": configuration.confirmed,
        "serves": machine.chain.serves(now_us),
        "answers": answers,
        "waits": waits,
        "knows": knows(machine),
        "leased": machine.session.leased(now_us),
    }


def knows(machine: RegionReplica | None) -> dict[str, Any]:
    """What this replica would say to a coordinator that has forgotten: the last epoch that it read, who was
    in the chain then, and whether its disk has what the chain had when it last had a place there (`emptied`:
    the chain waits for what it had before)."""
    if machine is None:
        return {"epoch": 0, "replicas": [], "confirmed": False, "kept": False, "emptied": False}
    known, waits = machine.chain.knowledge, machine.manager.waits
    claim = known.claim
    return {
        "epoch": 0 if claim is None else claim.epoch,
        "replicas": [] if claim is None else [member.address for member in claim.replicas],
        "confirmed": claim is not None and claim.confirmed,
        "kept": known.kept,
        "emptied": waits is not None and machine.context.address in waits.emptied,
    }


def shortage(machine: RegionReplica | None, name_of: Callable[[int], str]) -> list[str]:
    """What is not on this disk any more, though it was."""
    found = () if machine is None else machine.chain.knowledge.short
    return [
        f"stream {name_of(stream)!r} had {was} events on disk here, and {there} are left: the log is an older"
        " copy, or lost its end; what others have is copied from them"
        for stream, there, was in found
    ]


def stream_status(stream: ChainedStream, machine: RegionReplica | None) -> dict[str, Any]:
    """One stream. `source`: whom the head takes a remote stream from, and `behind_source` how many events
    that one said it has more. `readers`: the regions' heads that take it from this tail, and how many events
    each was not sent yet."""
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
            "unanswered": ("Publishes that wait for the chain.", lambda s: s.unanswered),
            "behind_source": (
                "Events that the source of a remote stream has announced and this replica lacks.",
                lambda s: int(stream_status(s, machine())["behind_source"]),
            ),
        },
    )
    metrics.gauge_of(
        "chain_epoch", "Epoch of the chain's configuration.", (), lambda: [((), float(_epoch(machine())))]
    )


def _epoch(machine: RegionReplica | None) -> int:
    return 0 if machine is None else machine.chain.epoch

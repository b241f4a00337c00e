"""What a replica of a region shows at /status: its place in the chain, and how each stream stands here."""

from typing import Any

from qanat.nodes.chained_stream import ChainedStream
from qanat.nodes.region_machine import HostedReplica
from qanat.nodes.region_streams import RegionStreams


def chain_status(machine: HostedReplica | None, now_us: int) -> dict[str, Any]:
    """The configuration that this replica knows; empty before it has read one."""
    configuration = None if machine is None else machine.chain.configuration
    if machine is None or configuration is None:
        return {"epoch": 0, "replicas": [], "joining": "", "confirmed": False, "serves": False}
    return {
        "epoch": configuration.epoch,
        "replicas": [member.address for member in configuration.replicas],
        "joining": configuration.joining.address if configuration.joining is not None else "",
        "confirmed": configuration.confirmed,
        "serves": machine.chain.serves(now_us),
    }


def streams_status(machine: HostedReplica | None, streams: RegionStreams) -> list[dict[str, Any]]:
    return [_stream(machine, stream) for _, stream in sorted(streams.streams.items())]


def _stream(machine: HostedReplica | None, stream: ChainedStream) -> dict[str, Any]:
    """`source`: whom the head takes a remote stream from. `readers`: the regions' heads that take it from this tail, and
    how many events each has not been sent yet."""
    number = stream.log.stream
    source, readers = "", {}
    if machine is not None:
        expects = machine.receiving.expects.get(number)
        if expects is not None and machine.receiving.active and expects.source is not None:
            source = str(expects.source)
        cursors = machine.sending.cursors.get(number, {}) if machine.sending.active else {}
        readers = {str(peer): max(0, stream.stable + 1 - each.following) for peer, each in cursors.items()}
    return {
        **stream.status(),
        "owner": stream.owner,
        "stable": stream.stable,
        "source": source,
        "readers": readers,
    }

"""One producer, one stream server with its log on disk, and its consumers; beside plain sockets through one relay."""

import os
from collections.abc import Callable

from qanat.bench import relay
from qanat.bench.broadcast_latency import latency_all_ms, latency_ms
from qanat.bench.broadcast_roles import consume, produce, produce_one_by_one
from qanat.bench.figures import medians, resident_mb
from qanat.nodes.processes import Worker, stream_server, workers

DESCRIPTION = (
    "events/s and latency from a producer through a server with its log on disk to 1, 8 and 1,000 consumers"
)

_STORED = 1_000_000


def broadcast(url: str, stream: str, width: int, consumers: int, count: int, kind: str = "arrow") -> float:
    """Events per second that each of `consumers` receives, from the first publish until the last has all."""
    with (
        workers(1, produce, url, stream, width, count, kind) as (source,),
        workers(consumers, consume, url, stream, "latest") as sinks,
    ):
        return _timed(source, sinks, count)


def _timed(source: Worker, sinks: list[Worker], count: int) -> float:
    os.sync()  # what earlier measurements left for the disk to do is done before this one begins
    for sink in sinks:
        sink.wait()
        sink.tell(count)
    source.tell("go")
    began: float = source.wait()
    ends: list[float] = [sink.wait() for sink in sinks]
    return count / (max(ends) - began)


def publish_one(url: str, stream: str, count: int) -> float:
    """Events per second with one `publish` call for each, until the last is acknowledged."""
    with workers(1, produce_one_by_one, url, stream, count) as (source,):
        source.tell("go")
        seconds: float = source.wait()
        return count / seconds


def replay_bytes_per_s(url: str, stream: str, consumers: int, width: int) -> float:
    """Bytes per second, all consumers together, of a stored stream read from its beginning."""
    with workers(consumers, consume, url, stream, "earliest", paused=True) as sinks:
        for sink in sinks:
            sink.tell(_STORED)
        begins_ends = [(sink.wait(), sink.wait()) for sink in sinks]
        seconds = max(end for _, end in begins_ends) - min(begin for begin, _ in begins_ends)
        return float(consumers * _STORED * width / seconds)


def store(url: str, stream: str, width: int, count: int) -> None:
    with workers(1, produce, url, stream, width, count - 1, "arrow") as (source,):
        source.tell("go")
        source.wait()
        source.wait()


def _fresh(measure: Callable[[str], float]) -> float:
    """On a server of its own: the memory that a full page cache takes would slow down whoever comes next."""
    with stream_server() as (url, _):
        return measure(url)


def one_round(say: Callable[[str], None]) -> dict[str, float]:
    """All figures once, each measurement of ours beside the plain one that it is compared with."""
    figures: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        figures[name] = value
        say(f"  {name} {value:,.3f}" if value < 100 else f"  {name} {value:,.0f}")

    note("events_per_s_10b_1", _fresh(lambda url: broadcast(url, "s", 10, 1, 30_000_000)))
    note("relay_mb_per_s_1", relay.bytes_per_s(1, 300_000_000, 10) / 1e6)
    note("socket_ratio_10b_1", figures["events_per_s_10b_1"] * 10 / 1e6 / figures["relay_mb_per_s_1"])
    note("events_per_s_10b_8", _fresh(lambda url: broadcast(url, "s", 10, 8, 10_000_000)))
    note("events_per_s_10b_1_list", _fresh(lambda url: broadcast(url, "s", 10, 1, 10_000_000, "list")))
    note("mb_per_s_500b_8", _fresh(lambda url: broadcast(url, "s", 500, 8, 500_000)) * 8 * 500 / 1e6)
    note("relay_mb_per_s_8", relay.bytes_per_s(8, 250_000_000, 500) * 8 / 1e6)
    note("socket_ratio_500b_8", figures["mb_per_s_500b_8"] / figures["relay_mb_per_s_8"])
    note("publish_one_events_per_s", _fresh(lambda url: publish_one(url, "s", 400_000)))
    with stream_server() as (url, server):
        store(url, "stored", 500, _STORED)
        note("replay_mb_per_s_1", replay_bytes_per_s(url, "stored", 1, 500) / 1e6)
        note("replay_mb_per_s_8", replay_bytes_per_s(url, "stored", 8, 500) / 1e6)
        note("server_rss_mb", resident_mb(server.pid))
    with stream_server() as (url, _):
        p50, p99 = latency_ms(url, "latency", 3_000)
        note("latency_ms_p50", p50)
        note("latency_ms_p99", p99)
    note("latency_1000_ms_p50", _fresh(lambda url: latency_all_ms(url, "latency", 1_000, 50)))
    return figures


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds; every round starts a server of its own."""
    results = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        results.append(one_round(say))
    return medians(results)

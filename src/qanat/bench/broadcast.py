"""One producer, one stream server with its log on disk, and its consumers; beside plain sockets through one
relay."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median

from qanat.bench import relay
from qanat.bench.broadcast_latency import latency_all_ms, latency_ms
from qanat.bench.broadcast_roles import consume, produce, produce_one_by_one
from qanat.bench.broadcast_table import cells
from qanat.bench.figures import in_turns, medians, resident_mb
from qanat.operate.processes import stream_server, workers

DESCRIPTION = (
    "events/s and latency from a producer through a server with its log on disk to 1, 8 and 1,000 consumers"
)

TABLE = cells
"""What `--markdown` prints."""
_STORED = 1_000_000
_SLICES = 6
"""Of each side in a round, in turns with the other side."""


@contextmanager
def broadcasting(
    width: int, consumers: int, count: int, kind: str = "arrow"
) -> Iterator[Callable[[], float]]:
    """Gives what measures once: events per second that each of `consumers` receives, from the first publish
    until the last has all."""
    with (
        stream_server() as (url, _),
        workers(1, produce, url, "s", width, count, kind) as (source,),
        workers(consumers, consume, url, "s", "latest") as sinks,
    ):
        for sink in sinks:
            sink.wait()

        def measure() -> float:
            os.sync()  # what earlier measurements left for the disk to do is done before this one begins
            for one in (*sinks, source):
                one.tell(count)
            began: float = source.wait()
            ends: list[float] = [sink.wait() for sink in sinks]
            source.wait()
            return count / (max(ends) - began)

        yield measure


def rate(width: int, consumers: int, count: int, kind: str = "arrow") -> float:
    """Events per second, where there is no other side: the median of slices, the first of which is thrown
    away."""
    with broadcasting(width, consumers, count, kind) as measure:
        measure()
        return median(measure() for _ in range(_SLICES // 2))


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
    with workers(1, produce, url, stream, width, count, "arrow") as (source,):
        source.tell(count - 1)
        source.wait()
        source.wait()


def _fresh(measure: Callable[[str], float]) -> float:
    """On a server of its own: the memory that a full page cache takes would slow down whoever comes next."""
    with stream_server() as (url, _):
        return measure(url)


class Ours:
    """Our server, as those beside it are measured."""

    def carrying(self, width: int, consumers: int, count: int) -> AbstractContextManager[Callable[[], float]]:
        return broadcasting(width, consumers, count)

    @contextmanager
    def ticking(self, count: int) -> Iterator[Callable[[], tuple[float, float]]]:
        with stream_server() as (url, _):
            yield lambda: latency_ms(url, "latency", count)


def one_round(number: int, say: Callable[[str], None], peers: Sequence[str] = ()) -> dict[str, float]:
    """All figures once, each measurement of ours in turns with the one that it is compared with, plain
    sockets or a peer's."""
    figures: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        figures[name] = value
        say(f"  {name} {value:,.3f}" if value < 100 else f"  {name} {value:,.0f}")

    with broadcasting(10, 1, 10_000_000) as ours, relay.relaying(1, 100_000_000, 10) as plain:
        pair = in_turns(ours, lambda: plain() / 10, _SLICES, warm=True, first=number)
        note("events_per_s_10b_1", pair.ours)
        note("relay_mb_per_s_1", pair.theirs * 10 / 1e6)
        note("socket_ratio_10b_1", pair.ratio)
    note("events_per_s_10b_8", rate(10, 8, 6_000_000))
    note("events_per_s_10b_1_list", rate(10, 1, 4_000_000, "list"))
    with broadcasting(500, 8, 100_000) as ours, relay.relaying(8, 50_000_000, 500) as plain:
        pair = in_turns(ours, lambda: plain() / 500, _SLICES, warm=True, first=number)
        note("mb_per_s_500b_8", pair.ours * 8 * 500 / 1e6)
        note("relay_mb_per_s_8", pair.theirs * 8 * 500 / 1e6)
        note("socket_ratio_500b_8", pair.ratio)
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
    if peers:
        from qanat.bench import beside  # only in a checkout

        for peer in peers:
            beside.one_round(peer, Ours(), number, note)
    return figures


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds; every round starts servers of its own."""
    return run_beside((), rounds, say)


def run_beside(peers: Sequence[str], rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """With figures of peers, which are all there (`beside.PEERS`)."""
    results = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        results.append(one_round(number, say, peers))
    return medians(results)

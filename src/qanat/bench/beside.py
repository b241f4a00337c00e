"""Real servers of others, measured as ours is, in turns with ours: over TCP, each with its log on disk."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median
from typing import NamedTuple, Protocol

from qanat.bench import kafka, redis
from qanat.bench.figures import in_turns, turns


class Runs(Protocol):
    """A server that runs, ours or theirs."""

    def carrying(
        self, width: int, consumers: int, count: int
    ) -> AbstractContextManager[Callable[[], float]]: ...

    def ticking(self, count: int) -> AbstractContextManager[Callable[[], tuple[float, float]]]: ...


class Sizes(NamedTuple):
    """Events in a slice of a second or so, and how many slices of each side."""

    small: int
    large: int
    ticks: int
    slices: int


class Peer(NamedTuple):
    running: Callable[[], AbstractContextManager[Runs]]
    what: str
    sizes: Sizes


OURS = Sizes(10_000_000, 100_000, 1_000, 6)
PEERS = {
    "kafka": Peer(
        kafka.running,
        "one broker (KRaft), a topic of one partition; its Java producer (acks=all, batches of 256 KiB,"
        " linger 5 ms, of latency 0) and consumers",
        Sizes(1_000_000, 100_000, 1_000, 6),
    ),
    "redis": Peer(
        redis.running,
        "a stream; XADD in a pipeline, XREAD; append-only file, synced each second",
        Sizes(400_000, 40_000, 1_000, 6),
    ),
}


def one_round(
    name: str,
    ours: Runs,
    number: int,
    note: Callable[[str, float], None],
    own: Sizes = OURS,
    their: Sizes | None = None,
    consumers: int = 8,
) -> None:
    """Notes the figures of one peer. A ratio is ours by theirs: of rates more is better, of latencies
    less."""
    peer = PEERS[name]
    their = their or peer.sizes
    with peer.running() as theirs:
        with ours.carrying(10, 1, own.small) as our_rate, theirs.carrying(10, 1, their.small) as their_rate:
            pair = in_turns(our_rate, their_rate, their.slices, warm=True, first=number)
        note(f"{name}_events_per_s_10b_1", pair.theirs)
        note(f"{name}_ratio_10b_1", pair.ratio)
        with (
            ours.carrying(500, consumers, own.large) as our_rate,
            theirs.carrying(500, consumers, their.large) as their_rate,
        ):
            pair = in_turns(our_rate, their_rate, their.slices, warm=True, first=number)
        note(f"{name}_mb_per_s_500b_8", pair.theirs * consumers * 500 / 1e6)
        note(f"{name}_ratio_500b_8", pair.ratio)
        with ours.ticking(own.ticks) as our_delays, theirs.ticking(their.ticks) as their_delays:
            both = turns(our_delays, their_delays, their.slices, warm=True, first=number)
        for at, percentile in enumerate(("p50", "p99")):
            note(f"{name}_latency_ms_{percentile}", median(their[at] for _, their in both))
            note(f"{name}_ratio_latency_{percentile}", median(our[at] / their[at] for our, their in both))

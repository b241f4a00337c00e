"""A publisher and its applications, each a process: replays beside plain sockets, one subscriber's limit,
commit to callback, isolation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from qanat.bench.figures import in_turns, medians
from qanat.events.errors import LocalError
from qanat.operate.processes import Worker, workers
from qanat.runtime.workshop import has_workshop
from qanat.studies.publishing import apply
from qanat.studies.w15 import subscriber as w15_subscriber
from qanat.studies.w15.latency import database, latencies_ms
from qanat.studies.w15.replay import Replayed, plain_fan_out, replay, stored
from qanat.studies.w15.subscriber import take_all

DESCRIPTION = (
    "1 to 20 applications of one log beside plain sockets, one subscriber's limit, commit to callback, nine"
    " beside one that stalls"
)
REPLAYED = 200_000
"""Updates of 1 KB in the log that is replayed."""
SLICES = 2
"""Replays of each side in a round, in turns with the other side."""
APPLICATIONS = (1, 5, 10, 20)
PREPARED = 50_000
TAKEN = 3_000_000
"""Updates of 500 bytes that one subscriber is sent."""
LOGGED = 400_000
"""Of 500 bytes, in a log that is read for it."""
COMMITS, COMMITS_PER_S = 2_000, 400.0
FAST = 9

Say = Callable[[str], None]
Figures = dict[str, float]


class NoPart(LocalError):
    """There is no such part."""

    exit_code = 2


def run(rounds: int, say: Say) -> Figures:
    parts = dict.fromkeys(_PARTS)
    if not has_workshop():
        say("latency: left out, since databases to measure are started only in a checkout of the repository")
        del parts["latency"]
    return run_only(",".join(parts), rounds, say)


def run_only(part: str, rounds: int, say: Say) -> Figures:
    """Several parts with commas between them."""
    figures: Figures = {}
    for name in part.split(","):
        if name not in _PARTS:
            raise NoPart(f"the benchmark publisher has no part {name!r}; there are {', '.join(_PARTS)}")
        say(name)
        figures |= _PARTS[name](rounds, lambda line: say(f"  {line}"))
    return figures


def _told(say: Say, number: int, rounds: int, figures: Figures) -> Figures:
    said = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
    say(f"round {number + 1} of {rounds}: {said}")
    return figures


def _replay(rounds: int, say: Say) -> Figures:
    """The plain sockets carry in the same round, to as many, the bytes that the publisher brought them:
    batches with their attributes and positions. In MB/s only the updates' own lines are counted."""
    rounds_: list[Figures] = []
    with stored(REPLAYED) as writer, workers(max(APPLICATIONS), apply) as sinks:
        total = int(replay(writer.urls[0], REPLAYED, sinks[:1]).sent_mb * 1e6)
        for number in range(rounds):
            figures: Figures = {}
            for count in APPLICATIONS:
                taken = sinks[:count]
                found: list[Replayed] = []

                def ours(taken: list[Worker] = taken, found: list[Replayed] = found) -> float:
                    found.append(replay(writer.urls[0], REPLAYED, taken))
                    return found[-1].wire_mb_per_s

                with plain_fan_out(count, total) as plain:
                    pair = in_turns(ours, plain, SLICES, first=number)
                figures[f"replay_mb_per_s_{count}"] = median(one.mb_per_s for one in found)
                figures[f"replay_brought_mb_per_s_{count}"] = pair.ours
                figures[f"plain_mb_per_s_{count}"] = pair.theirs
                figures[f"replay_ratio_{count}"] = pair.ratio
            rounds_.append(_told(say, number, rounds, figures))
    return medians(rounds_)


def _subscriber(rounds: int, say: Say) -> Figures:
    """By a publisher that has its log in memory; and the whole way, where reading the log is what limits."""
    found = []
    with stored(LOGGED, w15_subscriber.VALUE_BYTES) as writer, workers(1, apply) as (sink,):
        for number in range(rounds):
            figures = {
                "subscriber_updates_per_s": take_all(writer.urls[0], PREPARED, sink, TAKEN),
                "subscriber_log_updates_per_s": replay(writer.urls[0], LOGGED, [sink]).updates_per_s,
            }
            found.append(_told(say, number, rounds, figures))
    return medians(found)


def _latency(rounds: int, say: Say) -> Figures:
    found = []
    with database() as server:
        for number in range(rounds):
            taken = latencies_ms(server, COMMITS, COMMITS_PER_S, first=10**6 * number)
            figures = {
                "latency_ms_p50": float(np.percentile(taken, 50)),
                "latency_ms_p99": float(np.percentile(taken, 99)),
                "latency_share_under_100_ms": float((taken < 100).mean()),
            }
            found.append(_told(say, number, rounds, figures))
    return medians(found)


def _isolation(rounds: int, say: Say) -> Figures:
    """Nine alone, and nine beside a tenth that never returns from its first callback; in turns."""
    found = []
    with stored(REPLAYED) as writer, workers(FAST, apply) as sinks:
        rate = partial(replay, writer.urls[0], REPLAYED, sinks)
        for number in range(rounds):
            pair = in_turns(lambda: rate(1).mb_per_s, lambda: rate(0).mb_per_s, SLICES, first=number)
            figures = {
                "nine_mb_per_s": pair.theirs,
                "nine_beside_stalled_mb_per_s": pair.ours,
                "isolation_ratio": pair.ratio,
            }
            found.append(_told(say, number, rounds, figures))
    return medians(found)


_PARTS: dict[str, Callable[[int, Say], Figures]] = {
    "replay": _replay,
    "subscriber": _subscriber,
    "latency": _latency,
    "isolation": _isolation,
}

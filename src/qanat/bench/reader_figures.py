"""What the benchmarks of log readers have in common: rounds, rows a second, and the time from a commit to its
update."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from qanat.bench.figures import in_turns, medians
from qanat.capture.reader import LogReader
from qanat.capture.updates import Updates
from qanat.events.errors import RemoteError

COMMITS = 300


def in_rounds(
    rounds: int, measure: Callable[[int], dict[str, float]], say: Callable[[str], None]
) -> dict[str, float]:
    """Medians of the rounds, each of which is said; `measure` is told its number, from 0 on."""
    figures = []
    for number in range(rounds):
        figures.append(measure(number))
        said = ", ".join(f"{name} {value:.4g}" for name, value in figures[-1].items())
        say(f"round {number + 1} of {rounds}: {said}")
    return medians(figures)


def beside(
    name: str, peer: str, ours: Callable[[], float], theirs: Callable[[], float], number: int
) -> dict[str, float]:
    """Rows a second of a reader and of what it is compared with, which take turns."""
    pair = in_turns(ours, theirs, 2, first=number)
    return {
        f"{name}_rows_per_s": pair.ours,
        f"{peer}_rows_per_s": pair.theirs,
        f"{name}_ratio": pair.ratio,
    }


def take(reader: LogReader, limit: int = 50_000) -> Updates:
    """What comes next; a loss is an error here."""
    part = reader.read(limit, 10)
    if not isinstance(part, Updates):
        raise RemoteError(f"the log was cut: {part.reason}")
    return part


def rows_per_s(reader: LogReader, rows: int) -> float:
    """From where the reader is."""
    began = time.perf_counter()
    got = 0
    while got < rows:
        got += len(take(reader))
    return got / (time.perf_counter() - began)


def commit_to_update(name: str, reader: LogReader, commit: Callable[[int], object]) -> dict[str, float]:
    """From when a commit is answered until its update is in hand, in a reader that waits for it; `commit`
    makes one row."""
    reader.seek("latest")
    reader.read(1, 0.2)
    taken = []
    for number in range(COMMITS):
        commit(number)
        began = time.perf_counter()
        while not take(reader, 10):
            pass
        taken.append(1000 * (time.perf_counter() - began))
    return percentiles(name, taken)


def percentiles(name: str, taken_ms: list[float]) -> dict[str, float]:
    return {f"{name}_latency_ms_p{part}": float(np.percentile(taken_ms, part)) for part in (50, 99)}

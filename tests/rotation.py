"""Which of the longest tests, which seeds, and how many kills a run takes: a share that changes with each
commit. `./qanat test --soak` takes them all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TURN, WHOLE = "QANAT_TEST_TURN", "QANAT_TEST_WHOLE"
ALL_TURNS = 1_000_000
LONG_S = 5.0
"""A test that was recorded to take longer, beside others on two cores, takes turns."""
OF = 5
"""So many turns take them all."""


def begin(*, whole: bool) -> None:
    """Decides for this process and for those that it starts. One commit has one turn, so what failed fails
    again."""
    os.environ.setdefault(TURN, str(_turn_of_the_commit()))
    if whole:
        os.environ[WHOLE] = "yes"


def whole() -> bool:
    return os.environ.get(WHOLE) == "yes"


def turn() -> int:
    return int(os.environ.get(TURN, "0"))


def share(seeds: Sequence[int], of: int = 5) -> Sequence[int]:
    """A fifth of the seeds, neighbours, and at least two; with each turn those that come next."""
    if whole():
        return seeds
    count = min(len(seeds), max(2, len(seeds) // of))
    first = turn() * count
    return [seeds[(first + at) % len(seeds)] for at in range(count)]


def few(count: int, rarely: int) -> int:
    """`rarely` of something in most runs, `count` where all is taken."""
    return count if whole() else rarely


def turns_of_long(took: Mapping[str, float]) -> dict[str, int]:
    """The long tests, each with its turn, so that all turns take about as long."""
    turns: dict[str, int] = {}
    busy_s = [0.0] * OF
    for name in sorted((name for name in took if took[name] > LONG_S), key=lambda name: (-took[name], name)):
        least = min(range(OF), key=lambda at: busy_s[at])
        turns[name] = least
        busy_s[least] += took[name]
    return turns


def _turn_of_the_commit() -> int:
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0  # no repository, no turns
    return int(said[:12], 16) % ALL_TURNS

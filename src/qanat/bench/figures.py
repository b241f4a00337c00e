"""Figures of several rounds, two sides in turns, and what a process takes."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

_Our = TypeVar("_Our")
_Their = TypeVar("_Their")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Figure(float):
    """The median of several measurements, which knows how far apart they were."""

    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        figure = cls(median(values))
        figure.lowest, figure.highest = min(values), max(values)
        return figure


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each figure over the rounds, with its spread."""
    return gathered({name: [round_[name] for round_ in rounds] for name in rounds[0]})


def gathered(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The same of values that lie together by figure."""
    return {name: Figure.of(each) for name, each in values.items()}


class Pair(NamedTuple):
    """Two sides that were measured in turns: the median of each, and of the ratio of neighbours."""

    ours: float
    theirs: float
    ratio: float


def in_turns(
    ours: Callable[[], float], theirs: Callable[[], float], slices: int, *, warm: bool = False, first: int = 0
) -> Pair:
    """Measures both sides by `turns`. The ratio is the median of the ratios of neighbours: a slice that was
    disturbed spoils one of them."""
    both = turns(ours, theirs, slices, warm=warm, first=first)
    return Pair(
        median(our for our, _ in both),
        median(their for _, their in both),
        median(our / their for our, their in both),
    )


def turns(
    ours: Callable[[], _Our],
    theirs: Callable[[], _Their],
    slices: int,
    *,
    warm: bool = False,
    first: int = 0,
) -> list[tuple[_Our, _Their]]:
    """Measures both sides in short slices, in the order ours, theirs, theirs, ours, so that whatever else the
    machine does falls on both.

    `warm`: the first slice of each side is thrown away. `first`: 1 turns the order around, as every second
    round does.
    """
    if warm:
        ours()
        theirs()
    both: list[tuple[_Our, _Their]] = []
    for number in range(first, first + slices):
        if number % 2:
            their = theirs()
            both.append((ours(), their))
        else:
            both.append((ours(), theirs()))
    return both


def resident_mb(pid: int) -> float:
    """Memory of a process that is in use now, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def cpu_s(pids: Iterable[int]) -> float:
    """CPU time that processes have taken so far, in user and kernel mode, in seconds."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S

"""Which test comes when, if several processes share them: each begins with its own kind of long ones, the
longest first, and short ones are left to the end.

Whoever hands tests out (`--dist worksteal`) gives each process an equal number of neighbours, and lets who is
done take over the last ones of another. So tests of one Spark stay together, since every process that has
some of them starts a Spark of its own; and what is taken over at the end is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

Kind = Literal["spark", "jobs", "long", "short"]
"""Of the Spark that all tests of a process share; with a Spark of its own, which takes minutes; with servers
and processes of its own; all others."""


def arranged(kinds: Sequence[Kind], processes: int) -> list[int]:
    """The tests by their places in `kinds`: the first process begins with Spark, the others with long tests;
    each ends with short ones."""
    natural = list(range(len(kinds)))
    spark, jobs, long, short = (
        [i for i in natural if kinds[i] == kind] for kind in ("spark", "jobs", "long", "short")
    )
    if processes < 2 or not spark or not long:
        return natural
    others = processes - 1
    ends = [len(long) * i // others for i in range(processes)]
    firsts = [spark, *(jobs[i::others] + long[begin:end] for i, (begin, end) in enumerate(pairwise(ends)))]
    rooms = [room - len(first) for room, first in zip(_equal(len(kinds), processes), firsts, strict=True)]
    if min(rooms) < 0:
        return natural
    # The first of the short ones are longer than the others: they do not go to who has Spark.
    filled: list[int] = []
    for first, room in reversed(list(zip(firsts, rooms, strict=True))):
        filled = [*first, *short[:room], *filled]
        short = short[room:]
    return filled


def _equal(count: int, processes: int) -> list[int]:
    """How many tests each process is given at first."""
    rooms: list[int] = []
    for left in range(processes, 0, -1):
        rooms.append((count - sum(rooms)) // left)
    return rooms

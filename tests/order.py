"""Which test comes when, if several processes share them: each begins with long files, the longest first, and
short tests are left to the end.

`--dist worksteal` gives each process an equal number of neighbours, and lets a process that is done take over
the last ones of another. So the tests of one file stay together, as do those of the one Spark that tests
share: every process that has some of them starts servers of its own. What is taken over at the end is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Timed(NamedTuple):
    group: str
    """Tests of one group go to one process, where they share what they start; empty: it may go anywhere."""
    seconds: float


def arranged(tests: Sequence[Timed], processes: int) -> list[int]:
    """The tests by their places in `tests`: groups are dealt out by their lengths, the longest first, each to
    the process that has the least; each ends with tests of no group."""
    natural = list(range(len(tests)))
    groups: dict[str, list[int]] = {}
    for i in natural:
        groups.setdefault(tests[i].group, []).append(i)
    short = groups.pop("", [])
    rooms = _equal(len(tests), processes)
    firsts: list[list[int]] = [[] for _ in rooms]
    busy_s = [0.0] * len(rooms)
    lengths = {name: sum(tests[i].seconds for i in members) for name, members in groups.items()}
    for name in sorted(groups, key=lambda name: (-lengths[name], name)):
        fitting = [at for at, room in enumerate(rooms) if len(firsts[at]) + len(groups[name]) <= room]
        if not fitting:
            return natural
        least = min(fitting, key=lambda at: busy_s[at])
        firsts[least] += groups[name]
        busy_s[least] += lengths[name]
    # Of the short ones the first are longer than the others: they go to the process that has the least.
    filled: dict[int, list[int]] = {}
    for at in sorted(range(len(rooms)), key=lambda at: busy_s[at]):
        room = rooms[at] - len(firsts[at])
        filled[at], short = firsts[at] + short[:room], short[room:]
    return [i for at in range(len(rooms)) for i in filled[at]]


def _equal(count: int, processes: int) -> list[int]:
    """How many tests each process is given at first."""
    rooms: list[int] = []
    for left in range(max(processes, 1), 0, -1):
        rooms.append((count - sum(rooms)) // left)
    return rooms

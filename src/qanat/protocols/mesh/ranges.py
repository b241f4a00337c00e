"""Ranges of sequence numbers: what is missing between what is there."""

from collections.abc import Iterable
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""First and last, both included."""

HOLES = 4
"""Holes that one answer may leave and be asked for one by one; with more, the whole span is asked for again.
An honest answer leaves one, before what its sender still has."""


def holes(first: int, last: int, covered: Iterable[Range]) -> list[Range]:
    """The parts of `first`..`last` that no range of `covered` (sorted by first) touches."""
    missing: list[Range] = []
    for low, high in covered:
        if low > last or first > last:
            break
        if low > first:
            missing.append((first, low - 1))
        first = max(first, high + 1)
    if first <= last:
        missing.append((first, last))
    return missing if len(missing) <= HOLES else [(missing[0][0], missing[-1][1])]

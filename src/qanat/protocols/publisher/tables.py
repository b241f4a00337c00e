"""Where a reader of tables is, and from where it goes on for somebody who is behind.

Rows are numbered as they are read, one after the other, and a number is given once: what is read again, later
and perhaps changed meanwhile, has higher ones. So whoever has had all up to a number lacks only rows that get
a higher one. Places are remembered between numbers and keys: who has had all up to the number has had every
row up to the key, since it was read before that number or at it.
"""

from bisect import bisect_right
from typing import NamedTuple

from qanat.events.position import Position

LAST_INDEX = 2**32 - 1
REMEMBERED = 4_096


class Where(NamedTuple):
    """Everything before this table is done, and of it all up to this key, or all if there is none."""

    table: str = ""
    key: tuple[str, ...] | None = None


class Snapshot(NamedTuple):
    """Of one part of an application: the rows have this sequence number of the log, and their own numbers as
    indexes; the log counts after that."""

    sequence: int
    epoch: int
    """Which numbering it is: one that was read elsewhere has other numbers for the same rows."""

    @property
    def end(self) -> Position:
        return Position(self.sequence, LAST_INDEX)

    def holds(self, position: Position) -> bool:
        """Whether somebody at this position has not had all rows."""
        return position.sequence == self.sequence and position.index < LAST_INDEX


class Places:
    """Of one numbering. Whoever is at a number or beyond it has had every row up to its place: so places rise
    with numbers."""

    def __init__(self) -> None:
        self._numbers = [0]
        self._wheres = [Where()]
        self.highest = 0
        self.run = 0
        """How often it was begun, or begun again; only the last may go on."""

    def begin(self, after: int, beyond: int) -> tuple[int, Where]:
        """For those who have had all up to `after`; nobody has had anything with a number above `beyond`.
        What was the number given last, and from where to read."""
        self.run += 1
        self.highest = max(self.highest, beyond)
        # They will be beyond all that was given since, and have had nothing of it: what was known of that
        # counts no more.
        kept = bisect_right(self._numbers, after)
        del self._numbers[kept:], self._wheres[kept:]
        self._remember(self._wheres[-1])
        return self.highest, self._wheres[-1]

    def read(self, run: int, count: int, where: Where) -> bool:
        """So many rows were read, and got the next numbers; False if another has begun since."""
        if run != self.run:
            return False
        self.highest += count
        self._remember(where)
        return True

    def _remember(self, where: Where) -> None:
        self._numbers.append(self.highest)
        self._wheres.append(where)
        if len(self._numbers) > REMEMBERED:  # less exactly, the longer ago
            del self._numbers[1 : REMEMBERED // 2 : 2], self._wheres[1 : REMEMBERED // 2 : 2]

"""Tables under the simulator: what is in them is what the log says, and they are read in pieces while it is
written."""

from typing import NamedTuple

from qanat.checks.publisher_log import Row, SimLog
from qanat.events.position import Position
from qanat.protocols.publisher.reading import ReadTables
from qanat.protocols.publisher.tables import Places, Where

KEYS = 15
"""Rows of a shard and a colour."""


class Key(NamedTuple):
    shard: str
    colour: str
    number: int

    @property
    def words(self) -> tuple[str, ...]:
        """In the same order."""
        return self.shard, self.colour, f"{self.number:04}"


def key_of(row: Row) -> Key | None:
    """The row of the table that an update sets; None if it concerns every shard."""
    return None if row.shard is None else Key(row.shard, row.colour, row.position.sequence % KEYS)


def table_at(log: SimLog, position: Position) -> dict[Key, Row]:
    """What the table has there: of each key the last update."""
    found: dict[Key, Row] = {}
    for row in log.rows:
        if row.position > position:
            break
        key = key_of(row)
        if key is not None:
            found[key] = row
    return found


class SimTables:
    """Readers of tables, one for each numbering."""

    def __init__(self, log: SimLog) -> None:
        self._log = log
        self._places: dict[object, tuple[Places, Position, Where]] = {}

    def read(
        self, reader: object, asked: ReadTables, after: Position, limit: int, newest: Position
    ) -> tuple[Position, list[tuple[Position, Row]]]:
        """Up to where, and rows with the positions that they get; `newest` is how far the copy is."""
        places, at, where = self._places.get((reader, asked.snapshot), (Places(), None, Where()))
        if at != after:
            _, where = places.begin(after.index, asked.beyond)
        first = places.highest + 1
        table = sorted(table_at(self._log, newest).items())
        rest = [(key, row) for key, row in table if where.key is None or key.words > where.key]
        taken = rest[:limit]
        if not taken:
            self._places[reader, asked.snapshot] = places, asked.snapshot.end, where
            return asked.snapshot.end, []
        where = Where("", taken[-1][0].words)
        places.read(places.run, len(taken), where)
        rows = [
            (Position(asked.snapshot.sequence, first + number), row) for number, (_, row) in enumerate(taken)
        ]
        self._places[reader, asked.snapshot] = places, rows[-1][0], where
        return rows[-1][0], rows

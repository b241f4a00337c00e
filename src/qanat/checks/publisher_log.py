"""A datastore's log in memory, as publishers under the simulator read it: one history, copies that lag behind
it, ends that are cut off."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from qanat.events.batch import Batch, stream_id
from qanat.events.position import Position

LOG = stream_id("log")
NOWHERE = Position(0, 0)


class Row(NamedTuple):
    """One update; `shard` is None for what concerns every shard."""

    position: Position
    shard: str | None
    colour: str
    time_us: int


class SimLog:
    """Positions rise; those of one transaction share their sequence number."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._cut: dict[str, int] = {}

    @property
    def newest(self) -> Position:
        return self.rows[-1].position if self.rows else NOWHERE

    def write(self, updates: Sequence[tuple[str | None, str]], now_us: int) -> None:
        """One transaction: shard and colour of each update."""
        sequence = self.newest.sequence + 1
        for index, (shard, colour) in enumerate(updates):
            self.rows.append(Row(Position(sequence, index), shard, colour, now_us))

    def cut(self, copy: str, keep: int) -> None:
        """A copy forgets all but its last updates."""
        self._cut[copy] = max(self._cut.get(copy, 0), len(self.rows) - keep)

    def cut_to(self, copy: str, upto: Position) -> None:
        """A copy forgets all up to there."""
        self._cut[copy] = max(self._cut.get(copy, 0), self._first_after(upto))

    def oldest(self, copy: str) -> Position:
        """Everything after it is there."""
        cut = self._cut.get(copy, 0)
        return self.rows[cut - 1].position if cut else NOWHERE

    def latest(self, before_us: int) -> Position:
        """Of a copy that has what was written by then."""
        count = self._visible(before_us)
        return self.rows[count - 1].position if count else NOWHERE

    def last_before(self, position: Position) -> Row | None:
        """The last update up to there, that included."""
        count = self._first_after(position)
        return self.rows[count - 1] if count else None

    def after(self, position: Position, limit: int, before_us: int) -> list[Row]:
        start = self._first_after(position)
        return self.rows[start : min(start + limit, self._visible(before_us))]

    def _first_after(self, position: Position) -> int:
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            if self.rows[middle].position <= position:
                low = middle + 1
            else:
                high = middle
        return low

    def _visible(self, before_us: int) -> int:
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            if self.rows[middle].time_us <= before_us:
                low = middle + 1
            else:
                high = middle
        return low


def mark_of(row: Row) -> bytes:
    """By which it is known again."""
    return str(row.position).encode()


def batch_of(rows: Sequence[Row], places: Sequence[Position] = ()) -> Batch:
    """As a log reader gives it; with `places`, as a reader of tables does, which gives each row a position of
    its own."""
    ops = ["read" if places else "truncate" if row.shard is None else "insert" for row in rows]
    places = places or [row.position for row in rows]
    return Batch.build(
        LOG,
        [str(row.position).encode() for row in rows],
        times=[row.time_us for row in rows],
        attributes={
            "#S": [pa.array([row.shard for row in rows], pa.string())],
            "#op": [pa.array(ops, pa.string())],
            "colour": [pa.array([row.colour for row in rows], pa.string())],
        },
        source="log",
        positions=(
            np.array([place.sequence for place in places], np.uint64),
            np.array([place.index for place in places], np.uint32),
        ),
    )


def positions_in(batch: Batch) -> list[Position]:
    places = batch.positions()
    assert places is not None
    return [Position(int(sequence), int(index)) for sequence, index in zip(places[0], places[1], strict=True)]

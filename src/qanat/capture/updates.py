"""Updates as columns: runs of rows of one table, in the order of their log.

An update is a set of key-value pairs whatever the datastore (Wormhole, section 3): the columns of its row
before and after, and beside them what happened, where in the log, in which transaction and when. A run holds
them as Arrow and NumPy columns, so that decoders fill columns and whoever filters, routes or publishes them
never loops over rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.table import Table
from qanat.events.errors import InvariantError
from qanat.events.position import Position


class Op(IntEnum):
    """What happened to a row. `READ` is a row that a snapshot found; `PUT` sets a value without saying
    whether there was one; `MERGE` adds an operand to a value; `DELETE_RANGE` has its bounds in `before`
    (first key) and `after` (end key)."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    TRUNCATE = 3
    READ = 4
    PUT = 5
    MERGE = 6
    DELETE_RANGE = 7


class Update(NamedTuple):
    """One update, for tests, for printing, and for applications that take them one by one."""

    position: Position
    op: Op
    table: Table
    transaction: str
    time_us: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    unchanged: tuple[str, ...]
    """Columns whose values the log leaves out because they did not change (PostgreSQL, values stored out of
    line)."""


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent updates of one version of one table; all columns have `len(ops)` rows.

    `after` is None if no row has one (deletions), else a record batch with the table's columns, in which rows
    without one are all null; `before` likewise. `has_before` and `has_after` tell a row that has none from
    one of nulls; None: as `ops` says (`before` for UPDATE and DELETE if there is such a batch, `after` for
    all but DELETE and TRUNCATE).
    """

    table: Table
    ops: npt.NDArray[np.uint8]
    sequences: npt.NDArray[np.uint64]
    indexes: npt.NDArray[np.uint32]
    """The order inside the transaction, from 0."""
    times_us: npt.NDArray[np.int64]
    """When the transaction was committed, in microseconds since the epoch."""
    transactions: pa.DictionaryArray
    """What the datastore calls the transaction (a GTID, an LSN, …), as strings."""
    after: pa.RecordBatch | None = None
    before: pa.RecordBatch | None = None
    has_after: npt.NDArray[np.bool_] | None = None
    has_before: npt.NDArray[np.bool_] | None = None
    unchanged: dict[str, npt.NDArray[np.bool_]] | None = None
    key_only: npt.NDArray[np.bool_] | None = None
    """Rows whose image before has the columns of the key alone: what else is null there is not known."""

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def afters(self) -> npt.NDArray[np.bool_]:
        """Which rows have an image after the update."""
        if self.has_after is not None:
            return self.has_after
        if self.after is None:
            return np.zeros(len(self), bool)
        return np.isin(self.ops, (Op.DELETE, Op.TRUNCATE), invert=True)

    @property
    def befores(self) -> npt.NDArray[np.bool_]:
        if self.has_before is not None:
            return self.has_before
        if self.before is None:
            return np.zeros(len(self), bool)
        return np.isin(self.ops, (Op.UPDATE, Op.DELETE, Op.DELETE_RANGE))

    def slice(self, start: int, stop: int) -> "Run":
        """A view of some rows."""
        part = slice(start, stop)

        def mask(values: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
            return None if values is None else values[part]

        count = len(self.ops[part])
        return Run(
            self.table,
            self.ops[part],
            self.sequences[part],
            self.indexes[part],
            self.times_us[part],
            self.transactions.slice(start, count),
            None if self.after is None else self.after.slice(start, count),
            None if self.before is None else self.before.slice(start, count),
            mask(self.has_after),
            mask(self.has_before),
            None if self.unchanged is None else {name: bits[part] for name, bits in self.unchanged.items()},
            mask(self.key_only),
        )

    def take(self, chosen: npt.NDArray[np.bool_]) -> "Run":
        """Some rows, copied."""
        rows = pa.array(np.flatnonzero(chosen))

        def mask(values: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
            return None if values is None else values[chosen]

        return Run(
            self.table,
            self.ops[chosen],
            self.sequences[chosen],
            self.indexes[chosen],
            self.times_us[chosen],
            self.transactions.take(rows),
            None if self.after is None else self.after.take(rows),
            None if self.before is None else self.before.take(rows),
            mask(self.has_after),
            mask(self.has_before),
            None if self.unchanged is None else {name: bits[chosen] for name, bits in self.unchanged.items()},
            mask(self.key_only),
        )

    def position(self, row: int) -> Position:
        return Position(int(self.sequences[row]), int(self.indexes[row]))

    def rows(self) -> Iterator[Update]:
        """One by one; a loop, so not for bulk."""
        afters, befores = self.afters, self.befores
        images_after = [] if self.after is None else self.after.to_pylist()
        images_before = [] if self.before is None else self.before.to_pylist()
        transactions = self.transactions.to_pylist()
        for row in range(len(self)):
            kept = self.unchanged or {}
            unchanged = tuple(name for name, bits in kept.items() if bits[row])
            after = images_after[row] if afters[row] else None
            if after is not None and unchanged:
                after = {name: value for name, value in after.items() if name not in unchanged}
            before = images_before[row] if befores[row] else None
            if before is not None and self.key_only is not None and self.key_only[row]:
                before = {name: before[name] for name in self.table.key}
            yield Update(
                self.position(row),
                Op(int(self.ops[row])),
                self.table,
                transactions[row],
                int(self.times_us[row]),
                before,
                after,
                unchanged,
            )


class Updates:
    """Runs in the order of their log: positions rise strictly from row to row."""

    __slots__ = ("runs", "upto")

    def __init__(self, runs: Sequence[Run] = (), upto: Position | None = None) -> None:
        """`upto`: the log was read up to here, though the last updates may be of other tables, or none at
        all; what is resumed from."""
        self.runs = tuple(run for run in runs if len(run))
        last = self.runs[-1].position(-1) if self.runs else None
        if upto is None:
            upto = last
        elif last is not None and upto < last:
            raise InvariantError(f"updates up to {last} cannot be read up to {upto}")
        self.upto = upto

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __bool__(self) -> bool:
        return bool(self.runs)

    def rows(self) -> Iterator[Update]:
        for run in self.runs:
            yield from run.rows()

    def after(self, position: Position) -> "Updates":
        """Without what lies at or before the position: what a resume in the middle of a transaction drops."""
        kept = []
        for run in self.runs:
            beyond = (run.sequences > position.sequence) | (
                (run.sequences == position.sequence) & (run.indexes > position.index)
            )
            start = int(np.argmax(beyond)) if beyond.any() else len(run)
            kept.append(run.slice(start, len(run)))
        return Updates(kept, self.upto)

"""Updates that change a row's key, as a deletion of the old row and an insertion of the new one.

A shard, a cache and a table by key know a row by its key. An update that changes it says `update` under the
new key, so the row under the old key would stay where it was: in its old shard, if the shard is made of the
key. With the log's option `split` such an update becomes two, in this order: the deletion, which belongs to
the old key's shard, and the insertion, which belongs to the new one's.

Two updates need two positions. So every position of a log that is read this way has another index, in a
numbering with room for both, and the log has another source: a stream, a checkpoint or a publisher that was
fed without the option cannot go on with it by mistake.

| of the row with the index i in its transaction | index |
|---|---|
| its deletion under the old key | 4i + 1 |
| its insertion under the new key | 4i + 2 |
| any other update | 4i + 3 |
| the end of the transaction, 2³² - 1 | 2³² - 1 |
"""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.continuity import Expecting, Mark
from qanat.capture.errors import MalformedLog
from qanat.capture.reader import Acknowledging, Dividing, Filtering, LogReader, Lost, Start
from qanat.capture.sharding import Sharding
from qanat.capture.updates import Op, Run, Updates
from qanat.events.errors import LocalError
from qanat.events.position import Position

log = logging.getLogger("qanat.capture")

NEVER, KEY = "never", "key"
SPLIT_OPTIONS = {
    "split": (
        "key: an update that changes the primary key comes as a deletion and an insertion; key,COLUMN: one"
        " that changes this column, too; never: it comes as it is, and nobody is warned"
    ),
}
LAST_INDEX = (1 << 32) - 1
_ROOM = 4
_MOST = LAST_INDEX // _ROOM - 1
_DELETED, _INSERTED, _AS_IT_IS = 1, 2, 3

Bools = npt.NDArray[np.bool_]


def warning(options: Mapping[str, str], known: Mapping[str, str], sharding: Sharding) -> str:
    """What a person should know before a log is read by shards; empty if all is said."""
    asked = options.get("split", "")
    if asked == NEVER or "split" not in known or (not sharding.shards and sharding == Sharding()):
        return ""
    columns = _columns(asked)
    if sharding.shards:
        if asked:
            return ""
        of, wanted = "primary key", KEY
    else:
        if sharding.column in columns:
            return ""
        of, wanted = f"primary key or column {sharding.column!r}", f"{KEY},{sharding.column}"
    return (
        f"an update that changes a row's {of} leaves the old row in its old shard; with ?split={wanted} in"
        " the log's URL it becomes a deletion there and an insertion here, under another source;"
        " ?split=never says that it never happens"
    )


def split(reader: LogReader, asked: str) -> LogReader:
    """The reader itself if nothing is to be split."""
    if asked in ("", NEVER):
        return reader
    parts = [part for protocol, part in _PARTS.items() if isinstance(reader, protocol)]
    made: type[SplitReader] = type("SplitReader", (*parts, SplitReader), {})
    return made(reader, _columns(asked))


def _columns(asked: str) -> tuple[str, ...]:
    """Beside the key, whose change splits an update."""
    if asked in ("", NEVER):
        return ()
    first, *others = (part.strip() for part in asked.split(","))
    if first != KEY or not all(others):
        raise LocalError(f"split={asked}: write split=key, split=key,COLUMN or split=never")
    return tuple(others)


class SplitReader(LogReader):
    """Any reader, in the wider numbering."""

    def __init__(self, reader: LogReader, columns: Sequence[str]) -> None:
        self._reader, self._extra = reader, tuple(columns)
        self._beyond = Position(0, 0)
        """What lies up to here was had: one half of a split update may have been."""
        self._blind: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    @property
    def source(self) -> str:
        return "/".join((self._reader.source, "split", *self._extra))

    @property
    def identified(self) -> bool:
        return self._reader.identified

    def seek(self, start: Start) -> None:
        self._beyond = Position(0, 0) if isinstance(start, str) else start
        self._reader.seek(start if isinstance(start, str) else narrow(start))

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        try:
            item = self._reader.read(limit, wait_s)
        except MalformedLog as error:
            told = copy.copy(error)
            told.position = error.position and wide(error.position)
            told.resume = error.resume and wide(error.resume)
            raise told from error
        if isinstance(item, Lost):
            return Lost(wide(item.after), wide(item.upto), item.reason)
        made = Updates([self._split(run) for run in item.runs], item.upto and wide(item.upto))
        if made.upto is None or self._beyond == (0, 0):
            return made
        made = Updates(made.after(self._beyond).runs, max(made.upto, self._beyond))
        self._beyond = Position(0, 0) if made else self._beyond
        return made

    def oldest(self) -> Position:
        return wide(self._reader.oldest())

    def latest(self) -> Position:
        return wide(self._reader.latest())

    def close(self) -> None:
        self._reader.close()

    def _split(self, run: Run) -> Run:
        moved = self._moved(run)
        if int(run.indexes.max(initial=0)) > _MOST:
            raise LocalError(
                f"a transaction has more than {_MOST:,} updates, more than there are numbers for with split="
            )
        if not moved.any():
            return replace(run, indexes=run.indexes * np.uint32(_ROOM) + np.uint32(_AS_IT_IS))
        return halves(run, moved)

    def _moved(self, run: Run) -> Bools:
        """Updates after which the row has another key."""
        found = np.zeros(len(run), bool)
        both = (run.ops == Op.UPDATE) & run.afters & run.befores
        if run.before is None or run.after is None or not both.any():
            self._warn_of(run, both)
            return found
        for name in run.table.key:
            found |= _differ(run, name)
        for name in self._extra:
            if name not in run.table.arrow.names or name in run.table.key:
                continue
            found |= _differ(run, name) & self._known(run, both)
        found &= both
        return found

    def _known(self, run: Run, both: Bools) -> Bools:
        """Rows of which the log has all columns as they were."""
        known: Bools = both if run.key_only is None else both & ~run.key_only
        self._warn_of(run, known)
        return known

    def _warn_of(self, run: Run, known: Bools) -> None:
        """Once for each table, where the log lacks what a change of these columns is seen by."""
        asked = [name for name in self._extra if name in run.table.arrow.names]
        if asked and run.table.path not in self._blind and (known < (run.ops == Op.UPDATE)).any():
            self._blind.add(run.table.path)
            log.warning(
                "updates that change %s are not split: the log of %s has no old value of it (PostgreSQL:"
                " ALTER TABLE … REPLICA IDENTITY FULL)",
                ", ".join(asked),
                run.table.path,
            )


class _Acknowledges(SplitReader):
    def acknowledge(self, position: Position, resume: Position | None = None) -> None:
        self._reader.acknowledge(narrow(position), resume and narrow(resume))  # type: ignore[attr-defined]

    def advance(self, position: Position) -> None:
        self._reader.advance(narrow(position))  # type: ignore[attr-defined]


class _Filters(SplitReader):
    def leave_out_but(self, where: str) -> None:
        self._reader.leave_out_but(where)  # type: ignore[attr-defined]


class _Divides(SplitReader):
    def divide(self, after: Position, upto: Position, rows: int) -> Position:
        return min(upto, wide(self._reader.divide(narrow(after), narrow(upto), rows)))  # type: ignore[attr-defined]


class _Expects(SplitReader):
    def expect(self, last: Mark) -> None:
        """The deletion of a split update has a key that the log's own update is not known by: there is
        nothing to compare."""
        index = last.position.index
        if index % _ROOM == _INSERTED:
            last = last._replace(op=Op.UPDATE)
        if index == LAST_INDEX or index % _ROOM in (_INSERTED, _AS_IT_IS):
            self._reader.expect(last._replace(position=narrow(last.position)))  # type: ignore[attr-defined]


_PARTS: dict[Any, type[SplitReader]] = {
    Acknowledging: _Acknowledges,
    Filtering: _Filters,
    Dividing: _Divides,
    Expecting: _Expects,
}


def wide(position: Position) -> Position:
    """A position of the log, in the numbering with room."""
    sequence, index = position
    if index >= LAST_INDEX or position == (0, 0):
        return position
    return Position(sequence, index * _ROOM + _AS_IT_IS)


def narrow(position: Position) -> Position:
    """Everything up to here lies up to the given position too: of an update of which only the deletion was
    had, what comes before it."""
    sequence, index = position
    if index == LAST_INDEX or position == (0, 0):
        return position
    row, part = divmod(index, _ROOM)
    if part >= _INSERTED:
        return Position(sequence, row)
    if row:
        return Position(sequence, row - 1)
    return Position(sequence - 1, LAST_INDEX) if sequence else Position(0, 0)


def halves(run: Run, moved: Bools) -> Run:
    """Each of the chosen updates as a deletion and an insertion, in their places among the others."""
    rows = np.repeat(np.arange(len(run)), 1 + moved)
    first = np.ones(len(rows), bool)
    first[1:] = rows[1:] != rows[:-1]
    deleted = moved[rows] & first
    inserted = moved[rows] & ~first
    ops = run.ops[rows]
    ops[deleted], ops[inserted] = Op.DELETE, Op.INSERT
    part = np.where(deleted, _DELETED, np.where(inserted, _INSERTED, _AS_IT_IS)).astype(np.uint32)
    taken = pa.array(rows)
    key_only = None if run.key_only is None else run.key_only[rows] & ~inserted
    return Run(
        run.table,
        ops,
        run.sequences[rows],
        run.indexes[rows] * np.uint32(_ROOM) + part,
        run.times_us[rows],
        run.transactions.take(taken),
        _without(run.after, taken, deleted),
        _without(run.before, taken, inserted),
        run.afters[rows] & ~deleted,
        run.befores[rows] & ~inserted,
        (
            None
            if run.unchanged is None
            else {name: bits[rows] & ~deleted for name, bits in run.unchanged.items()}
        ),
        key_only,
    )


def _without(images: pa.RecordBatch | None, rows: pa.Array, gone: Bools) -> pa.RecordBatch | None:
    if images is None:
        return None
    taken, mask = images.take(rows), pa.array(~gone)
    columns = [pc.if_else(mask, column, pa.scalar(None, column.type)) for column in taken.columns]
    return pa.RecordBatch.from_arrays(columns, schema=taken.schema)


def _differ(run: Run, name: str) -> Bools:
    """Rows in which a column is another after the update; null is a value of its own."""
    assert run.before is not None and run.after is not None
    before, after = _plain(run.before.column(name)), _plain(run.after.column(name))
    equal = pc.fill_null(pc.equal(before, after), False)
    both_null = pc.and_(pc.is_null(before), pc.is_null(after))
    different: Bools = ~np.asarray(pc.or_(equal, both_null))
    kept = None if run.unchanged is None else run.unchanged.get(name)
    return different if kept is None else different & ~kept


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values

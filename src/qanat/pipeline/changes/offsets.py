"""Offsets of a job that reads a log: a position, of which dataset, and what the log has there.

A position alone says where, not in which history. So an offset also has the name of the log's source, and the
last update before it as far as that is
known: a checkpoint that belongs to another dataset, or to one that was reset or restored, is noticed and not
read over.

`began` is where the job began without a checkpoint. Spark asks for that anew if it was ended before its first
batch was done, and would get another answer where the job begins with what is latest: the first batch, whose
end it has written down, would be read from behind its own beginning.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from qanat.capture.continuity import Expecting, Mark
from qanat.capture.reader import LogReader
from qanat.capture.rocksdb.positions import own_position
from qanat.capture.updates import Op
from qanat.events.errors import LocalError
from qanat.events.position import Position


class ChangesDisagree(LocalError):
    """A job's checkpoint and the log that it reads do not belong together, or no longer; the sentence says
    what to do."""


class Taken(NamedTuple):
    """How far a snapshot is, of which the log's position is the offset's own."""

    tables: tuple[str, ...]
    """Those that are not done; the first is being read."""
    after: tuple[str, ...] | None = None
    """The key of the last row that was read of the first table."""
    rows: int = 0
    batch: int = 0
    """How many micro-batches it had."""


class Offset(NamedTuple):
    source: str
    position: Position
    began: Position
    last: Mark | None = None
    """The last update up to there, if it is of the very transaction that the position is in."""
    taken: Taken | None = None
    """While there are tables whose rows are still to come."""

    def moved(self, position: Position, last: Mark | None) -> "Offset":
        """Further on in the same log."""
        known = last or self.last
        same = known is not None and known.position.sequence == position.sequence
        return Offset(self.source, position, self.began, known if same else None)

    def json(self) -> dict[str, Any]:
        """As Spark keeps it. Two offsets are the same to Spark if their text is."""
        made: dict[str, Any] = {
            "source": self.source,
            "position": str(self.position),
            "began": str(self.began),
        }
        if self.last is not None:
            _, transaction, time_us, op, table, key = self.last
            at = str(self.last.position)
            made["last"] = [at, transaction, time_us, op.name.lower(), table, key.hex()]
        if self.taken is not None:
            made["snapshot"] = self.taken._asdict()
        return made

    @classmethod
    def read(cls, made: Mapping[str, Any]) -> "Offset":
        try:
            last, taken = made.get("last"), made.get("snapshot")
            return cls(
                str(made["source"]),
                Position.parse(made["position"]),
                Position.parse(made["began"]),
                None if last is None else _mark(last),
                None if taken is None else _taken(taken),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ChangesDisagree(
                f"the checkpoint has an offset that is not one of a log ({type(error).__name__}: {error}): it"
                " belongs to another job; give this one a checkpoint of its own"
            ) from None


def _mark(made: list[Any]) -> Mark:
    at, transaction, time_us, op, table, key = made
    return Mark(Position.parse(at), transaction, int(time_us), Op[op.upper()], table, bytes.fromhex(key))


def _taken(made: Mapping[str, Any]) -> Taken:
    after = made["after"]
    return Taken(
        tuple(map(str, made["tables"])),
        None if after is None else tuple(map(str, after)),
        int(made["rows"]),
        int(made["batch"]),
    )


def first(start: Offset, end: Offset) -> Offset:
    """Where a batch that Spark does again begins: the job's own beginning, if what it now takes for that is
    another."""
    if start.began == end.began:
        return start
    return Offset(end.source, end.began, end.began, taken=start.taken)


def is_beyond(scheme: str, newest: Position, after: Position) -> bool:
    """Whether there may be an update after a position, up to what is the log's end.

    A RocksDB whose log was flushed knows its end by its own number alone, which may be that of an entry
    within a batch.
    """
    if scheme == "rocksdb":
        return own_position(newest) > own_position(after)
    return newest > after


def place(reader: LogReader, at: Offset, log: str, scheme: str = "") -> None:
    """Seeks the reader, or says why the offset is none of its log."""
    if at.source != reader.source:
        raise ChangesDisagree(
            f"the checkpoint is of the dataset {at.source!r}, but {log} is {reader.source!r}: the URL is"
            " another one, or the database behind it was replaced; name the log that the checkpoint is of,"
            " or begin with a new checkpoint"
        )
    newest = reader.latest()
    if is_beyond(scheme, at.position, newest):
        raise ChangesDisagree(
            f"the checkpoint is at {at.position}, but the newest update of {log} is {newest}: the database"
            " was restored from a backup or lost its end, or this is a replica that lags behind; use the"
            " replica that has it, or begin with a new checkpoint and a new stream"
        )
    reader.seek(at.position)
    if at.last is not None and isinstance(reader, Expecting):
        reader.expect(at.last)

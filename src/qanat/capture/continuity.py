"""Whether a log is the one that was read before.

A position says where, not of which history: a server whose log was reset, that was restored from a backup, or
that lost what it had not yet synced, gives out the same positions again, for other updates. Whoever goes on
at his position would pass over them. So a feed compares the last update that the stream has with the one that
the log has at its position, a publisher the last one before each datamarker; a log that was read a moment ago
is compared likewise when its connection broke.
"""

from hashlib import blake2b
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from qanat.capture.errors import OtherLog
from qanat.capture.sharding import keys
from qanat.capture.updates import Op, Run, Updates
from qanat.events.position import Position

_KEY_BYTES = 200
"""Longer keys are known by their beginning and a digest, so that what is kept of an update is small."""


class Mark(NamedTuple):
    """What tells an update from another at the same position, and is the same on every replica."""

    position: Position
    transaction: str
    time_us: int
    op: Op
    table: str
    key: bytes

    def __str__(self) -> str:
        return (
            f"{self.op.name.lower()} of {self.table} {self.key.decode(errors='replace')!r} in transaction"
            f" {self.transaction}"
        )


@runtime_checkable
class Expecting(Protocol):
    """A reader that compares; others have no such method."""

    def expect(self, last: Mark) -> None:
        """The update at the position that was sought is this one: if the log has another there, the next read
        raises `OtherLog`.

        Where the log no longer has the position there is nothing to compare.
        """


def mark_of(run: Run, row: int) -> Mark:
    one = run.slice(row, row + 1)
    transaction = one.transactions[0].as_py()
    return Mark(
        one.position(0), transaction, int(one.times_us[0]), Op(int(one.ops[0])), run.table.path, keys(one)[0]
    )


def mark_at(updates: Updates, position: Position) -> Mark | None:
    for run in updates.runs:
        hits = np.flatnonzero((run.sequences == position.sequence) & (run.indexes == position.index))
        if len(hits):
            return mark_of(run, int(hits[0]))
    return None


def compare(expected: Mark, found: Mark | None, log: str) -> None:
    if found is None or _short(found) != _short(expected):
        raise OtherLog(
            f"{log} is not the log that was read before: at {expected.position} it has"
            f" {found or 'no update'}, where there was {expected}. It is another dataset, or it was reset,"
            " restored, or lost its end",
            "what it has now can be fed into a new stream, or into this one as another source (dataset=)",
        )


def agrees(expected: Mark, found: Mark) -> bool:
    """Whether it is the same update, wherever it was read. A key may be another by now, and so may the name
    of the table be on a replica: where the log has times, the transaction and its time tell enough."""
    one, other = _short(expected), _short(found)
    return one[:4] == other[:4] and (one.time_us > 0 or one.key == other.key)


def _short(mark: Mark) -> Mark:
    if len(mark.key) <= _KEY_BYTES:
        return mark
    return mark._replace(key=mark.key[:64] + b"#" + blake2b(mark.key, digest_size=16).hexdigest().encode())


def packed(mark: Mark) -> bytes:
    """To be kept, and to be compared with; its key may be shortened."""
    return _encode(_short(mark))


_encode = msgspec.msgpack.Encoder().encode
unpacked = msgspec.msgpack.Decoder(Mark).decode

"""Logical positions and RocksDB's own sequence numbers.

The sequence of a position is that of the write batch, the index the entry's place in it, and RocksDB's own
number of the entry is their sum. A replica that was made from a checkpoint and is fed the same batches has
the same numbers, so the mapper is no more than this sum.
"""

from qanat.events.position import Position


def before(sequence: int) -> Position:
    """The position of whoever has everything before the batch that begins with this number."""
    return Position(max(sequence - 1, 0), 0)


def own_position(position: Position) -> int:
    """The sequence number of the entry, as `GetLatestSequenceNumber` and `GetUpdatesSince` speak of it."""
    return position.sequence + position.index


def next_sequence(position: Position) -> int:
    """What the next entry has, and the next batch if the position is the last of its own."""
    return own_position(position) + 1 if position.sequence else 1

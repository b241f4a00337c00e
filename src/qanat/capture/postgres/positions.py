"""Log sequence numbers (LSNs), which are the positions of PostgreSQL, and the logical positions made of them.

The sequence of a position is the LSN at which the transaction's commit record begins. A physical standby has
the same WAL byte for byte, so it is the same number on every replica, and the mapper is no more than a way of
writing it.
"""

import re

from qanat.events.errors import LocalError
from qanat.events.position import Position

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def lsn_text(lsn: int) -> str:
    """As PostgreSQL prints it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    found = _LSN.fullmatch(text)
    if found is None:
        raise LocalError(f"{text!r} is not a log sequence number; write it as PostgreSQL does: 16/B374D848")
    return int(found[1], 16) << 32 | int(found[2], 16)


def before(lsn: int) -> Position:
    """The position of whoever has everything that was committed before this LSN, and nothing at or after it.

    One byte less, because a transaction may begin its commit record at the very LSN at which the one before
    ended.
    """
    return Position(max(lsn - 1, 0), 0)


def own_position(position: Position) -> str:
    """Where a replication slot is to begin so that this position's transaction is still sent."""
    return lsn_text(position.sequence)


def logical_position(text: str) -> Position:
    """From what `pg_current_wal_lsn()` and its like return: all that was committed before."""
    return before(parse_lsn(text))

"""Positions in a row of files: `sequence = file number << 40 | offset of the record`, `index` = the record's
place in its Avro block.

The mapper is this arithmetic and the register of numbers (`register`): a number stands for the same bytes at
every reader. The greatest offset is never a record's: it is the end of a file, whatever its length, and so
what comes before the first record of the next.
"""

from typing import NamedTuple

from qanat.events.errors import LocalError
from qanat.events.position import Position

OFFSET_BITS = 40
END_OFFSET = (1 << OFFSET_BITS) - 1
"""Files are shorter than this: 1 TiB."""
GREATEST_NUMBER = (1 << (63 - OFFSET_BITS)) - 1
"""Positions end at 2^63."""
WHOLE_BLOCK = (1 << 32) - 1
"""An index behind every record of a block."""


class Place(NamedTuple):
    """A byte of a numbered file."""

    number: int
    offset: int

    @property
    def sequence(self) -> int:
        return self.number << OFFSET_BITS | self.offset


def place_of(position: Position) -> Place:
    if position.sequence >> 64:
        raise LocalError(f"{position} is no position in files: its sequence has more than 64 bits")
    return Place(position.sequence >> OFFSET_BITS, position.sequence & END_OFFSET)


def end_of(number: int) -> Position:
    """Behind everything in this file, and before everything in the next."""
    return Position(Place(number, END_OFFSET).sequence, 0)

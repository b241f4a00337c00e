"""What tells the history of a log that was read from another one.

A position says where, not in which history: a replica that was made the primary without the last transactions
of the old one, or a server that was restored, gives the same positions out again, for other updates. Whoever
goes on there would pass over some of them in silence. So every traveller has, beside the place where it is,
the last update that the log had up to there; whoever reads on compares. What a mark is made of is the
readers' own affair.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from qanat.events.position import Position


class Witness(NamedTuple):
    """The last update that the log has up to `upto`, that included."""

    upto: Position
    mark: bytes


Seen: TypeAlias = Witness | None
"""None: it is not known, and nothing is compared."""


def better(one: Seen, other: Seen) -> Seen:
    """The one that says more: of two that are true, the later."""
    if one is None or other is None:
        return one or other
    return other if other.upto > one.upto else one


def best(found: Iterable[Seen]) -> Seen:
    chosen: Seen = None
    for one in found:
        chosen = better(chosen, one)
    return chosen

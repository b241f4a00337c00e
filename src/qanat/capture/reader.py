"""The one interface to a log, whatever datastore it is of."""

from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from qanat.capture.updates import Updates
from qanat.events.position import Position

Start: TypeAlias = Position | Literal["earliest", "latest"]


class Lost(NamedTuple):
    """The answer to a read of what the log no longer has: every update after `after` and up to `upto` is
    gone, and read on is from there. `reason` says in a sentence why (log files purged, slot dropped, …)."""

    after: Position
    upto: Position
    reason: str


class LogReader(Protocol):
    """A place in one ordered log. Blocking, and for one thread; two readers of one log do not know of each
    other.

    Positions are logical: they name the same update on every replica of the dataset. A reader that is sought
    to a position again gives the same updates again, as long as the log has them.
    """

    @property
    def source(self) -> str:
        """The name of the ordered writer whose positions these are, the same on every replica of the
        dataset."""

    @property
    def identified(self) -> bool:
        """Whether no other dataset has this `source`: it was made of what identifies the dataset, or somebody
        chose it.

        Where positions are kept under `source`, those of another dataset by the same name would hide updates
        of this one.
        """

    def seek(self, start: Start) -> None:
        """The next read begins with the first update after this position. (A resume gives the last position
        that was taken.)"""

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        """At most about `limit` updates, in order; fewer, as soon as there are any; none if nothing came in
        `wait_s`.

        A transaction may be cut anywhere: its next part comes with the next read, or after a seek into its
        middle. Raises `LocalError` or `RemoteError` when the datastore cannot be reached or read; the
        position then stays where it was.
        """

    def oldest(self) -> Position:
        """All updates after this position can still be read."""

    def latest(self) -> Position:
        """The position of the newest committed update."""

    def close(self) -> None:
        """Gives connections and files back."""


@runtime_checkable
class Acknowledging(Protocol):
    """A reader whose datastore keeps its log until it is told that it is no longer needed; others have no
    such method."""

    def acknowledge(self, position: Position, resume: Position | None = None) -> None:
        """Everything up to `position` is done with, durably, and nobody will seek to before `resume` (None:
        to before `position`).

        The two differ where only the updates that were kept are remembered, as the last position in a stream
        is: `resume` is then that one, and `position` is how far the log was read. To be called as soon as
        that is so, by whoever stores the updates and not by the slowest of those who read the store. Cheap;
        may be told to the datastore a little later.
        """

    def advance(self, position: Position) -> None:
        """The same, by one who reads nothing: others are done with it, and only for the sake of whoever may
        have to go on from there is the log kept. Takes a while; nothing happens while somebody reads, who
        tells it himself."""


@runtime_checkable
class Filtering(Protocol):
    """A reader whose datastore evaluates filters itself; others have no such method."""

    def leave_out_but(self, where: str) -> None:
        """What does not pass the filter need not be given. Positions, and the name of the source, stay what
        they are; so does what is told of losses."""


@runtime_checkable
class Dividing(Protocol):
    """A reader that knows places in its log to which it comes quickly, so that parts of the log can be read
    by several; others have no such method."""

    def divide(self, after: Position, upto: Position, rows: int) -> Position:
        """Such a place behind `after`, with about so many rows between them; `upto` if none lies before
        that."""

"""What a proxy stores of each stream: the paper's `Hist` and `cnt` (Sprinkler, section 3.1), as protocols see
them.

Two keep it: `MemoryHistory` (`history_memory.py`), and in `qanat.serving` the stream log. Protocols hold one
and never ask which.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from qanat.events.batch import Batch
from qanat.events.errors import InvariantError, LocalError

Highest = Mapping[str, tuple[int, int]]
"""The highest (sequence, index) that was stored of each source."""


class HistoryGap(InvariantError):
    """A numbered batch that does not continue the stream; whoever hands batches to a history looks at its
    counter first."""


class HistoryTruncated(LocalError):
    """What was asked for is no longer held: `first`..`last` were dropped for want of room, without
    tombstones."""

    def __init__(self, stream: int, first: int, last: int) -> None:
        super().__init__(
            f"events {first}..{last} of stream {stream:#x} were dropped to stay within the history's bound; "
            "ask another proxy for them, or raise the bound"
        )
        self.stream, self.first, self.last = stream, first, last


class Numbered(NamedTuple):
    """first..last are the new numbers (last < first if there is none); `dropped` rows were had already."""

    first: int
    last: int
    dropped: int


class Synced(msgspec.Struct, frozen=True):
    """A machine's request (an input): the stream's events up to `upto` now survive a power cut."""

    stream: int
    upto: int


class History(Protocol):
    """What a proxy stores of each stream.

    Appends take effect at once for readers here; that they would survive a power cut is told later, to the
    machine, as a request `Synced`. Streams need no opening: one that was never appended to has the counter 0.
    """

    def counter(self, stream: int) -> int:
        """The highest sequence number held, 0 if none: the paper's `cnt`."""

    def durable(self, stream: int) -> int:
        """The highest sequence number that survives a power cut; the counter itself in memory mode."""

    def append(self, batch: Batch) -> Numbered:
        """The owner's: numbers the rows and drops those whose source position is had.

        Raises a definite `LocalError`, with nothing stored, for what cannot be taken: a gap in a source's
        positions, no room, a batch that is not for publishing.
        """

    def append_numbered(self, batch: Batch) -> None:
        """Takes what was numbered elsewhere; what is had is dropped, a gap raises an error."""

    def read(self, stream: int, start: int, max_bytes: int, upto: int | None = None) -> list[Batch]:
        """Whole batches as they lie, from the one that covers `start`, to be forwarded without re-encoding.

        At most `max_bytes`, unless the first alone is larger; none that ends after `upto`. The first may
        begin before `start`. Empty when there is nothing there yet. Raises `HistoryTruncated`.
        """

    def positions(self, stream: int) -> dict[str, tuple[int, int]]:
        """The highest position of each source, a copy; what a new replica starts from."""

    def adopt_positions(self, stream: int, highest: Highest) -> None:
        """Takes the higher of each position: whoever was given tombstones never saw those events' own."""

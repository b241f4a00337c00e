"""The one position: where in its source's own order an update stands."""

from typing import NamedTuple

from qanat.events.ranges import SourceIndex, SourceSequence


class Position(NamedTuple):
    """(sequence, index): a transaction or message of the source, and the place inside it.

    Positions of one source compare as tuples. Datamarkers, Spark offsets, publisher failover and
    duplicate suppression all speak this.
    """

    sequence: SourceSequence
    index: SourceIndex = 0  # type: ignore[assignment]  # shadows tuple.index, which nobody wants here

    def __str__(self) -> str:
        return f"{self.sequence}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Reads `sequence:index` or a bare sequence; raises ValueError with the text in it."""
        sequence, colon, index = text.partition(":")
        if not sequence.isdigit() or (colon and not index.isdigit()):
            raise ValueError(f"{text!r} is not a position; write sequence:index, as 1042:0")
        return cls(int(sequence), int(index) if colon else 0)

"""Who numbered what: how a replica that comes back is found to hold events that the chain never had.

Every head writes down where its reign begins in each stream before it numbers anything, and its successors
before they store anything of it. Then two histories that have the same era at the same number are the same up
to there: the one head of that era numbered both, from one history. (Raft's log matching property, with eras
for terms.)
"""

from collections.abc import Iterable

from qanat.kernel import require
from qanat.protocols.chain.messages import Claim, Era


class Eras:
    """The reigns in order, oldest first; bounded."""

    def __init__(self, limit: int, known: Iterable[Era] = ()) -> None:
        self._limit = limit
        self.all: tuple[Era, ...] = ()
        self._starts: list[dict[int, int]] = []
        self.adopt(known)

    def adopt(self, eras: Iterable[Era]) -> None:
        self.all = tuple(eras)[-self._limit :]
        self._starts = [dict(era.starts) for era in self.all]
        epochs = [era.epoch for era in self.all]
        require(epochs == sorted(set(epochs)), "eras are not in the order of their epochs")

    def begin(self, era: Era) -> None:
        self.adopt((*self.all, era))

    def of(self, stream: int, number: int) -> int:
        """The epoch of the era in which that event was numbered; 0 if that was before all we remember."""
        return self.at(stream, number)[0]

    def at(self, stream: int, number: int) -> tuple[int, str]:
        """That epoch, and who was head."""
        if number:
            for era, starts in zip(reversed(self.all), reversed(self._starts), strict=True):
                if starts.get(stream, 1) <= number:
                    return era.epoch, era.head
        return 0, ""

    def agrees(self, claim: Claim, counter: int) -> bool:
        """Whether what is claimed is the beginning of what we hold, `counter` events."""
        if not claim.counter:
            return True
        era, head = self.at(claim.stream, claim.counter)
        return claim.counter <= counter and era != 0 and era == claim.era and claim.head in ("", head)

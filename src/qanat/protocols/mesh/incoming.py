"""One stream at one client: what was delivered, what came too early, what was asked for and of whom."""

from bisect import insort
from collections.abc import Iterator
from heapq import heappop, heappush
from operator import attrgetter

from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.mesh.ranges import Range, holes


class Asked:
    """A request under way."""

    __slots__ = ("last", "peer", "since")

    def __init__(self, peer: Address, last: int, since: int) -> None:
        self.peer = peer
        self.last = last
        self.since = since
        """The count of looks at late answers when it was sent."""


class Gap:
    """Numbers that are known to exist and that nobody was asked for yet."""

    __slots__ = ("first", "last", "passed", "since")

    def __init__(self, first: int, last: int, passed: int, since: int) -> None:
        self.first = first
        self.last = last
        self.passed = passed
        """How often a neighbour said that it has this, but not as news."""
        self.since = since
        """The count of looks at late answers when it was found, or last asked for in part."""


class Incoming:
    """The paper's `cnt` and `next`, and the books between them.

    Every number from `cnt` + 1 to `nxt` - 1 is in `early` (here, not its turn yet), in `asked` (by the first
    number of the request), in `gaps` (to be asked of whoever tells of it) or in `lost` (to be asked of the
    proxy), or in more than one of them. Of numbers from `nxt` on nothing is known.
    """

    __slots__ = ("asked", "at_peer", "cnt", "early", "early_bytes", "gaps", "lost", "nxt", "stream", "told",
                 "_looked_at")  # fmt: skip

    def __init__(self, stream: int, after: int) -> None:
        self.stream = stream
        self.cnt = self._looked_at = after
        self.nxt = after + 1
        self.asked: dict[int, Asked] = {}
        self.at_peer: dict[Address, int] = {}
        """Requests under way at each peer that has any."""
        self.gaps: list[Gap] = []
        """In order, disjoint."""
        self.told: dict[Address, list[Range]] = {}
        """News of peers that have as many requests as they may: asked for, if still wanted, when one is
        closed."""
        self.lost: list[Range] = []
        self.early: list[tuple[int, int, int, Batch]] = []
        """A heap of (first, -last, order of arrival, batch): of two with the same first the longer is on
        top."""
        self.early_bytes = 0

    @property
    def open_parts(self) -> int:
        return len(self.asked) + len(self.lost)

    def reveal(self, last: int, since: int) -> None:
        """Numbers up to `last` exist: those that nobody knew of are a gap, at first."""
        if last >= self.nxt:
            if self.gaps and self.gaps[-1].last == self.nxt - 1:
                self.gaps[-1].last = last
            else:
                self.gaps.append(Gap(self.nxt, last, 0, since))
            self.nxt = last + 1

    def claim(self, gap: Gap, first: int, last: int, since: int) -> None:
        """This part of a gap is asked for now; what is left of the gap waits as before."""
        gap.since = since
        if gap.first < first:
            if last < gap.last:
                self.gaps.insert(self.gaps.index(gap) + 1, Gap(last + 1, gap.last, gap.passed, since))
            gap.last = first - 1
        elif last < gap.last:
            gap.first = last + 1
        else:
            self.gaps.remove(gap)

    def fill(self, first: int, last: int) -> None:
        """These numbers are here, whether they were asked for or not."""
        if first <= self.nxt <= last:
            self.nxt = last + 1
        for gap in list(self.gaps):
            if gap.first > last:
                return
            if first <= gap.first <= last:
                gap.first = last + 1
            elif first <= gap.last <= last:
                gap.last = first - 1
            # In the midst of a gap nobody was asked for it: then it will come twice.
            if gap.first > gap.last:
                self.gaps.remove(gap)

    def ask(self, peer: Address, first: int, last: int, since: int) -> None:
        self.asked[first] = Asked(peer, last, since)
        self.at_peer[peer] = self.at_peer.get(peer, 0) + 1

    def close(self, first: int) -> Asked:
        """A request was answered or given up."""
        asked = self.asked.pop(first)
        left = self.at_peer[asked.peer] - 1
        if left:
            self.at_peer[asked.peer] = left
        else:
            del self.at_peer[asked.peer]
        return asked

    def give_up(self, first: int) -> None:
        self.lose(first, self.close(first).last)

    def reopen(self, first: int, passed: int) -> None:
        """A peer is late: whoever next tells of this may be asked, `passed` being enough for that."""
        asked = self.close(first)
        for low, high in self.missing(first, asked.last):
            insort(self.gaps, Gap(low, high, passed, asked.since), key=attrgetter("first"))

    def stalls(self) -> bool:
        """Whether events that exist were not delivered, and none since this was last asked."""
        stalled = self.cnt == self._looked_at and self.cnt + 1 < self.nxt
        self._looked_at = self.cnt
        return stalled

    def keep_early(self, first: int, last: int, order: int, batch: Batch) -> None:
        heappush(self.early, (first, -last, order, batch))
        self.early_bytes += batch.virtual_size

    def ripe(self) -> Iterator[Batch]:
        """Early batches whose turn has come, one by one; the caller moves `cnt` between them."""
        early = self.early
        while early and early[0][0] <= self.cnt + 1:
            batch = heappop(early)[3]
            self.early_bytes -= batch.virtual_size
            yield batch

    def missing(self, first: int, last: int) -> list[Range]:
        """What of `first`..`last` is neither delivered nor here early."""
        first = max(first, self.cnt + 1)
        if first > last:
            return []
        return holes(first, last, ((low, -high) for low, high, _, _ in sorted(self.early)))

    def lose(self, first: int, last: int) -> None:
        """Whoever was asked for this will not send it."""
        for part in self.missing(first, last):
            insort(self.lost, part)

    def next_lost(self) -> Range | None:
        """The lowest part that is still missing; taken off the list."""
        while self.lost:
            first, last = self.lost.pop(0)
            missing = self.missing(first, last)
            if missing:
                for part in missing[1:]:
                    insort(self.lost, part)
                return missing[0]
        return None

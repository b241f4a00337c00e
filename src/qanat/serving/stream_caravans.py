"""Subscribers of a stream who have fallen behind, as travellers, and what they travel in."""

from collections import deque
from collections.abc import Iterable, Sequence

from qanat.events.position import Position
from qanat.kernel import require
from qanat.protocols.caravans.travel import AnyCaravan, AnyTraveller, Group
from qanat.serving.caravan_settings import CaravanControl
from qanat.serving.shared_frames import Piece
from qanat.serving.subscriber import Subscriber


class Laggard(AnyTraveller):
    """A subscriber that is behind the edge. It is as far as it was sent; in a plan, as far as its caravan."""

    __slots__ = ("_control", "subscriber")

    def __init__(self, subscriber: Subscriber, control: CaravanControl) -> None:
        super().__init__(Position(subscriber.at - 1))
        self.subscriber, self._control = subscriber, control

    @property
    def cursor(self) -> int:
        """The last sequence number that it has had."""
        return self.subscriber.at - 1

    @property
    def client(self) -> str:
        connection = self.subscriber.connection
        return connection.peer.name or connection.remote

    @property
    def name(self) -> str:
        return f"{self.client}/{self.subscriber.number}"

    @property
    def company(self) -> str:
        return self._control.company_of(self.client, self.subscriber.number)


class StreamCaravan(AnyCaravan[Laggard]):
    """One reader of a stream's log. What it read last it keeps for a while, its *wake*: who is slower than
    the fastest aboard is sent from there, and nobody is waited for. Who falls out of the wake gets off."""

    __slots__ = ("laggards", "moved_us", "scheduled", "wake", "wake_bytes")

    def __init__(self, number: int, at: Position, why: str = "", company: str = "") -> None:
        super().__init__(number, at, why, company)
        self.laggards: dict[Laggard, None] = {}
        self.wake: deque[Piece] = deque()
        self.wake_bytes = 0
        self.scheduled = False
        self.moved_us = 0
        """When somebody aboard was sent something; 0: not yet."""

    @property
    def reach(self) -> int:
        """It has everything after this sequence number."""
        return self.wake[0].first - 1 if self.wake else self.at.sequence

    @property
    def empty(self) -> bool:
        return not self.laggards

    @property
    def travellers(self) -> Iterable[Laggard]:
        return self.laggards

    def groups(self) -> Iterable[Group]:
        places: dict[Position, list[Laggard]] = {}
        for laggard in self.laggards:
            if laggard.subscriber.ready:
                places.setdefault(laggard.position, []).append(laggard)
        return [Group(position, tuple(some), len(some)) for position, some in places.items()]

    def stuck(self) -> Sequence[Laggard] | None:
        """Nobody need get off as long as the wake reaches back to it."""
        if not any(laggard.subscriber.ready for laggard in self.laggards):
            return None
        reach = self.reach
        return [laggard for laggard in self.laggards if laggard.cursor < reach]

    def can_take(self, traveller: Laggard) -> bool:
        return traveller.cursor >= self.reach

    def take(self, traveller: Laggard) -> None:
        require(traveller.caravan is None, "a traveller is in one caravan at a time")
        require(self.can_take(traveller), "a caravan takes along nobody who is behind its wake")
        require(traveller.company == self.company, "whom an operator keeps together travels with no others")
        traveller.sent = Position(traveller.cursor)
        traveller.caravan = self
        self.laggards[traveller] = None

    def leave(self, traveller: Laggard) -> None:
        require(traveller.caravan is self, "nobody leaves a caravan that it is not in")
        traveller.sent = Position(traveller.cursor)
        traveller.caravan = None
        del self.laggards[traveller]

    def turn(self, to: Position) -> None:
        self.wake.clear()
        self.wake_bytes = 0
        self.at = to
        for laggard in list(self.laggards):
            laggard.sent = Position(laggard.cursor)
            if laggard.cursor < to.sequence:  # it was in the wake
                self.leave(laggard)

    def keep(self, piece: Piece, most_bytes: int) -> None:
        """It came to the end of this piece."""
        self.at = Position(piece.last)
        self.wake.append(piece)
        self.wake_bytes += piece.size
        while self.wake_bytes > most_bytes and len(self.wake) > 1:
            self.wake_bytes -= self.wake.popleft().size

    def piece(self, start: int) -> Piece | None:
        """The one that has this sequence number."""
        for piece in reversed(self.wake):
            if piece.first <= start:
                return piece if start <= piece.last else None
        return None

"""What travellers of all kinds have in common, and what their caravans have."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from qanat.events.position import Position


class AnyTraveller:
    """Somebody who is at some place of a log and wants what comes after it. `sent` is how far it was when it
    got on."""

    __slots__ = ("caravan", "sent")

    def __init__(self, position: Position) -> None:
        self.sent = position
        self.caravan: AnyCaravan[Any] | None = None

    @property
    def position(self) -> Position:
        """How far it is: as far as its caravan, or further if it got on ahead of it."""
        if self.caravan is None or self.caravan.at < self.sent:
            return self.sent
        return self.caravan.at

    @property
    def weight(self) -> float:
        """How much it counts where a policy decides who waits for whom."""
        return 1.0

    @property
    def company(self) -> str:
        """With whom it travels, if an operator decided so and not the policy; else empty."""
        raise NotImplementedError


T = TypeVar("T", bound=AnyTraveller)


class Group(NamedTuple):
    """Some who are at one place, and what they count together."""

    position: Position
    travellers: tuple[AnyTraveller, ...]
    weight: float


class AnyCaravan(Generic[T]):
    """One reader of a log and those whom it serves."""

    __slots__ = ("at", "company", "live", "made_why", "number", "read_bytes", "reads")

    def __init__(self, number: int, at: Position, why: str = "", company: str = "") -> None:
        self.number, self.at, self.made_why, self.company = number, at, why, company
        self.reads = self.read_bytes = 0
        self.live = False
        """It has come to the end of the log, and waits there for what is new."""

    @property
    @abstractmethod
    def empty(self) -> bool: ...

    @property
    @abstractmethod
    def travellers(self) -> Iterable[T]: ...

    @abstractmethod
    def groups(self) -> Iterable[Group]:
        """Those aboard who take more, by place: nearly always one."""

    @abstractmethod
    def stuck(self) -> Sequence[T] | None:
        """Those aboard who take no more; None: nobody does."""

    def can_take(self, traveller: T) -> bool:
        return traveller.sent >= self.at

    @abstractmethod
    def take(self, traveller: T) -> None: ...

    @abstractmethod
    def leave(self, traveller: T) -> None: ...

    @abstractmethod
    def turn(self, to: Position) -> None:
        """Go on from there: back, for somebody who is behind, or forward to the first."""

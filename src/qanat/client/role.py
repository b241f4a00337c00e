"""What a client needs a server for, and which one serves it now."""

from collections.abc import Callable

from qanat.client.link import Link, RoleName
from qanat.wire.streams import Place


class Role:
    """What a client needs a server for: `head` to publish, `tail` to subscribe."""

    def __init__(self, name: RoleName, attach: Callable[[Link], None], detach: Callable[[], None]) -> None:
        self.name = name
        self.link: Link | None = None
        self.wanted = False
        self.doubted = False
        """Whether a server refused it, and none has served since."""
        self._attach, self._detach = attach, detach

    def give(self, link: Link) -> None:
        self.link = link
        self._attach(link)

    def take_away(self) -> None:
        if self.link is not None:
            self.link = None
            self._detach()

    def holder(self, place: Place) -> str:
        return place.head if self.name == "head" else place.tail

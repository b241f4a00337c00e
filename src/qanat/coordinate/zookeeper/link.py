"""What is asked of a client of ZooKeeper: one session of ZooKeeper's, by whatever connections, with all news
in the order in which they came."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from qanat.coordinate.interface import Problem


class Found(msgspec.Struct, frozen=True):
    """What came of an operation; fields that it does not speak of keep their defaults."""

    problem: Problem = Problem.NONE
    path: str = ""
    data: bytes = b""
    version: int = -1
    owner: int = 0
    """ZooKeeper's own number of the session that an ephemeral node belongs to."""
    zxid: int = 0
    """Of the last change of what was asked for: of the data (`get`, `set`), or of the list (`children`)."""
    children: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.problem is Problem.NONE


Then: TypeAlias = Callable[[Found], None]
Fire: TypeAlias = Callable[[], None]


class LinkListener(Protocol):
    """All of it, and every `then` and `fire`, is called from the loop, in the order in which ZooKeeper said
    it."""

    def on_connected(self) -> None:
        """The session goes on, on a connection on which no watch is set."""

    def on_suspended(self) -> None:
        """The connection broke: what was asked may have happened or not, and watches are gone."""

    def on_refused(self, reason: str) -> None:
        """A server was there, and there is no connection with it, for a reason that does not pass by itself;
        it is asked again all the same."""

    def on_lost(self) -> None:
        """ZooKeeper has ended the session. Nothing is called after it."""


class Link(Protocol):
    """After `on_lost` or `close` whatever is asked fails: nothing ever happens in another session's name."""

    @property
    def granted_us(self) -> int:
        """The session's timeout as ZooKeeper granted it; known once something was answered."""

    @property
    def session(self) -> int:
        """ZooKeeper's own number of this session."""

    def create(self, path: str, data: bytes, then: Then, *, ephemeral: bool, sequential: bool) -> None: ...

    def set(self, path: str, data: bytes, version: int, then: Then) -> None: ...

    def delete(self, path: str, version: int, then: Then) -> None: ...

    def get(self, path: str, then: Then, fire: Fire | None) -> None:
        """With `fire`, it is called when the node changes or goes, or comes if it is not there."""

    def children(self, path: str, then: Then, fire: Fire | None) -> None:
        """With `fire`, it is called when there is a child more or less, or the node comes or goes."""

    def sync(self, path: str, then: Then) -> None:
        """Answered when all that the leader had made known when it heard of this is known here; its watches
        fire before."""

    def close(self) -> None:
        """Ends the session, as soon as a server can be told."""

    def ended(self, within_s: float) -> bool:
        """Whether all that there was to do after `close` or `on_lost` is done; waits for it that long."""


Connect: TypeAlias = Callable[[int, LinkListener], Link]
"""Begins a session with that timeout, in microseconds."""

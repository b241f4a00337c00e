"""What a coordinator offers, whoever is behind it: the embedded server or ZooKeeper.

Guarantees, which are ZooKeeper's:

1. Changes are totally ordered, and one session's calls take effect in the order of the calls.
2. A watch is set by a read and fires once. Its event arrives before any answer that shows the change.
3. `set` and `delete` with a version happen only if the node still has that version: compare-and-set.
4. An ephemeral node goes with its session, and a session ends only after its timeout passed without a
heartbeat, or, with the embedded
   server, when its owner's process is known to be dead.
5. After `CONNECTION_LOSS` a call may have happened or not: what is read after it tells, for it happens no
later. Every other problem is definite.
"""

import enum
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from qanat.coordinate.messages import EventKind

ANY_VERSION = -1
"""As an expected version: whatever it is."""
DATA_BYTES_MAX = 1_000_000
"""Of a node's data and path together: nodes hold configuration, not payload, and it must fit into one
message, ours or ZooKeeper's."""


class Problem(enum.StrEnum):
    """Why a call was refused; the names are ZooKeeper's."""

    NONE = ""
    NO_NODE = "no-node"
    NODE_EXISTS = "node-exists"
    BAD_VERSION = "bad-version"
    NOT_EMPTY = "not-empty"
    NO_CHILDREN_FOR_EPHEMERALS = "no-children-for-ephemerals"
    BAD_ARGUMENTS = "bad-arguments"
    NO_AUTH = "no-auth"
    SESSION_EXPIRED = "session-expired"
    CONNECTION_LOSS = "connection-loss"


class Answer(msgspec.Struct, frozen=True):
    """What came of a call; fields that the call does not speak of keep their defaults."""

    problem: Problem = Problem.NONE
    path: str = ""
    """Of `create`: the path as made, with its number if it is sequential."""
    data: bytes = b""
    version: int = -1
    owner: int = 0
    """The session that an ephemeral node belongs to; 0 for a persistent one."""
    children: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.problem is Problem.NONE


Then: TypeAlias = Callable[[Answer], None]


class Listener(Protocol):
    """What the owner of a session is told."""

    def on_opened(self, session: int) -> None:
        """A session began: register now. Session numbers rise and are never used twice."""

    def on_expired(self) -> None:
        """The session is over and its ephemeral nodes are gone; a new one will be opened."""

    def on_event(self, kind: EventKind, path: str) -> None:
        """A watch fired. It is gone now; read again to set another."""

    def on_lease(self) -> None:
        """The lease was renewed after it had run out."""


class Coordinator(Protocol):
    """Calls return at once; `then` gets the answer. All calls wait while there is no session."""

    def create(
        self, path: str, data: bytes, then: Then, *, ephemeral: bool = False, sequential: bool = False
    ) -> None: ...

    def set(self, path: str, data: bytes, version: int, then: Then) -> None: ...

    def delete(self, path: str, version: int, then: Then) -> None: ...

    def get(self, path: str, then: Then, *, watch: bool = False) -> None:
        """Data and version; with `watch`, an event when it changes or goes, or comes if it is not there."""

    def children(self, path: str, then: Then, *, watch: bool = False) -> None:
        """Names of the children, sorted; with `watch`, an event when there is one more or less."""

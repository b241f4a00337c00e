"""What a session and the embedded server say to each other.

| message | from | says |
|---|---|---|
| `Open` / `Opened` | client / server | begin a session; its number and timeout |
| `Attach` / `Attached` | client / server | this channel now carries the session; watches to set again |
| `Beat` / `Beaten` | client / server | the heartbeat and its acknowledgement |
| `Call` / `Reply` | client / server | one operation on the tree |
| `Fired` | server | a watch fired |
| `Detached` | server | attach first: this server (or channel) does not know your watches |
| `Expired` | server | there is no such session any more |
| `Close` | client | end the session now |
"""

import enum
from typing import TypeAlias

from qanat.kernel import Message


class EventKind(enum.StrEnum):
    DATA = "data"
    CHILDREN = "children"


class Operation(enum.StrEnum):
    CREATE = "create"
    SET = "set"
    DELETE = "delete"
    GET = "get"
    CHILDREN = "children"


class Open(Message, frozen=True):
    nonce: int
    timeout_us: int
    above: int = 0
    """The highest number of a session that the client knows of: its new one is higher, whatever the server has forgotten."""


class Opened(Message, frozen=True):
    nonce: int
    session: int
    timeout_us: int


class Watch(Message, frozen=True):
    """A watch as set when the tree was at `seen`; `there` says whether the node was."""

    kind: EventKind
    path: str
    seen: int
    there: bool


class Attach(Message, frozen=True):
    session: int
    number: int
    """Which attachment of this session: answers to an earlier one are out of date."""
    watches: tuple[Watch, ...]


class Attached(Message, frozen=True):
    session: int
    number: int


class Beat(Message, frozen=True):
    session: int
    number: int


class Beaten(Message, frozen=True):
    session: int
    number: int


class Call(Message, frozen=True):
    session: int
    number: int
    operation: Operation
    path: str
    data: bytes = b""
    version: int = -1
    watch: bool = False
    ephemeral: bool = False
    sequential: bool = False


class Reply(Message, frozen=True):
    session: int
    number: int
    problem: str
    zxid: int
    """How far the tree was: the number of its last change."""
    path: str = ""
    data: bytes = b""
    version: int = -1
    owner: int = 0
    children: tuple[str, ...] = ()


class Fired(Message, frozen=True):
    session: int
    kind: EventKind
    path: str


class Detached(Message, frozen=True):
    session: int


class Expired(Message, frozen=True):
    session: int


class Close(Message, frozen=True):
    session: int


ToServer: TypeAlias = Open | Attach | Beat | Call | Close
ToClient: TypeAlias = Opened | Attached | Beaten | Reply | Fired | Detached | Expired
TO_SERVER = (Open, Attach, Beat, Call, Close)
TO_CLIENT = (Opened, Attached, Beaten, Reply, Fired, Detached, Expired)

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
| `Elsewhere` | member of an ensemble | another one leads, as far as is known |
| `Close` | client | end the session now |
| `Gone` | client | the process that has that other session is dead: nobody listens where it did |
"""

import enum
from typing import Annotated, TypeAlias

from msgspec import Meta

from qanat.events.ranges import MANY, Blob, Code, Count, Micros, NodeName, Path, Version
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
    nonce: Count
    timeout_us: Micros
    above: Count = 0
    """The highest number of a session that the client knows of: its new one is higher, whatever the server
    has forgotten."""


class Opened(Message, frozen=True):
    nonce: Count
    session: Count
    timeout_us: Micros


class Watch(Message, frozen=True):
    """A watch as set when the tree was at `seen`; `there` says whether the node was."""

    kind: EventKind
    path: Path
    seen: Count
    there: bool


class Attach(Message, frozen=True):
    session: Count
    number: Count
    """Which attachment of this session: answers to an earlier one are out of date."""
    watches: Annotated[tuple[Watch, ...], Meta(max_length=MANY)]


class Attached(Message, frozen=True):
    session: Count
    number: Count


class Beat(Message, frozen=True):
    session: Count
    number: Count


class Beaten(Message, frozen=True):
    session: Count
    number: Count


class Call(Message, frozen=True):
    session: Count
    number: Count
    operation: Operation
    path: Path
    data: Blob = b""
    version: Version = -1
    watch: bool = False
    ephemeral: bool = False
    sequential: bool = False


class Reply(Message, frozen=True):
    session: Count
    number: Count
    problem: Code
    zxid: Count
    """How far the tree was: the number of its last change."""
    path: Path = ""
    data: Blob = b""
    version: Version = -1
    owner: Count = 0
    children: Annotated[tuple[Path, ...], Meta(max_length=MANY)] = ()


class Fired(Message, frozen=True):
    session: Count
    kind: EventKind
    path: Path


class Detached(Message, frozen=True):
    session: Count


class Expired(Message, frozen=True):
    session: Count


class Elsewhere(Message, frozen=True):
    leader: NodeName
    """Empty: nobody, or nobody knows."""


class Close(Message, frozen=True):
    session: Count


class Gone(Message, frozen=True, tag="GoneSession"):
    session: Count
    gone: Count
    """Its owner listened as long as it lived, and connections there are refused now."""


ToServer: TypeAlias = Open | Attach | Beat | Call | Close | Gone
ToClient: TypeAlias = Opened | Attached | Beaten | Reply | Fired | Detached | Expired | Elsewhere
TO_SERVER = (Open, Attach, Beat, Call, Close, Gone)
TO_CLIENT = (Opened, Attached, Beaten, Reply, Fired, Detached, Expired, Elsewhere)

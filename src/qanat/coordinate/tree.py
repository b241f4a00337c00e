"""The coordinator's state: a tree of versioned nodes, and who has a session. Pure and deterministic.

A change is planned first (`plan_create`, …: a record, or the problem) and then applied; the journal holds the
records, so a server that lost its memory applies them again and is where it was.
"""

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from qanat.coordinate.interface import ANY_VERSION, DATA_BYTES_MAX, Problem
from qanat.coordinate.messages import EventKind

NODES_MAX = 100_000
"""Nodes in all; what stands around their data is then some tens of megabytes."""
BYTES_MAX = 64 << 20
"""Data and paths of all nodes together: all of it is in memory, and in each snapshot."""
CHILDREN_BYTES_MAX = 768 << 10
"""Names of one node's children, 8 bytes more for each: who lists them is answered in one message, which has a
megabyte."""


class Created(msgspec.Struct, frozen=True, tag=True):
    path: str
    data: bytes
    owner: int


class Changed(msgspec.Struct, frozen=True, tag=True):
    path: str
    data: bytes


class Deleted(msgspec.Struct, frozen=True, tag=True):
    path: str


class Began(msgspec.Struct, frozen=True, tag=True):
    session: int
    timeout_us: int
    client: str = ""
    """Whose it is: a server that forgot everything may give the number of one to another."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The session is over, and so are its ephemeral nodes."""

    session: int


class Node(msgspec.Struct):
    data: bytes
    owner: int
    version: int = 0
    created: int = 0
    changed: int = 0
    children_changed: int = 0
    next_number: int = 0
    """For sequential children; never goes back."""
    children: dict[str, None] = {}


class Snapshot(msgspec.Struct, frozen=True, tag=True):
    zxid: int
    next_session: int
    sessions: dict[int, int]
    nodes: dict[str, Node]
    clients: dict[int, str] = {}


Record: TypeAlias = Created | Changed | Deleted | Began | Ended | Snapshot
Events: TypeAlias = list[tuple[EventKind, str]]
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Record).decode


class Tree:
    """Nodes by path, sessions with their timeouts; `zxid` counts the changes."""

    def __init__(self) -> None:
        self.zxid = 0
        self.next_session = 1
        self.sessions: dict[int, int] = {}
        self.clients: dict[int, str] = {}
        self.nodes: dict[str, Node] = {"/": Node(b"", 0)}
        self._bytes = 0
        self._names: dict[str, int] = {}
        """Bytes of the names of a node's children."""

    # Planning: nothing changes

    @property
    def held_bytes(self) -> int:
        """Of paths and data."""
        return self._bytes

    def plan_create(self, path: str, data: bytes, owner: int, sequential: bool) -> Created | Problem:
        parent = self.nodes.get(parent_of(path))
        if not well_formed(path, sequential) or len(data) > DATA_BYTES_MAX or len(self.nodes) >= NODES_MAX:
            return Problem.BAD_ARGUMENTS
        if self._bytes + len(data) + len(path) > BYTES_MAX:
            return Problem.BAD_ARGUMENTS
        if parent is None:
            return Problem.NO_NODE
        if parent.owner:
            return Problem.NO_CHILDREN_FOR_EPHEMERALS
        if sequential:
            path = f"{path}{parent.next_number:010d}"
        if self._names.get(parent_of(path), 0) + _name_bytes(path) > CHILDREN_BYTES_MAX:
            return Problem.BAD_ARGUMENTS
        return Problem.NODE_EXISTS if path in self.nodes else Created(path, data, owner)

    def plan_set(self, path: str, data: bytes, version: int) -> Changed | Problem:
        if len(data) > DATA_BYTES_MAX:
            return Problem.BAD_ARGUMENTS
        problem = self._versioned(path, version)
        if problem is not None:
            return problem
        more = len(data) - len(self.nodes[path].data)
        return Problem.BAD_ARGUMENTS if more > 0 and self._bytes + more > BYTES_MAX else Changed(path, data)

    def plan_delete(self, path: str, version: int) -> Deleted | Problem:
        problem = self._versioned(path, version)
        if problem is not None:
            return problem
        if path == "/":
            return Problem.BAD_ARGUMENTS
        return Problem.NOT_EMPTY if self.nodes[path].children else Deleted(path)

    def plan_begin(self, timeout_us: int, at_least: int = 0, client: str = "") -> Began:
        return Began(max(self.next_session, at_least), timeout_us, client)

    def has(self, session: int, client: str) -> bool:
        return session in self.sessions and self.clients.get(session) in (None, client)

    def _versioned(self, path: str, version: int) -> Problem | None:
        node = self.nodes.get(path)
        if node is None:
            return Problem.NO_NODE
        return None if version in (ANY_VERSION, node.version) else Problem.BAD_VERSION

    # Applying

    def apply(self, record: Record) -> Events:
        """Make the change; returns what watches it fires, in order."""
        if isinstance(record, Snapshot):
            self._restore(record)
            return []
        self.zxid += 1
        match record:
            case Created():
                return self._create(record)
            case Changed():
                node = self.nodes[record.path]
                self._bytes += len(record.data) - len(node.data)
                node.data, node.version, node.changed = record.data, node.version + 1, self.zxid
                return [(EventKind.DATA, record.path)]
            case Deleted():
                return self._delete(record.path)
            case Began():
                self.sessions[record.session] = record.timeout_us
                if record.client:
                    self.clients[record.session] = record.client
                self.next_session = record.session + 1
                return []
            case Ended():
                self.sessions.pop(record.session, None)
                self.clients.pop(record.session, None)
                gone = [path for path, node in self.nodes.items() if node.owner == record.session]
                return [event for path in gone for event in self._delete(path)]
            case _:
                assert_never(record)

    def _create(self, record: Created) -> Events:
        above = parent_of(record.path)
        parent = self.nodes[above]
        self._bytes += len(record.data) + len(record.path)
        self.nodes[record.path] = Node(
            record.data,
            record.owner,
            created=self.zxid,
            changed=self.zxid,
            children_changed=self.zxid,
        )
        parent.children[record.path.rsplit("/", 1)[1]] = None
        self._names[above] = self._names.get(above, 0) + _name_bytes(record.path)
        parent.next_number += 1
        parent.children_changed = self.zxid
        return [(EventKind.DATA, record.path), (EventKind.CHILDREN, record.path), (EventKind.CHILDREN, above)]

    def _delete(self, path: str) -> Events:
        above = parent_of(path)
        self._bytes -= len(self.nodes.pop(path).data) + len(path)
        self._names[above] -= _name_bytes(path)
        self._names.pop(path, None)
        del self.nodes[above].children[path.rsplit("/", 1)[1]]
        self.nodes[above].children_changed = self.zxid
        return [(EventKind.DATA, path), (EventKind.CHILDREN, path), (EventKind.CHILDREN, above)]

    # Reading

    def missed(self, kind: EventKind, path: str, seen: int, there: bool) -> bool:
        """Whether a watch that was set when the tree was at `seen` would have fired since."""
        node = self.nodes.get(path)
        if (node is not None) != there:
            return True
        if node is None:
            return False
        return node.created > seen or (
            node.changed > seen if kind is EventKind.DATA else node.children_changed > seen
        )

    def snapshot(self) -> bytes:
        """A record that stands for all before it."""
        return encode(Snapshot(self.zxid, self.next_session, self.sessions, self.nodes, self.clients))

    def _restore(self, snapshot: Snapshot) -> None:
        self.zxid, self.next_session = snapshot.zxid, snapshot.next_session
        self.sessions, self.nodes = dict(snapshot.sessions), dict(snapshot.nodes)
        self.clients = dict(snapshot.clients)
        self._bytes = sum(len(node.data) + len(path) for path, node in self.nodes.items()) - len("/")
        self._names = {}
        for path in self.nodes.keys() - {"/"}:
            above = parent_of(path)
            self._names[above] = self._names.get(above, 0) + _name_bytes(path)


def parent_of(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def _name_bytes(path: str) -> int:
    return len(path.rsplit("/", 1)[1].encode()) + 8


def well_formed(path: str, sequential: bool = False) -> bool:
    """`/a/b`; the last part may be empty for a sequential node, which gets its number there."""
    names = path.split("/")
    inner = names[1:-1] if sequential else names[1:]
    return path.startswith("/") and path != "/" and all(name not in ("", ".", "..") for name in inner)


def compact(saved: Sequence[bytes]) -> list[bytes]:
    """A journal's records as one: the state that they lead to."""
    tree = Tree()
    for record in saved:
        tree.apply(decode(record))
    return [tree.snapshot()]

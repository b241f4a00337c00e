"""One connection per pair of nodes."""

from collections.abc import Iterator

from qanat.runtime.connection import Connection
from qanat.wire.control import Identity, Refused


class Peers:
    """Which connection leads to which node. Shared by a node's listener and its dialers.

    Two nodes may dial each other at the same moment. Both ends then keep the connection that was dialled by
    the node with the smaller name, and close the other as `duplicate`: the same choice on both sides,
    without a word exchanged. A restarted peer (higher incarnation) always displaces its former
    self, and a second dial from the same end displaces the first, which that end has given up.

    Clients and other roles than `node` are not paired: they may have any number of connections.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._by_name: dict[str, Connection] = {}

    def get(self, name: str) -> Connection | None:
        """The connection to that node, if it is up."""
        connection = self._by_name.get(name)
        if connection is not None and connection.closing:
            del self._by_name[name]
            return None
        return connection

    def __iter__(self) -> Iterator[Connection]:
        return iter([c for c in self._by_name.values() if not c.closing])

    def admit(self, connection: Connection, peer: Identity) -> None:
        """Makes `connection` the one to `peer`, or raises `Refused("duplicate")`."""
        if peer.role != "node" or self._identity.role != "node":
            return
        if peer.name == self._identity.name:
            raise Refused(
                "duplicate", f"this is {peer.name!r} already: two nodes of one name, or one dialled itself"
            )
        present = self.get(peer.name)
        if present is not None:
            if not self._displaces(connection, peer, present):
                raise Refused("duplicate", f"there is another connection with {peer.name!r}")
            self._by_name[peer.name] = connection
            present.close("duplicate", "another connection between the same nodes was kept")
        self._by_name[peer.name] = connection

    def _displaces(self, new: Connection, peer: Identity, present: Connection) -> bool:
        if peer.incarnation != present.peer.incarnation:
            return peer.incarnation > present.peer.incarnation
        if new.dialled == present.dialled:
            return True
        return new.dialled == (self._identity.name < peer.name)

"""One session of ZooKeeper's, as the embedded server's messages have it.

Its number is the zxid of a change that it makes when it begins: ZooKeeper's own numbers of sessions do not
rise from one server to the next. Having made that change, it has also seen every change before it.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, assert_never

from qanat.coordinate.interface import Problem
from qanat.coordinate.messages import (
    Attach,
    Attached,
    Beat,
    Beaten,
    Call,
    Close,
    Detached,
    EventKind,
    Expired,
    Fired,
    Gone,
    Open,
    Opened,
    Operation,
    Reply,
    ToClient,
    Watch,
)
from qanat.coordinate.tree import well_formed
from qanat.coordinate.zookeeper.link import Connect, Found, Link, Then

log = logging.getLogger("qanat.zookeeper")

SESSIONS = "/sessions"
"""The node that every session changes when it begins."""

Say: TypeAlias = Callable[[ToClient], None]
Note: TypeAlias = Callable[[str], None]
"""Is told in a sentence why ZooKeeper will not have us, and with an empty one that it does."""


class Life:
    def __init__(
        self, connect: Connect, say: Say, opening: Open, root: str, tick_us: int, note: Note
    ) -> None:
        self._say, self._root, self._tick_us, self._note = say, root, tick_us, note
        self.nonce, self._asked_us = opening.nonce, opening.timeout_us
        self.number = 0
        """0 until it is known."""
        self.timeout_us = 0
        self.ended = False
        self._connection = 0
        """Counts connections; what was asked on an earlier one counts no more."""
        self._connected = self._beginning = self._beating = False
        self._attached = self._attaching = 0
        self._unmade = ""
        """A node that we may not make; it may be there all the same."""
        self._link: Link = connect(opening.timeout_us + tick_us, self)

    # What the link tells

    def on_connected(self) -> None:
        self._connection += 1
        self._connected = True
        log.info("connected", extra={"session": self.number, "connection": self._connection})
        if not self.number:
            self.begin()

    def on_suspended(self) -> None:
        self._connected = self._beginning = self._beating = False
        self._attached = self._attaching = 0
        if not self.ended:
            log.warning("the connection is lost", extra={"session": self.number})
            if self.number:
                self._say(Detached(self.number))

    def on_refused(self, reason: str) -> None:
        if not self.ended:
            self._note(reason)

    def on_lost(self) -> None:
        if not self.ended:
            self.ended = True
            log.warning("the session has expired", extra={"session": self.number})
            if self.number:
                self._say(Expired(self.number))

    def end(self) -> None:
        self.ended = True
        self._link.close()

    # Beginning

    def begin(self) -> None:
        """Does what is missing until the session has a number; asked now and then by who waits for it."""
        if not self._connected or self._beginning or self.number:
            return
        self._beginning = True
        parts = f"{self._root}{SESSIONS}".split("/")
        self._unmade = ""
        for upto in range(2, len(parts) + 1):
            path = "/".join(parts[:upto])
            made = self._here(partial(self._made, path))
            self._link.create(path, b"", made, ephemeral=False, sequential=False)
        self._link.set(f"{self._root}{SESSIONS}", b"", -1, self._here(self._began))

    def _made(self, path: str, found: Found) -> None:
        """The change that follows tells whether it is there; if not, this tells why."""
        if found.problem is Problem.NO_AUTH and not self._unmade:
            self._unmade = path

    def _began(self, found: Found) -> None:
        self._beginning = False
        timeout_us = min(self._asked_us, self._link.granted_us - self._tick_us)
        node = f"{self._root}{SESSIONS}"
        if found.problem is Problem.NO_AUTH:
            self._may_not("change", node)
        elif found.problem is Problem.NO_NODE and self._unmade:
            self._may_not("make", self._unmade)
        elif not found.ok:
            log.warning("no session yet", extra={"reason": str(found.problem), "node": node})
        elif timeout_us <= 0:
            log.error(
                "ZooKeeper grants too short sessions: raise its maxSessionTimeout, or lower"
                " session.zookeeper_tick_ms to its tickTime",
                extra={"granted_ms": self._link.granted_us / 1000, "tick_ms": self._tick_us / 1000},
            )
        else:
            self.number, self.timeout_us = found.zxid, timeout_us
            self._note("")
            self._say(Opened(self.nonce, self.number, timeout_us))

    def _may_not(self, what: str, path: str) -> None:
        self._note(
            f"we may not {what} {path}: check zookeeper.user and its password, or the access control list of"
            " the node"
        )

    # What the session says

    def on_message(self, message: Attach | Beat | Call | Close | Gone) -> None:
        match message:
            case Attach():
                self._attach(message)
            case Beat():
                self._beat(message)
            case Call():
                if self._attached:  # else it was told, and counts the call as lost
                    self._call(message)
            case Close():
                self.end()
            case Gone():
                # ZooKeeper tells nobody whether a session has a connection, so there would be one witness
                # alone
                pass
            case _:
                assert_never(message)

    def _attach(self, message: Attach) -> None:
        """While there is no connection nothing is said: the session asks again."""
        if not self._connected or self._attaching == message.number:
            return
        if self._attached == message.number:
            self._say(Attached(self.number, message.number))
            return
        self._attached, self._attaching = 0, message.number
        waiting = len(message.watches) + 1

        def seen(watch: Watch | None, found: Found) -> None:
            nonlocal waiting
            if self._attaching != message.number:
                return
            if not found.ok and found.problem is not Problem.NO_NODE:
                self._attaching = 0  # it asks again
                if found.problem is Problem.NO_AUTH and watch is not None:
                    self._may_not("read", self._path(watch.path))
                return
            if watch is not None and (found.ok != watch.there or (found.ok and found.zxid != watch.seen)):
                self._say(Fired(self.number, watch.kind, watch.path))
            waiting -= 1
            if not waiting:
                self._carry(message.number)

        # Behind it is all that the leader had taken from us on earlier connections, and it takes nothing from
        # those any more.
        self._link.sync(self._root or "/", self._here(partial(seen, None)))
        for each in message.watches:
            self._read(each.kind, each.path, self._here(partial(seen, each)), watch=True)

    def _carry(self, number: int) -> None:
        self._attached, self._attaching = number, 0
        self._note("")
        self._say(Attached(self.number, number))

    def _beat(self, message: Beat) -> None:
        """One at a time: to a server that has fallen silent nothing must be sent, or its silence would not be
        noticed."""
        if not self._attached or self._beating:
            return
        self._beating = True

        def beaten(found: Found) -> None:
            self._beating = False
            if found.ok and self._attached:
                self._say(Beaten(self.number, message.number))

        self._link.sync(self._root or "/", self._here(beaten))

    def _call(self, call: Call) -> None:
        path, then = self._path(call.path), self._here(lambda found: self._reply(call, found))
        sound = well_formed(call.path, sequential=call.sequential)
        match call.operation:
            case Operation.GET | Operation.CHILDREN:
                if not sound and call.path != "/":
                    self._reply(call, Found(Problem.NO_NODE))
                else:
                    kind = EventKind.DATA if call.operation is Operation.GET else EventKind.CHILDREN
                    self._read(kind, call.path, then, watch=call.watch)
            case _ if not sound:
                self._reply(call, Found(Problem.BAD_ARGUMENTS))
            case Operation.CREATE:
                self._link.create(path, call.data, then, ephemeral=call.ephemeral, sequential=call.sequential)
            case Operation.SET:
                self._link.set(path, call.data, call.version, then)
            case Operation.DELETE:
                self._link.delete(path, call.version, then)
            case _:
                assert_never(call.operation)

    def _read(self, kind: EventKind, path: str, then: Then, *, watch: bool) -> None:
        read = self._link.get if kind is EventKind.DATA else self._link.children
        read(self._path(path), then, (lambda: self._fire(kind, path)) if watch else None)

    def _fire(self, kind: EventKind, path: str) -> None:
        if not self.ended and self.number:
            self._say(Fired(self.number, kind, path))

    def _reply(self, call: Call, found: Found) -> None:
        if found.problem is Problem.NO_AUTH:
            self._may_not(call.operation, self._path(call.path))
        owner = self.number if found.owner and found.owner == self._link.session else found.owner
        path = found.path.removeprefix(self._root) if found.path else call.path
        self._say(
            Reply(
                call.session,
                call.number,
                found.problem,
                found.zxid,
                path=path,
                data=found.data,
                version=found.version,
                owner=owner,
                children=found.children,
            )
        )

    def _path(self, path: str) -> str:
        return (self._root or "/") if path == "/" else f"{self._root}{path}"

    def _here(self, then: Then) -> Then:
        """What comes of something asked on this connection; of no interest after it."""
        asked_on = self._connection

        def answered(found: Found) -> None:
            if self._connection == asked_on and self._connected and not self.ended:
                then(found)

        return answered

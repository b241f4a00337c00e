"""The embedded coordinator: one machine that holds the tree, sessions and watches.

Sessions and nodes are on disk before anything tells of them. Watches and attachments are not: after a restart
every session attaches again, with the watches it had and how far it had seen, and what it missed fires then.
A session's time starts afresh when the server does, so a restart makes no session shorter.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from qanat.coordinate.interface import Problem
from qanat.coordinate.messages import (
    TO_CLIENT,
    TO_SERVER,
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
    ToServer,
)
from qanat.coordinate.tree import Changed, Created, Deleted, Ended, Events, Record, Tree, decode, encode
from qanat.kernel import Address, Context, Machine, require

EXPIRE = "expire/"


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The coordinator's sessions, watches and journal."""

    session_min_ms: float = 200.0
    """Shortest session timeout granted: a timeout below a few round trips and a long garbage-collection pause
    ends sessions of live nodes."""
    session_max_ms: float = 60_000.0
    """Longest session timeout granted: a dead replica may stay in its chain for this long."""
    sessions_max: int = 10_000
    """Most sessions at a time; further ones are not opened."""
    watches_max: int = 1_000
    """Most watches of one session; a read beyond it sets no watch, and the coordinator detaches the session
    to report this."""
    watched_bytes: int = 32 << 20
    """Most bytes of all watches: the path and 400 bytes each. Beyond it the coordinator detaches the sessions
    with the most."""
    snapshot_every: int = 1_000
    """Changes between two snapshots in the journal: a restart applies at most these one by one."""

    def __post_init__(self) -> None:
        if not 0 < self.session_min_ms <= self.session_max_ms:
            raise ValueError("session_min_ms must be above 0 and not above session_max_ms")


class CoordinatorServer(Machine[ToServer, None]):
    message_types = TO_SERVER
    sent_types = TO_CLIENT
    delivers = ()

    def __init__(self, context: Context, config: ServerConfig) -> None:
        super().__init__(context)
        self._config = config
        self.tree = Tree()
        self._attached: dict[int, Address] = {}
        self._resumed: dict[int, None] = {}
        """Sessions of an earlier life that did not attach in this one yet."""
        self._opened: dict[Address, tuple[int, int]] = {}
        """Last nonce and its session, so that a client that asks again gets the one that it has."""
        self._watches: dict[tuple[EventKind, str], dict[int, None]] = {}
        self._watching: dict[int, dict[tuple[EventKind, str], None]] = {}
        """The same by session."""
        self._watched_bytes = 0
        self._since_snapshot = 0

    # Inputs

    @property
    def watched_bytes(self) -> int:
        """What all watches take, about."""
        return self._watched_bytes

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        for record in saved:
            self.tree.apply(decode(record))
        for session in self.tree.sessions:
            self._resumed[session] = None
            self._live(session)

    def on_message(self, now_us: int, sender: Address, message: ToServer) -> None:
        match message:
            case Open():
                self._open(now_us, sender, message)
            case _ if not self.tree.has(message.session, sender):
                self.context.send(sender, Expired(message.session))
            case Attach():
                self._attach(sender, message)
            case Beat():
                self._live(message.session)
                if self._is_attached(sender, message.session):
                    self.context.send(sender, Beaten(message.session, message.number))
            case Call():
                self._live(message.session)
                if self._is_attached(sender, message.session):
                    self._call(sender, message)
            case Close():
                self._end(message.session)
            case Gone():
                self._gone(sender, message)
            case _:
                assert_never(message)

    def on_timer(self, now_us: int, name: str) -> None:
        require(name.startswith(EXPIRE), f"no timer is called {name!r}")
        session = int(name[len(EXPIRE) :])
        if session in self.tree.sessions:
            self._end(session)

    def on_request(self, now_us: int, request: None) -> None:
        """There is nothing to ask locally."""

    def on_link_down(self, now_us: int, peer: Address) -> None:
        for session in [each for each, address in self._attached.items() if address == peer]:
            self._detach(session)

    # Sessions

    def _open(self, now_us: int, sender: Address, message: Open) -> None:
        """A server that lost its journal would give numbers a second time. So they are no lower than the
        clock, nor than what the client knows of; a clock that jumped back is no harm to one that has its
        journal."""
        nonce, session = self._opened.pop(sender, (-1, 0))
        if nonce != message.nonce or session not in self.tree.sessions:
            if len(self.tree.sessions) >= self._config.sessions_max:
                self.context.trace("too many sessions", sender=sender)
                return
            low, high = self._config.session_min_ms * 1000, self._config.session_max_ms * 1000
            at_least = max(self.context.wall_us(), message.above + 1)
            granted_us = round(min(max(message.timeout_us, low), high))
            began = self.tree.plan_begin(granted_us, at_least, sender)
            self._change(began)
            session = began.session
        self._live(session)
        self._opened[sender] = (message.nonce, session)
        if len(self._opened) > self._config.sessions_max:
            del self._opened[next(iter(self._opened))]
        self.context.send(sender, Opened(message.nonce, session, self.tree.sessions[session]))

    def _gone(self, sender: Address, message: Gone) -> None:
        """Two witnesses: somebody was refused where its owner listened, and we have no channel with it
        either. One alone may err: a refusal may be a firewall's, and a channel may break."""
        self._live(message.session)
        if (
            self._is_attached(sender, message.session)
            and message.gone in self.tree.sessions
            and message.gone not in self._attached
        ):
            self.context.trace("known to be dead", session=message.gone, by=sender)
            self._end(message.gone)

    def _attach(self, sender: Address, message: Attach) -> None:
        self._detach(message.session)
        self._live(message.session)
        self._attached[message.session] = sender
        resumed = message.session in self._resumed
        self._resumed.pop(message.session, None)
        for watch in message.watches:
            # After a restart all is read again: should the journal have been put back as it was earlier,
            # nobody here knows what was missed, and who read more than there is must see that.
            missed = resumed or self.tree.missed(watch.kind, watch.path, watch.seen, watch.there)
            # One that finds no room fires as well: it is read again then, and nobody waits for what he would
            # not hear.
            if missed or not self._watch(message.session, watch.kind, watch.path):
                self.context.send(sender, Fired(message.session, watch.kind, watch.path))
            if message.session not in self._attached:
                return
        self.context.send(sender, Attached(message.session, message.number))

    def _is_attached(self, sender: Address, session: int) -> bool:
        if self._attached.get(session) == sender:
            return True
        self.context.send(sender, Detached(session))
        return False

    def _detach(self, session: int) -> None:
        self._attached.pop(session, None)
        for key in self._watching.pop(session, ()):
            self._watched_bytes -= _cost(key)
            del self._watches[key][session]
            if not self._watches[key]:
                del self._watches[key]

    def _live(self, session: int) -> None:
        self.context.set_timer(f"{EXPIRE}{session}", self.tree.sessions[session])

    def _end(self, session: int) -> None:
        self.context.cancel_timer(f"{EXPIRE}{session}")
        self.context.trace("session ended", session=session)
        sender = self._attached.get(session)
        self._detach(session)
        self._resumed.pop(session, None)
        self._change(Ended(session))
        if sender is not None:
            self.context.send(sender, Expired(session))

    # The tree

    def _call(self, sender: Address, call: Call) -> None:
        tree = self.tree
        planned: Created | Changed | Deleted | Problem
        match call.operation:
            case Operation.CREATE:
                owner = call.session if call.ephemeral else 0
                planned = tree.plan_create(call.path, call.data, owner, call.sequential)
            case Operation.SET:
                planned = tree.plan_set(call.path, call.data, call.version)
            case Operation.DELETE:
                planned = tree.plan_delete(call.path, call.version)
            case Operation.GET | Operation.CHILDREN:
                planned = Problem.NONE if call.path in tree.nodes else Problem.NO_NODE
                kind = EventKind.DATA if call.operation is Operation.GET else EventKind.CHILDREN
                if call.watch and not self._watch(call.session, kind, call.path):
                    self._detach(call.session)
                    self.context.send(sender, Detached(call.session))
                    return
            case _:
                assert_never(call.operation)
        if isinstance(planned, Problem):
            problem, path = planned, call.path
        else:
            problem, path = Problem.NONE, planned.path
            self._change(planned)
        node = tree.nodes.get(path) if problem is Problem.NONE else None
        reads, lists = call.operation is Operation.GET, call.operation is Operation.CHILDREN
        self.context.send(
            sender,
            Reply(
                call.session,
                call.number,
                problem,
                tree.zxid,
                path=path,
                data=node.data if node is not None and reads else b"",
                version=-1 if node is None else node.version,
                owner=0 if node is None else node.owner,
                children=tuple(sorted(node.children)) if node is not None and lists else (),
            ),
        )

    def _change(self, record: Record) -> None:
        self.context.persist(encode(record))
        self._fire(self.tree.apply(record))
        self._since_snapshot += 1
        if self._since_snapshot >= self._config.snapshot_every:
            self._since_snapshot = 0
            self.context.persist(self.tree.snapshot())

    # Watches

    def _watch(self, session: int, kind: EventKind, path: str) -> bool:
        """Whether there was room for it, or it was there."""
        if session in self._watches.get((kind, path), {}):
            return True
        mine = self._watching.setdefault(session, {})
        if len(mine) >= self._config.watches_max:
            return False
        self._watches.setdefault((kind, path), {})[session] = None
        mine[kind, path] = None
        self._watched_bytes += _cost((kind, path))
        if self._watched_bytes > self._config.watched_bytes:
            self._forget_watches()
        return session in self._watching

    def _forget_watches(self) -> None:
        """Those of the sessions that have most, until a quarter is free: sorting them is then rare."""
        costs = {session: sum(map(_cost, keys)) for session, keys in self._watching.items()}
        for session in sorted(costs, key=lambda each: (-costs[each], each)):
            if self._watched_bytes <= self._config.watched_bytes * 3 // 4:
                break
            sender = self._attached[session]
            self._detach(session)
            self.context.send(sender, Detached(session))

    def _fire(self, events: Events) -> None:
        for kind, path in events:
            for session in self._watches.pop((kind, path), {}):
                self._watched_bytes -= _cost((kind, path))
                del self._watching[session][kind, path]
                self.context.send(self._attached[session], Fired(session, kind, path))


def _cost(watch: tuple[EventKind, str]) -> int:
    return len(watch[1].encode()) + 400

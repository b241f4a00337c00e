"""The coordinator on three machines: one `CoordinatorServer` at the leader of an ensemble, whose records are
the ensemble's log.

The server is the one that runs alone. Here its journal is Raft's log, and what it says waits until its
records are committed and until a majority has confirmed this leader after it was said. So a leader that was
deposed and has not heard of it acknowledges no heartbeat and answers no read. A new leader starts another
server from the committed records, as a restart does; who loses its office drops its own with all that it
wanted to say.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

import msgspec

from qanat.coordinate.messages import TO_CLIENT, TO_SERVER, Close, Elsewhere, ToServer
from qanat.coordinate.server import CoordinatorServer, ServerConfig
from qanat.coordinate.tree import compact
from qanat.kernel import Address, Context, Machine, Message
from qanat.protocols.raft import MESSAGES, Raft, RaftConfig
from qanat.protocols.raft.messages import RaftMessage

HELD_MAX = 65_536
"""Answers that wait for a majority, and their bytes. A leader with more resigns: who asked attaches again,
and reads what came of it."""
HELD_BYTES_MAX = 64 << 20
SERVER = "server/"
"""Begins the names of the server's timers."""
_NEVER = 1 << 62

Said: TypeAlias = ToServer | RaftMessage


class Held(Context):
    """What a leader's server takes for its context."""

    def __init__(self, context: Context, raft: Raft) -> None:
        self._context, self._raft = context, raft
        self._index = 0
        self._timers: dict[str, None] = {}
        self._waiting: deque[tuple[int, int, Address, Message]] = deque()
        self._bytes = 0

    @property
    def address(self) -> Address:
        return self._context.address

    @property
    def rng(self) -> random.Random:
        return self._context.rng

    def wall_us(self) -> int:
        return self._context.wall_us()

    @property
    def overfull(self) -> bool:
        return len(self._waiting) > HELD_MAX or self._bytes > HELD_BYTES_MAX

    def send(self, to: Address, message: Message) -> None:
        self._bytes += _size(message)
        self._waiting.append((self._index, self._raft.confirm(), to, message))

    def cast(self, to: Address, message: Message) -> None:
        self.send(to, message)

    def persist(self, record: bytes) -> None:
        self._index = self._raft.propose(record)

    def set_timer(self, name: str, after_us: int) -> None:
        self._timers[name] = None
        self._context.set_timer(SERVER + name, after_us)

    def cancel_timer(self, name: str) -> None:
        self._timers.pop(name, None)
        self._context.cancel_timer(SERVER + name)

    def when_persisted(self, name: str) -> None:
        """A server of an ensemble waits for nothing but its majority."""
        raise NotImplementedError

    def deliver(self, item: object) -> None:
        self._context.deliver(item)

    def trace(self, what: str, **fields: object) -> None:
        self._context.trace(what, **fields)

    def rang(self, name: str) -> bool:
        """Whether that timer was this server's."""
        return self._timers.pop(name, _NEVER) is None

    def release(self) -> None:
        waiting = self._waiting
        while waiting and self._raft.settled(*waiting[0][:2]):
            _, _, to, message = waiting.popleft()
            self._bytes -= _size(message)
            self._context.send(to, message)

    def drop(self) -> None:
        for name in self._timers:
            self._context.cancel_timer(SERVER + name)


def _size(message: Message) -> int:
    data: bytes = getattr(message, "data", b"")
    children: tuple[str, ...] = getattr(message, "children", ())
    return 200 + len(data) + sum(map(len, children))


class News(msgspec.Struct, frozen=True):
    """Delivered when it changes, for the log."""

    leader: str
    term: int
    whole: bool
    waits: str
    """Why there is no leader, and what to do."""


class EnsembleMember(Machine[Said, None]):
    message_types = (*TO_SERVER, *MESSAGES)
    sent_types = TO_CLIENT
    delivers = (News,)
    held_type: ClassVar[type[Held]] = Held
    raft_type: ClassVar[type[Raft]] = Raft

    def __init__(
        self,
        context: Context,
        server: ServerConfig,
        raft: RaftConfig,
        members: Sequence[Address],
        *,
        lost: bool = False,
    ) -> None:
        """`lost`: there was a journal, and it was refused."""
        super().__init__(context)
        self._config = msgspec.structs.replace(server, snapshot_every=_NEVER)  # the log is folded by Raft
        self._lost = lost
        self.raft = self.raft_type(context, raft, members, compact, self)
        self.server: CoordinatorServer | None = None
        """There is one while this member leads."""
        self._held: Held | None = None
        self._news = News("", 0, False, "")

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.raft.start(now_us, saved, lost=self._lost)

    def on_message(self, now_us: int, sender: Address, message: Said) -> None:
        if self.raft.on_message(now_us, sender, message):
            self._tell()
            return
        if self.server is not None and isinstance(message, TO_SERVER):
            self.server.on_message(now_us, sender, message)
            self._flush(now_us)
        elif not isinstance(message, Close):
            leader = self.raft.leader
            self.context.send(
                sender, Elsewhere("" if leader in (None, self.context.address) else str(leader))
            )

    def on_timer(self, now_us: int, name: str) -> None:
        if name.startswith(SERVER):
            name = name[len(SERVER) :]
            if self.server is not None and self._held is not None and self._held.rang(name):
                self.server.on_timer(now_us, name)
                self._flush(now_us)
        else:
            self.raft.on_timer(now_us, name)
            self._tell()

    def on_request(self, now_us: int, request: None) -> None:
        """There is nothing to ask locally."""

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.raft.on_link_down(now_us, peer)
        self._tell()
        if self.server is not None:
            self.server.on_link_down(now_us, peer)
            self._flush(now_us)

    def _flush(self, now_us: int) -> None:
        if self.raft.is_overfull() or (self._held is not None and self._held.overfull):
            self.context.trace("too much waits for a majority")
            self.raft.resign()
        self.raft.flush(now_us)

    def _tell(self) -> None:
        raft, told = self.raft, self._news
        leader, kept = raft.leader or "", raft.seat.kept
        if leader and (leader, kept.whole) == (told.leader, told.whole):
            return
        news = News(leader, kept.term, kept.whole, "" if leader else raft.presence.waits())
        if (news.leader, news.whole, news.waits) != (told.leader, told.whole, told.waits):
            self._news = news
            self.context.deliver(news)

    # Its office

    def on_lead(self, now_us: int, records: Sequence[bytes]) -> None:
        self._held = self.held_type(self.context, self.raft)
        self.server = CoordinatorServer(self._held, self._config)
        self.server.on_start(now_us, records)

    def on_settled(self, now_us: int) -> None:
        if self._held is not None:
            self._held.release()

    def on_deposed(self) -> None:
        if self._held is not None:
            self._held.drop()
        self.server = self._held = None

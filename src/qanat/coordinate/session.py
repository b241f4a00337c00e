"""A session with a coordinator, a part of another machine: the embedded one, or a bridge to ZooKeeper.

The owner implements `Listener`. The session heartbeats,
attaches again after a broken channel, and keeps a *lease*: while `leased` the server cannot have ended the
session.

Why the lease is safe: the server counts the timeout from when a heartbeat arrived, we from when it was sent,
shortened by how much two clocks may differ in rate. A heartbeat counts only when it was acknowledged, and the
server acknowledges only an attached session, after every event that it owes it.

Where several servers form an ensemble, one of them leads and serves. The session follows their hints, tries
one after the other while there are none, and leaves one that acknowledges nothing for two heartbeats.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from qanat.coordinate.interface import DATA_BYTES_MAX, Answer, Coordinator, Listener, Problem, Then
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
    Elsewhere,
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
from qanat.kernel import Address, Context, Lease
from qanat.protocols.registry import CoordinatorSession

BEAT, RETRY = "beat", "retry"


class SessionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The session of a node with its coordinator."""

    timeout_ms: float = 2_000.0
    """Silence after which the coordinator ends the session: so long a dead replica stays in its chain."""
    beats_per_timeout: int = 6
    """Heartbeats per timeout: with 6, two thirds of them may be lost before the lease runs out."""
    retry_ms: float = 200.0
    """Time between two attempts to open or resume the session; a node tries several coordinators in turn."""
    clock_rate_bound: float = 0.06
    """Largest error of any clock's rate (0.06: six seconds in a hundred; quartz is a thousand times better).
    A lease is timeout · (1 - bound) / (1 + bound)."""
    zookeeper_tick_ms: float = 2_000.0
    """ZooKeeper's `tickTime`, or more. A server of an ensemble may delay a heartbeat by half of it, so nodes
    request ZooKeeper sessions that are this much longer than `timeout_ms`."""
    refused_is_dead: bool = True
    """Whether a replica's session ends at once when its address refuses its neighbours' connections and its
    channel with the coordinator is broken. Turn it off if a firewall or load balancer refuses connections to
    live processes. Without effect with ZooKeeper."""
    calls_max: int = 1_000
    """Most calls that wait for an answer or a session; further ones get CONNECTION_LOSS at once."""

    def __post_init__(self) -> None:
        if self.timeout_ms <= 0 or self.retry_ms <= 0 or self.beats_per_timeout < 2:
            raise ValueError("timeout_ms and retry_ms must be above 0, beats_per_timeout at least 2")
        if self.zookeeper_tick_ms < 0:
            raise ValueError("zookeeper_tick_ms must not be below 0")
        if not 0 <= self.clock_rate_bound < 1:
            raise ValueError("clock_rate_bound must be between 0 and 1")

    def lease_us(self, timeout_us: int) -> int:
        return int(timeout_us * (1 - self.clock_rate_bound) / (1 + self.clock_rate_bound))

    def outlasts_us(self, timeout_us: int) -> int:
        """How long to wait, on any clock, until somebody else's lease of that timeout has surely run out."""
        return int(timeout_us * (1 + self.clock_rate_bound) / (1 - self.clock_rate_bound)) + 1


class Session(CoordinatorSession, Coordinator):
    """`id` is 0 while there is no session."""

    message_types = TO_CLIENT
    sent_types = TO_SERVER

    def __init__(
        self, context: Context, config: SessionConfig, server: Address | Sequence[Address], listener: Listener
    ) -> None:
        """`server`: the one, or all of an ensemble."""
        self._context, self._config, self._listener = context, config, listener
        self._servers = (Address(server),) if isinstance(server, str) else tuple(server)
        self._server = self._servers[0]
        self._hinted = False
        """A hint was followed since the last attempt: one that leads nowhere is not followed in circles."""
        self._unanswered = 0
        self.id = 0
        self.attached = False
        self.above = 0
        """The highest number of a session that the owner knows of, from earlier lives or from others."""
        self._closed = False
        self._nonce = 0
        self._attachment = 0
        self._timeout_us = round(config.timeout_ms * 1000)
        self._number = 0
        self._lease = Lease()
        self._calls: dict[int, tuple[Call, Then]] = {}
        self._waiting: list[tuple[Call, Then]] = []
        self._watches: dict[tuple[EventKind, str], Watch] = {}

    @property
    def timeout_us(self) -> int:
        return self._timeout_us

    def leased(self, now_us: int) -> bool:
        """Whether the server still has this session, whatever else happened."""
        return self._lease.held(now_us)

    # Inputs

    def start(self) -> None:
        self._open()

    def close(self) -> None:
        """End the session now, and for good: there is no lease from here on, and no other session is
        opened."""
        if self.id:
            self._context.send(self._server, Close(self.id))
        self.id, self.attached, self._closed = 0, False, True
        self._lease.end()
        self._nonce = -1
        for timer in (BEAT, RETRY):
            self._context.cancel_timer(timer)
        self._waiting = []
        self._calls.clear()

    def on_message(self, now_us: int, sender: Address, message: ToClient) -> None:
        if sender != self._server:
            return
        if isinstance(message, Elsewhere):
            self._elsewhere(message)
            return
        if isinstance(message, Opened):
            if message.nonce == self._nonce and not self.id:
                self._opened(now_us, message)
            return
        if message.session != self.id:
            return
        match message:
            case Attached():
                if message.number == self._attachment:
                    self._on_attached(now_us)
            case Beaten():
                self._on_beaten(now_us, message.number)
            case Reply():
                self._on_reply(message)
            case Fired():
                if self._watches.pop((message.kind, message.path), None) is not None:
                    self._listener.on_event(message.kind, message.path)
            case Detached():
                if self.attached:
                    self._reattach()
            case Expired():
                self._expired()
            case _:
                assert_never(message)

    def on_timer(self, now_us: int, name: str) -> None:
        if self._closed:
            return
        if name == BEAT:
            if self.id:
                self._send_beat(now_us)
        elif name == RETRY:
            self._next_server()
            if not self.id:
                self._ask_open()
            elif not self.attached:
                self._ask_attach()

    def on_link_down(self, now_us: int, peer: Address) -> None:
        if peer == self._server and self.id and self.attached:
            self._next_server()
            self._reattach()

    # Calls

    def create(
        self, path: str, data: bytes, then: Then, *, ephemeral: bool = False, sequential: bool = False
    ) -> None:
        self._call(
            Call(0, 0, Operation.CREATE, path, data=data, ephemeral=ephemeral, sequential=sequential), then
        )

    def set(self, path: str, data: bytes, version: int, then: Then) -> None:
        self._call(Call(0, 0, Operation.SET, path, data=data, version=version), then)

    def delete(self, path: str, version: int, then: Then) -> None:
        self._call(Call(0, 0, Operation.DELETE, path, version=version), then)

    def get(self, path: str, then: Then, *, watch: bool = False) -> None:
        self._call(Call(0, 0, Operation.GET, path, watch=watch), then)

    def children(self, path: str, then: Then, *, watch: bool = False) -> None:
        self._call(Call(0, 0, Operation.CHILDREN, path, watch=watch), then)

    def gone(self, session: int) -> None:
        """Whoever has that other session is dead: nobody listens where it did. Said again until it is so."""
        if self.attached and self._config.refused_is_dead:
            self._context.send(self._server, Gone(self.id, session))

    def _call(self, call: Call, then: Then) -> None:
        if self._closed or len(self._calls) + len(self._waiting) >= self._config.calls_max:
            then(Answer(Problem.CONNECTION_LOSS))
        elif len(call.data) + len(call.path.encode()) > DATA_BYTES_MAX:
            then(Answer(Problem.BAD_ARGUMENTS))  # it would not fit into a message
        elif self.attached:
            self._number += 1
            call = msgspec.structs.replace(call, session=self.id, number=self._number)
            self._calls[call.number] = (call, then)
            self._context.send(self._server, call)
        else:
            self._waiting.append((call, then))

    def _on_reply(self, reply: Reply) -> None:
        call, then = self._calls.pop(reply.number, (None, None))
        if call is None or then is None:
            return
        problem = Problem(reply.problem)
        if call.watch:
            kind = EventKind.DATA if call.operation is Operation.GET else EventKind.CHILDREN
            watch = Watch(kind, call.path, reply.zxid, problem is Problem.NONE)
            self._watches[kind, call.path] = watch
        then(Answer(problem, reply.path, reply.data, reply.version, reply.owner, reply.children))

    def _fail_calls(self, problem: Problem) -> None:
        lost, self._calls = self._calls, {}
        for _, then in lost.values():
            then(Answer(problem))

    # The session

    def _open(self) -> None:
        self._nonce = self._context.rng.getrandbits(62)
        self._ask_open()

    def _ask_open(self) -> None:
        """Asking again keeps the nonce: a server that takes longer to answer than we to ask again still
        answers us."""
        timeout_us = round(self._config.timeout_ms * 1000)
        self._context.send(self._server, Open(self._nonce, timeout_us, self.above))
        self._retry_later()

    def _opened(self, now_us: int, message: Opened) -> None:
        self.id, self._timeout_us = message.session, message.timeout_us
        self.above = max(self.above, self.id)
        self._lease.end()
        self._attach()
        self._send_beat(now_us)
        self._listener.on_opened(self.id)

    def _attach(self) -> None:
        self._attachment += 1
        self._ask_attach()

    def _ask_attach(self) -> None:
        watches = tuple(self._watches.values())
        self._context.send(self._server, Attach(self.id, self._attachment, watches))
        self._retry_later()

    def _reattach(self) -> None:
        """The channel broke or the server forgot us: what was asked may or may not have happened."""
        self.attached = False
        self._attach()
        self._fail_calls(Problem.CONNECTION_LOSS)

    def _on_attached(self, now_us: int) -> None:
        self.attached, self._hinted, self._unanswered = True, False, 0
        self._context.cancel_timer(RETRY)
        waiting, self._waiting = self._waiting, []
        for call, then in waiting:
            self._call(call, then)
        self._send_beat(now_us)

    def _expired(self) -> None:
        self.id, self.attached = 0, False
        self._lease.end()
        self._context.cancel_timer(BEAT)
        self._watches.clear()
        waiting, self._waiting = self._waiting, []
        self._open()
        self._fail_calls(Problem.SESSION_EXPIRED)
        for _, then in waiting:
            then(Answer(Problem.SESSION_EXPIRED))
        self._listener.on_expired()

    # Several servers

    def _next_server(self) -> None:
        at = self._servers.index(self._server)
        self._server, self._hinted = self._servers[(at + 1) % len(self._servers)], False

    def _elsewhere(self, message: Elsewhere) -> None:
        """The server that is asked does not lead. Without a hint the next one is asked at the next
        attempt."""
        if message.leader in self._servers and message.leader != self._server and not self._hinted:
            self._server, self._hinted = Address(message.leader), True
            if self.attached:
                self._reattach()
            elif self.id:
                self._ask_attach()
            elif not self._closed:
                self._ask_open()
        elif self.attached:
            self._next_server()
            self._reattach()

    def _retry_later(self) -> None:
        self._context.set_timer(RETRY, round(self._config.retry_ms * 1000))

    # Heartbeats and the lease

    def _send_beat(self, now_us: int) -> None:
        if self.attached and self._unanswered >= 2 and len(self._servers) > 1:
            self._next_server()
            self._reattach()
        self._unanswered += 1
        number = self._lease.ask(now_us, self._config.lease_us(self._timeout_us))
        self._context.send(self._server, Beat(self.id, number))
        self._context.set_timer(BEAT, self._timeout_us // self._config.beats_per_timeout)

    def _on_beaten(self, now_us: int, number: int) -> None:
        self._unanswered = 0
        if self._lease.grant(now_us, number):
            self._listener.on_lease()

"""A TCP link that can be cut: connections go through it to one target, and stall, break or heal on command.

A *cut* link behaves as a network that drops packets: connections stay, and nothing arrives. What was sent
before the cut and not yet forwarded waits (bounded: nothing more is read), and goes on when the link heals,
as TCP's own retransmissions would. Connections that come meanwhile are held, and get through when it heals.
Nothing is read from them, so that their end goes unnoticed; but no more than some are held, and one beyond
them ends the oldest, whose dialler has given up long since. A cut may be one-way. A *broken* link closes its
connections at once, as a reset would.
"""

import asyncio
import enum
from contextlib import suppress
from typing import cast

_QUEUE_BYTES = 256 * 1024
"""Unsent bytes of one direction of one connection above which no more is read."""


HELD_MAX = 32
"""Connections that wait for a link to heal, each a socket. A region has at most 16 replicas, and each dials
one at a time: who is not among the last 32 is waited for by nobody."""


class Direction(enum.Enum):
    """Seen from the one who dialled."""

    THERE = "there"
    BACK = "back"


BOTH = frozenset(Direction)


class LinkProxy:
    """Forwards `host:port` (any free port for 0) to a target."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = (target_host, target_port)
        self.port = 0
        self.forwarded_bytes = 0
        self.cut_directions: frozenset[Direction] = frozenset()
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._waiting: list[_Pair] = []
        self._open_ends = 0
        self._quiet = asyncio.Event()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Pair(self).near, host, port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def close(self) -> None:
        """Stops listening and ends all connections; returns when their sockets are closed."""
        if self._server is not None:
            self._server.close()
        self.break_all()
        while self._open_ends:
            self._quiet.clear()
            await self._quiet.wait()

    def cut(self, directions: frozenset[Direction] = BOTH) -> None:
        """From now on nothing passes in these directions, and nobody new gets through."""
        self.set_cuts(self.cut_directions | directions)

    def heal(self) -> None:
        """Everything passes again; what waited goes first."""
        self.set_cuts(frozenset())

    def set_cuts(self, directions: frozenset[Direction]) -> None:
        """Nothing passes in these directions, everything in the others."""
        self.cut_directions = directions
        if not directions:
            waiting, self._waiting = self._waiting, []
            for pair in waiting:
                pair.connect()
        for pair in self._pairs:
            pair.update()

    def break_all(self) -> None:
        """Resets every connection that passes through; later ones are served as before."""
        for pair in list(self._pairs):
            pair.end()
        self._waiting.clear()

    @property
    def connections(self) -> int:
        return len(self._pairs)

    @property
    def queued_bytes(self) -> int:
        """What was received and has not been passed on to the kernel."""
        return sum(end.queued_bytes for pair in self._pairs for end in (pair.near, pair.far))

    def opened(self, count: int) -> None:
        self._open_ends += count
        if not self._open_ends:
            self._quiet.set()

    def hold(self, pair: "_Pair") -> None:
        """A connection that came while the link is cut: it gets no further until the link heals, or others
        have come."""
        self._waiting.append(pair)
        if len(self._waiting) > HELD_MAX:
            self._waiting[0].end()

    def add(self, pair: "_Pair") -> None:
        self._pairs.add(pair)

    def remove(self, pair: "_Pair") -> None:
        self._pairs.discard(pair)
        if pair in self._waiting:
            self._waiting.remove(pair)


class _Pair:
    """One connection through the link: the near end dialled us, the far end is ours to the target."""

    def __init__(self, link: LinkProxy) -> None:
        self.link = link
        self.near = _End(self, Direction.THERE)
        self.far = _End(self, Direction.BACK)
        self.near.other, self.far.other = self.far, self.near
        self._task: asyncio.Task[None] | None = None

    def opened(self) -> None:
        self.link.add(self)
        self.near.update()
        if self.link.cut_directions:
            self.link.hold(self)
        else:
            self.connect()

    def connect(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, *self.link.target)
        except OSError:
            self.end()
        self.update()

    def update(self) -> None:
        self.near.update()
        self.far.update()

    def end(self) -> None:
        self.link.remove(self)
        if self._task is not None:
            self._task.cancel()
        self.near.abort()
        self.far.abort()


class _End(asyncio.Protocol):
    """One socket of a pair. What it receives goes out at the other end."""

    def __init__(self, pair: _Pair, direction: Direction) -> None:
        self.pair, self.direction = pair, direction
        self.other: _End = self
        self._transport: asyncio.Transport | None = None
        self._full = False
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_QUEUE_BYTES)
        self.pair.link.opened(1)
        if self is self.pair.near:
            self.pair.opened()
        elif self.other._early:
            self._transport.write(b"".join(self.other._early))
            self.other._early.clear()

    def data_received(self, data: bytes) -> None:
        self.pair.link.forwarded_bytes += len(data)
        if self.other._transport is not None:
            self.other._transport.write(data)
        else:  # a loop may start reading before it heeds that we do not want it to yet
            self._early.append(data)
            self.update()

    def eof_received(self) -> bool:
        transport = self.other._transport
        if transport is not None and transport.can_write_eof():
            with suppress(OSError):
                transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.pair.end()
        self.pair.link.opened(-1)

    def pause_writing(self) -> None:
        self._full = True
        self.other.update()

    def resume_writing(self) -> None:
        self._full = False
        self.other.update()

    def update(self) -> None:
        """Reads while there is someone to forward to, room at the other end, and no cut."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        blocked = (
            self.direction in self.pair.link.cut_directions
            or self.other._full
            or self.other._transport is None
        )
        if blocked and transport.is_reading():
            transport.pause_reading()
        elif not blocked and not transport.is_reading():
            transport.resume_reading()

    @property
    def queued_bytes(self) -> int:
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return waiting + sum(map(len, self._early))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

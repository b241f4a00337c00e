"""The channels between this node and the others, as machines see them: send, and hear when one broke."""

import asyncio
import logging
import random
import ssl as ssl_module
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice

from qanat.events.errors import RemoteError
from qanat.runtime import descriptors
from qanat.runtime.backoff import Backoff
from qanat.runtime.budget import Shed
from qanat.runtime.connection import Connection
from qanat.runtime.dialer import CannotConnect, dial
from qanat.runtime.peers import Peers
from qanat.runtime.service import IDLE, Closed, Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url
from qanat.wire.control import Identity, Refused
from qanat.wire.frame import Bytes

log = logging.getLogger("qanat.links")

LINKS_MAX = 65_536
"""Peers that something is remembered of, about 500 bytes each; beyond it those are forgotten first for whom
nothing waits."""
Book = Callable[[str], Url | None]
"""Where a node can be dialled, by name; None when that is not known."""


_WRONG = frozenset({"unknown_channel", "malformed", "over_limit", "protocol", "handler_error"})


def _was_wrong(closed: Closed | None) -> bool:
    """Whichever end said so."""
    if closed is None:
        return False
    return (closed.detail.partition(":")[0] if closed.code == "goodbye" else closed.code) in _WRONG


class _Link:
    """What is kept for a peer to whom no connection is up."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.waiting: list[list[Bytes]] = []
        self.waiting_bytes = 0
        self.task: asyncio.Task[None] | None = None
        self.last: Connection | None = None
        """The last connection that came up."""
        self.refused = False
        """Whether nobody listened when it was dialled last."""

    def drop(self) -> bool:
        had = bool(self.waiting)
        self.waiting = []
        self.waiting_bytes = 0
        return had


class Links:
    """Opens connections when somebody sends, one per pair of nodes, and says when they break.

    A frame for a peer without a connection waits until one is up, at most `high_water_bytes` of them per
    peer. When the dial fails, or more would wait, all that waits is lost and `on_down(peer)` is
    called: the channel broke. The next send tries again, after a pause that grows with each failure. When
    nobody listens at the peer's
    address, `on_refused(peer)` is called before that.

    With `idle_ms`, a connection that this end dialled and on which no machine said anything for that long is
    closed (`idle`). This end loses nothing by it, and is not told; the peer cannot know that, and is.
    """

    def __init__(
        self,
        identity: Identity,
        services: Mapping[int, Service],
        book: Book,
        on_down: Callable[[str], None],
        on_refused: Callable[[str], None] = lambda _peer: None,
        *,
        settings: TransportSettings,
        traffic: Traffic,
        rng: random.Random,
        ssl: ssl_module.SSLContext | None = None,
        idle_ms: float = 0,
        short_way: bool = False,
        capabilities: tuple[str, ...] = (),
    ) -> None:
        self.identity = identity
        self.peers = Peers(identity)
        self._services = services
        self._book = book
        self._on_down = on_down
        self._on_refused = on_refused
        self._settings = settings
        self._traffic = traffic
        self._rng = rng
        self._ssl = ssl
        self._links: dict[str, _Link] = {}
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._idle_s = idle_ms / 1000
        self._short_way = short_way
        self._capabilities = capabilities
        self._used_s: dict[str, float] = {}
        """When something was last said on the channel with a peer, if idle channels are closed."""
        self._sweep: asyncio.TimerHandle | None = None
        if self._idle_s:
            self._sweep_later()

    def reload(self, settings: TransportSettings) -> None:
        """Takes new settings over, for the connections that are up and for pauses between dials as well."""
        self._settings = settings
        for connection in self.peers:
            connection.settings = settings
        for link in self._links.values():
            link.backoff.reload(settings.backoff_ms, settings.backoff_limit_ms)

    def send(self, to: str, parts: list[Bytes]) -> None:
        """Never blocks and never fails: a channel that cannot carry it breaks instead."""
        if self._idle_s:
            self._used_s[to] = self._loop.time()
        connection = self.peers.get(to)
        if connection is not None and connection.opened:
            connection.send_parts(parts)
            return
        link = self._links.get(to)
        if link is None:
            link = self._links[to] = self._new_link()
        link.waiting.append(parts)
        link.waiting_bytes += sum(len(part) for part in parts)
        if link.waiting_bytes > self._settings.high_water_bytes:
            self._break(to, link, "too much waits for the connection")
        if link.task is None and not self._closed:
            link.task = self._loop.create_task(self._dial(to, link), name=f"link to {to}")

    @property
    def waiting_bytes(self) -> int:
        """What waits for connections, in all."""
        return sum(link.waiting_bytes for link in self._links.values())

    def give_up(self, asked: Shed) -> int:
        """When memory is short, the channels break for which most waits."""
        given = 0
        if asked.over > 0:
            waiting = [(link.waiting_bytes, to) for to, link in self._links.items() if link.waiting_bytes]
            for size, to in sorted(waiting, reverse=True):
                if given >= asked.over:
                    break
                self._break(to, self._links[to], "memory is short")
                given += size
        return given

    def _new_link(self) -> _Link:
        """Names come from strangers, too: they are remembered up to a bound."""
        if len(self._links) >= LINKS_MAX:
            idle = (to for to, link in self._links.items() if link.task is None and not link.waiting)
            for to in list(islice(idle, LINKS_MAX // 16)):
                del self._links[to]
        return _Link(Backoff(self._settings.backoff_ms, self._settings.backoff_limit_ms, self._rng))

    def connected(self, connection: Connection) -> None:
        """A connection with a node is up, whoever dialled it: what waits for it goes out."""
        link = self._links.get(connection.peer.name)
        if link is None:
            return
        link.last = connection
        waiting = link.waiting
        link.drop()
        for parts in waiting:
            connection.send_parts(parts)

    def heard(self, peer: str) -> None:
        """A machine of this peer said something."""
        if self._idle_s:
            self._used_s[peer] = self._loop.time()

    async def close(self) -> None:
        """Sends what is queued on connections this side dialled, closes them and dials no more."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        tasks = [link.task for link in self._links.values() if link.task is not None]
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        connections = list(self.peers)
        for connection in connections:
            connection.close("shutdown")
        for connection in connections:
            await connection.wait_closed()

    def _sweep_later(self) -> None:
        self._sweep = self._loop.call_later(self._idle_s / 4, self._close_idle)

    def _close_idle(self) -> None:
        since = self._loop.time() - self._idle_s
        used = self._used_s
        for connection in self.peers:
            if connection.dialled and used.get(connection.peer.name, 0.0) < since:
                connection.close(IDLE, f"nothing was said on it for {self._idle_s:g} s")
        self._used_s = {peer: at for peer, at in used.items() if at >= since}
        self._links = {peer: link for peer, link in self._links.items() if peer in self._used_s or link.task}
        self._sweep_later()

    async def _dial(self, to: str, link: _Link) -> None:
        """Dials until nothing waits: each failure drops what waits, so there is more only if more was sent.

        A connection on which one end found something wrong counts as a failure too: who answers there may be
        of another kind, and close it each time.
        """
        if link.last is not None:
            if _was_wrong(link.last.closed):
                link.backoff.next_ms()
            else:
                link.backoff.reset()
            link.last = None
        try:
            while link.waiting:
                if link.backoff.failures:
                    await asyncio.sleep(self._pause_ms(link) / 1000)
                if not link.waiting or self.peers.get(to) is not None:
                    return
                await self._try(to, link)
        finally:
            link.task = None

    def _pause_ms(self, link: _Link) -> float:
        pause_ms = link.backoff.next_ms()
        if not link.refused:
            return pause_ms
        return min(pause_ms, self._settings.refused_limit_ms * (1 - self._rng.random() / 2))

    async def _try(self, to: str, link: _Link) -> None:
        link.refused = False
        if not descriptors.for_stream(descriptors.lowest_free()):
            link.backoff.next_ms()
            self._break(to, link, "there is no descriptor for a connection")
            return
        url = self._book(to)
        if url is None:
            link.backoff.next_ms()
            self._break(to, link, "its address is not known")
            return
        try:
            connection = await dial(
                url,
                self.identity,
                self._services,
                settings=self._settings,
                traffic=self._traffic,
                ssl=self._ssl,
                peers=self.peers,
                short_way=self._short_way,
                capabilities=self._capabilities,
            )
        except Refused as error:
            link.backoff.next_ms()
            if error.code != "duplicate":
                self._break(to, link, str(error))
            elif (survivor := self.peers.get(to)) is not None:
                self._on_down(to)  # the peer may have used the connection that lost
                self.connected(survivor)
        except RemoteError as error:
            link.backoff.next_ms()
            link.refused = isinstance(error, CannotConnect) and error.refused
            if link.refused:
                self._loop.call_soon(self._on_refused, to)
            self._break(to, link, str(error))
        else:
            if connection.peer.name != to:
                connection.close("protocol", f"expected {to}, found {connection.peer.name}")
                link.backoff.next_ms()
                self._break(to, link, f"{connection.peer.name} answers at its address")

    def _break(self, to: str, link: _Link, reason: str) -> None:
        if link.drop():
            log.debug("link down", extra={"peer": to, "reason": reason})
            self._loop.call_soon(self._on_down, to)

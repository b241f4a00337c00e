"""Runs protocol machines on real sockets, clocks and disks."""

import asyncio
import logging
import random
import ssl as ssl_module
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from qanat.events.errors import LocalError
from qanat.kernel import Address, Factory, Message
from qanat.runtime.budget import MemoryBudget
from qanat.runtime.clocks import monotonic_us
from qanat.runtime.datagram import DatagramEndpoint, open_datagrams
from qanat.runtime.journal import Compact
from qanat.runtime.links import Book, Links
from qanat.runtime.listener import CannotListen, Listener, listen
from qanat.runtime.members import Heard
from qanat.runtime.runner import Runner
from qanat.runtime.service import FIRST_MACHINE_CHANNEL, Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.shelf import Shelf
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.frame import Bytes
from qanat.wire.placed import CAPABILITY

log = logging.getLogger("qanat.driver")

_BIND_ATTEMPTS = 5


@lru_cache(maxsize=4096)
def _is_name(host: str) -> bool:
    """Whether it has to be resolved; asked for each datagram."""
    return ":" not in host and any(c.isalpha() for c in host)


class Driver:
    """The machines of one node, multiplexed over one connection per pair of nodes and one UDP socket.

    Add machines, then `start`; all machines of a node that are to talk to one on another node are added there
    on the same channel. A machine that raises is stopped and reported by `failed`; the others go on.
    """

    def __init__(
        self,
        identity: Identity,
        book: Book,
        *,
        folder: Path | None = None,
        settings: TransportSettings | None = None,
        traffic: Traffic | None = None,
        rng: random.Random | None = None,
        clock_us: Callable[[], int] = monotonic_us,
        ssl: ssl_module.SSLContext | None = None,
        ssl_dial: ssl_module.SSLContext | None = None,
        idle_ms: float = 0,
        short_way: bool = False,
        on_failure: Callable[[str, str], None] = lambda _machine, _reason: None,
        compression: Callable[[str], str] = lambda _peer: "",
    ) -> None:
        """`folder` is where journals are kept: without one, a machine that persists is stopped.

        With `idle_ms`, channels that this node dialled and does not use are closed after that time. With
        `short_way`, peers on the same machine, none of which ever dials this node, are reached by their Unix
        sockets, and what they have laid down is taken from their shelves. `on_failure` is told the name of a
        machine that stopped by a fault, and why. `compression` names the codec of what is sent to a peer.
        """
        self.identity = identity
        self.settings = settings or TransportSettings()
        self.traffic = traffic or Traffic()
        self.rng = rng or random.Random()
        self.clock_us = clock_us
        self.folder = folder
        self.disk = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.services: dict[int, Service] = {}
        self.listener: Listener | None = None
        self.links: Links
        self._book = book
        self._ssl = ssl
        self._ssl_dial = ssl_dial
        self._idle_ms = idle_ms
        self._short_way = short_way
        self._has_shelf = self.settings.short_ways and self.settings.shelf_bytes > 0
        self.capabilities = (CAPABILITY,) if short_way and self._has_shelf else ()
        self.repaired: list[str] = []
        """What was wrong with one file of a journal, and was made good from its twin."""
        self.shelf: Shelf | None = None
        """Where large messages lie for peers on this machine, if this node listens."""
        self.on_failure = on_failure
        self.on_room: Callable[[bool], None] = lambda _there: None
        """Told whether a journal finds room on the disk."""
        self.compression = compression
        self._opened = False
        self._runners: dict[int, Runner] = {}
        self._datagrams: DatagramEndpoint | None = None
        self._numeric: dict[str, tuple[str, int]] = {}
        self._resolving: set[asyncio.Task[None]] = set()
        self.neighbours: dict[Address, Callable[[Message], None]] = {}
        """Peers that live in this process and are no machines, such as a bridge to a server that speaks
        otherwise: what is sent to one is handed to it as it is, in order and when its turn has come; what it
        says goes to `hear`."""

    def add(
        self,
        channel: int,
        name: str,
        factory: Factory,
        deliver: Callable[[Any], None] = lambda _item: None,
        *,
        compact: Compact | None = None,
        vouched: bool = False,
        again: bool = False,
    ) -> None:
        """Adds a machine; `name` names its journal, which `compact` keeps short, and of which it is written
        down apart how far it reached if it is `vouched` for; `deliver` takes what it delivers. With `again`,
        one that stopped by a fault is made anew after a pause: it keeps nothing, and what it knew comes back
        from its peers."""
        if self._opened:
            raise LocalError("machines are added before the driver starts")
        if channel < FIRST_MACHINE_CHANNEL or channel in self.services:
            raise LocalError(
                f"channel {channel} cannot be used: machines have channels of their own, from"
                f" {FIRST_MACHINE_CHANNEL}"
            )
        self._runners[channel] = self.services[channel] = Runner(
            self, channel, name, factory, deliver, compact, vouched, again=again
        )

    async def start(self, host: str, port: int) -> Url:
        """Listens on TCP and UDP (port 0: any free one, the same for both) and starts the machines."""
        await self._open()
        if self._has_shelf:
            self.shelf = Shelf(self.settings.shelf_bytes)
        await self._bind(host, port)
        for runner in self._runners.values():
            runner.start()
        assert self.listener is not None
        return self.listener.url

    async def start_unlisted(self) -> None:
        """Starts the machines without listening: they dial, nobody dials them, and their datagrams are
        lost."""
        await self._open()
        for runner in self._runners.values():
            runner.start()

    async def _open(self) -> None:
        self.links = Links(
            self.identity,
            self.services,
            self._book,
            self._link_down,
            self._refused,
            settings=self.settings,
            traffic=self.traffic,
            rng=random.Random(self.rng.random()),
            ssl=self._ssl_dial,
            idle_ms=self._idle_ms,
            short_way=self._short_way,
            capabilities=self.capabilities,
        )
        self._opened = True
        for runner in self._runners.values():
            await runner.open()

    def reload(self, settings: TransportSettings) -> None:
        """Takes new settings over, for all connections, whoever dialled them."""
        self.settings = settings
        if self._opened:
            self.links.reload(settings)
        if self.listener is not None:
            self.listener.reload(settings)

    def request(self, channel: int, request: object) -> None:
        """Hands a local request to a machine; raises `LocalError` when it is stopped or its disk is
        behind."""
        self._runners[channel].request(request)

    def tell(self, channel: int, news: object) -> None:
        """The same for what a machine must hear, such as that something is done: taken however far its disk
        is behind, and of no interest to one that is stopped."""
        self._runners[channel].tell(news)

    def hear(self, channel: int, neighbour: Address, message: Message) -> None:
        """A neighbour says something to a machine."""
        self._runners[channel].hear(neighbour, message)

    def failed(self) -> dict[str, str]:
        """Machines that stopped by a fault of their own or of their disk, and why."""
        return {r.name: r.failure for r in self._runners.values() if r.failure is not None}

    def machines(self) -> dict[str, dict[str, object]]:
        """How each is, and how often it was started again."""
        return {r.name: {"failure": r.failure, "restarts": r.restarts} for r in self._runners.values()}

    def account(self, budget: MemoryBudget) -> None:
        """Adds what waits for connections to be up to the budget's holders."""
        budget.add(
            "frames_waiting",
            lambda: self.links.waiting_bytes if self._opened else 0,
            lambda asked: self.links.give_up(asked) if self._opened else 0,
        )

    async def stop(self) -> None:
        """Stops the machines, waits for their records and what was already sent, then closes."""
        for runner in self._runners.values():
            await runner.close()
        for task in list(self._resolving):
            task.cancel()
        if self._datagrams is not None:
            self._datagrams.close()
        if self._opened:
            await self.links.close()
        if self.listener is not None:
            await self.listener.close()
        if self.shelf is not None:
            self.shelf.close()
        self.disk.shutdown(wait=False)

    # ------------------------------------------------------------------ for runners

    def cast(self, to: Address, channel: int, message: bytes, attachments: list[Bytes]) -> None:
        """Datagrams to a host name are lost until the name is resolved, which the first one begins."""
        where = self._numeric.get(to)
        if where is None:
            url = self._book(to)
            if url is None:
                return
            if _is_name(url.host):
                task = asyncio.get_running_loop().create_task(self._resolve(to, url))
                self._resolving.add(task)
                task.add_done_callback(self._resolving.discard)
                return
            where = (url.host, url.port)
        if self._datagrams is not None:
            self._datagrams.send(*where, channel, message, attachments)

    def came(self, name: str, host: str, port: int | None = None) -> None:
        """Something came from there under that name."""
        if isinstance(self._book, Heard):
            self._book.came(name, host, port)

    async def _bind(self, host: str, port: int) -> None:
        """TCP and UDP on one port; with port 0, the one that TCP gets may be taken for UDP: then another."""
        receivers = {channel: runner.on_datagram for channel, runner in self._runners.items()}
        for attempt in range(_BIND_ATTEMPTS):
            listener = await listen(
                host,
                port,
                self.identity,
                self.services,
                settings=self.settings,
                traffic=self.traffic,
                ssl=self._ssl,
                peers=self.links.peers,
            )
            try:
                self._datagrams = await open_datagrams(
                    host,
                    listener.port,
                    self.identity,
                    receivers,
                    settings=self.settings,
                    traffic=self.traffic,
                    came=self.came,
                )
            except CannotListen:
                await listener.close()
                if port or attempt == _BIND_ATTEMPTS - 1:
                    raise
            else:
                self.listener = listener
                return

    async def _resolve(self, to: Address, url: Url) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(url.host, url.port)
        except OSError as error:
            log.debug("name not resolved", extra={"host": url.host, "reason": str(error)})
            return
        self._numeric[to] = (str(found[0][4][0]), url.port)

    def _link_down(self, peer: str) -> None:
        for runner in self._runners.values():
            runner.link_down(Address(peer))

    def _refused(self, peer: str) -> None:
        for runner in self._runners.values():
            runner.refused(Address(peer))

"""One instance of an application: its machine on the network, and its callbacks in a thread."""

import asyncio
import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import assert_never

import msgspec

from qanat.applications.callbacks import Callbacks, DataLoss, Datamarker, Delivery
from qanat.applications.counting import Counting
from qanat.events import arguments
from qanat.events.errors import LocalError, RemoteError
from qanat.events.position import Position
from qanat.kernel import Address, Context
from qanat.protocols.publisher.config import SubscriberConfig
from qanat.protocols.publisher.messages import (
    Item,
    Loss,
    Mark,
    Notice,
    Token,
    Updates,
)
from qanat.protocols.publisher.subscriber import (
    Done,
    GiveUp,
    Handed,
    Joined,
    Publishers,
    Reach,
    Returned,
    Stop,
    Stopped,
    Subscriber,
    SubscriberItem,
    SubscriberRequest,
)
from qanat.runtime.admin import Admin
from qanat.runtime.dialer import dial
from qanat.runtime.driver import Driver
from qanat.runtime.metrics import Metrics
from qanat.runtime.node_settings import AdminSettings
from qanat.runtime.service import FIRST_MACHINE_CHANNEL
from qanat.runtime.settings import TransportSettings
from qanat.runtime.traffic import Traffic
from qanat.runtime.url import PUBLISHER_PORT, Url, parse_url
from qanat.wire.control import Identity

log = logging.getLogger("qanat.application")

_PROBE_S = 0.3
"""Time between two attempts to ask for the name of the publisher at a URL."""


class InstanceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an instance of an application; every default has its reason."""

    name: str = ""
    """Name of the instance at publishers. An instance that returns under its name gets its shards back at
    once; empty: a new name each time."""
    cluster: str = "qanat"
    weight: float = 1.0
    """Share of the shards, relative to other instances."""
    window_bytes: int = 16 << 20
    """Most bytes of each publisher that wait at the instance."""
    ahead: int = 2
    """Items handed to the callbacks' thread at a time."""
    stop_s: float = 30.0
    """Time to finish the items in hand at a stop."""
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    """Port of /healthz, /metrics and /status; 0 takes any free port, None serves nothing."""


class Instance:
    """`await instance.start()`, then `await instance.wait()` until it fails or is stopped. `reach` and
    `give_up` may be called from callbacks."""

    def __init__(
        self,
        callbacks: Callbacks,
        application: str,
        publishers: str | Sequence[str],
        settings: InstanceSettings | None = None,
        transport: TransportSettings | None = None,
    ) -> None:
        self.settings = arguments.settings("settings", settings or InstanceSettings(), InstanceSettings)
        self.application = arguments.text("application", application)
        self._callbacks = arguments.instance(
            "callbacks", callbacks, Callbacks, "an instance of a class made from Callbacks"
        )
        try:
            self._config = SubscriberConfig(
                application,
                weight=self.settings.weight,
                window_bytes=self.settings.window_bytes,
                ahead=self.settings.ahead,
            )
        except ValueError as error:
            raise LocalError(str(error)) from None
        given = [publishers] if isinstance(publishers, str) else publishers
        urls = list(arguments.several("publishers", "a URL, or a list of them", given))
        if not urls:
            raise LocalError("an application needs at least one publisher's URL")
        self._urls = [parse_url(arguments.text("a publisher's URL", url), PUBLISHER_PORT) for url in urls]
        self._names: dict[str, Url] = {}
        name = (
            self.settings.name or f"{application}/{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(3)}"
        )
        self.identity = Identity(name, time.time_ns() // 1000, self.settings.cluster)
        self._transport = transport and arguments.settings("transport", transport, TransportSettings)
        self._work: queue.SimpleQueue[Handed | None] = queue.SimpleQueue()
        self._probes: list[asyncio.Task[None]] = []
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None]
        self._driver: Driver
        self._loop: asyncio.AbstractEventLoop
        self._refusals: dict[str, str] = {}
        self._machine: Subscriber | None = None
        self.metrics = Metrics()
        self._traffic = Traffic(self.metrics)
        self._counting = Counting(self.metrics, application, lambda: self._machine)
        self.admin = Admin(self.metrics, self.status, self._trouble)

    # --- life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._driver = Driver(
            self.identity,
            self._names.get,
            settings=self._transport,
            traffic=self._traffic,
            short_way=True,
            on_failure=lambda machine, reason: self._end(LocalError(f"the subscriber stopped: {reason}")),
        )
        self._driver.add(FIRST_MACHINE_CHANNEL, "subscriber", self._make, self._deliver)
        if self.settings.admin_port is not None:
            await self.admin.start(
                AdminSettings(host=self.settings.admin_host, port=self.settings.admin_port)
            )
        await self._driver.start_unlisted()
        self._thread = threading.Thread(target=self._callbacks_thread, name="callbacks", daemon=True)
        self._thread.start()
        self._probes = [asyncio.create_task(self._find(url)) for url in self._urls]

    async def wait(self) -> None:
        """Until it was stopped; raises what a callback raised."""
        try:
            await asyncio.shield(self._ended)
        finally:
            await self._close()

    def stop(self) -> None:
        """Gives its shards back, finishes what it was sent, and ends; `wait` returns then."""
        for probe in self._probes:
            probe.cancel()
        self._driver.tell(FIRST_MACHINE_CHANNEL, Stop())
        self._loop.call_later(self.settings.stop_s, self._end, None)

    async def _close(self) -> None:
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        self._work.put(None)
        await self.admin.close()
        await self._driver.stop()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 1.0)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    async def _find(self, url: Url) -> None:
        """Who is at this URL; for as long as it takes."""
        said = ""
        asker = msgspec.structs.replace(self.identity, role="client")
        while True:
            try:
                connection = await dial(url, asker, {}, settings=self._transport)
            except RemoteError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("a publisher cannot be reached", extra={"url": str(url), "reason": said})
                await asyncio.sleep(_PROBE_S)
                continue
            name = connection.peer.name
            connection.close()
            self._names[name] = url
            self._driver.tell(FIRST_MACHINE_CHANNEL, Publishers(tuple(self._names)))
            return

    # --- the machine --------------------------------------------------------------------------------

    def _make(self, context: Context) -> Subscriber:
        self._machine = Subscriber(context, self._config, [Address(name) for name in self._names])
        return self._machine

    def _deliver(self, item: SubscriberItem) -> None:
        match item:
            case Handed():
                self._work.put(item)
            case Joined():
                self._joined(item)
            case Stopped():
                self._end(None)
            case _:
                assert_never(item)

    def _joined(self, joined: Joined) -> None:
        if joined.refused and self._refusals.get(joined.publisher) != joined.refused:
            log.warning("refused", extra={"publisher": joined.publisher, "reason": joined.refused})
        elif not joined.refused:
            log.info("joined", extra={"publisher": joined.publisher, "application": self.application})
        self._refusals[joined.publisher] = joined.refused

    def _tell(self, request: SubscriberRequest) -> None:
        with suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._driver.tell, FIRST_MACHINE_CHANNEL, request)

    # --- what people are told -----------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """What /status shows."""
        return {
            "name": self.identity.name,
            "cluster": self.identity.cluster,
            "state": self._trouble() or "ready",
            "application": self.application,
            "publishers": {name: self._refusals.get(name, "") or "joined" for name in self._names},
            "unknown_publishers": len(self._urls) - len(self._names),
            **self._counting.status(),
        }

    def _trouble(self) -> str | None:
        if self._ended.done():
            return "stopped"
        sessions = (
            0 if self._machine is None else sum(feed.session != 0 for feed in self._machine.feeds.values())
        )
        return None if sessions else "no publisher has welcomed it"

    # --- the callbacks ------------------------------------------------------------------------------

    def reach(self, publisher: str, positions: dict[str, Position]) -> None:
        """A datamarker of the application's own accord: these shards are done with up to these positions."""
        arguments.name("publisher", publisher)
        arguments.instance("positions", positions, Mapping, "a dict of shards and their positions")  # type: ignore[type-abstract]
        marks = tuple(
            Mark(arguments.position("a shard's position", position), (arguments.text("a shard", shard),))
            for shard, position in positions.items()
        )
        self._tell(Reach(publisher, marks))

    def give_up(self, shards: Sequence[str], to: str = "") -> None:
        """Let another instance have these shards."""
        several = arguments.several("shards", "a list of shards", shards)
        named = tuple(arguments.text("a shard", shard) for shard in several)
        self._tell(GiveUp(named, arguments.text("to", to)))

    def _callbacks_thread(self) -> None:
        """Asks once per item whether it may be begun, by the machine's own clock: its timers may be late
        after a standstill, as this thread is."""
        void: dict[str, tuple[int, int]] = {}
        """By publisher, the session and round of which something was returned: so is all that comes after
        it."""
        while (handed := self._work.get()) is not None:
            turn = handed.session, handed.round
            if void.get(handed.publisher) == turn or not self._may_begin(handed):
                void[handed.publisher] = turn
                self._tell(Returned(handed.ticket))
                continue
            try:
                with self._counting.item(handed):
                    acknowledged = self._call(handed.publisher, handed.item)
            except BaseException as error:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._end, error)
                return
            self._tell(Done(handed.ticket, acknowledged))

    def _may_begin(self, handed: Handed) -> bool:
        machine = self._machine
        return machine is not None and machine.may_begin(handed, self._driver.clock_us())

    def _call(self, publisher: str, item: Item) -> bool:
        match item:
            case Notice():
                self._callbacks.on_shard_notices(item.shards)
            case Updates():
                for batch in item.batches:
                    self._callbacks.on_updates(Delivery(publisher, batch, item.only))
            case Token():
                positions = {shard: mark.position for mark in item.marks for shard in mark.shards}
                acknowledged = self._callbacks.on_token(Datamarker(positions, item.last)) is not False
                self._counting.unacknowledged += not acknowledged
                return acknowledged
            case Loss():
                self._callbacks.on_data_loss(DataLoss(item.shards, item.after, item.upto, item.reason))
        return True

"""The asynchronous client: any number of streams and subscriptions, at one server or at a region of
replicas."""

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from qanat.client.administering import KeptAs, asked, described, ordered
from qanat.client.ahead import Ahead
from qanat.client.errors import ClientClosed, PositionsLost
from qanat.client.flight import Receipt, Receipts
from qanat.client.guide import Guide
from qanat.client.link import Link
from qanat.client.outbox import Outbox
from qanat.client.positioned import PositionedOutbox
from qanat.client.record import Recording
from qanat.client.role import Role
from qanat.client.rows import Rows
from qanat.client.settings import ClientSettings
from qanat.client.subscription import Subscription, Where
from qanat.client.ways import Asked, Via, mesh_settings, subscribed
from qanat.events import arguments
from qanat.events.attributes import Value
from qanat.events.batch import Kind
from qanat.events.errors import LocalError, QanatError
from qanat.events.filters import parse
from qanat.events.position import Position
from qanat.events.tombstones import GC_ATTRIBUTE
from qanat.runtime.patience import patience_s
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import parse_urls
from qanat.wire.control import Identity

if TYPE_CHECKING:
    from qanat.client.mesh_member import MeshMember, MeshSettings
    from qanat.client.ranges import Range
    from qanat.wire.streams import Seen

_S = TypeVar("_S", bound=Subscription)

DEFAULT_URL = "qanat://127.0.0.1:7411"


class AsyncClient:
    """Publishes and subscribes, by connections that it renews when they break.

    `url` names a server, or several replicas of one region with commas between them
    (`qanat://host:port,host:port`); any of them that answers will do. The client publishes at the head of
    their chain and subscribes at its tail, wherever these move. Without a `url` it takes the environment's
    `QANAT_URL`, else the default port of this machine.

    `name` is the source under which the client publishes: two clients must not use one name at once. Give the
    same name after a restart to go on publishing without duplicates; without a name each client is a new
    source. `patience` is for how many seconds it waits for servers that are away, now and later; by default
    30, or what `settings` say. `mesh` says how it takes part in the mesh, if something is subscribed to by
    way of it. `record` is a folder in which subscriptions write down what they hand over, for `qanat audit`;
    give a `name` as well, by which it knows a subscriber that was started again.
    """

    def __init__(
        self,
        url: str = "",
        *,
        name: str = "",
        durability: str = "",
        patience: float | None = None,
        settings: ClientSettings | None = None,
        transport: TransportSettings | None = None,
        mesh: "MeshSettings | None" = None,
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        self.url = arguments.text("url", url) or os.environ.get("QANAT_URL") or DEFAULT_URL
        self.name = arguments.source("name", name) or f"~{uuid.uuid4().hex}"
        self.settings = arguments.settings("settings", settings or ClientSettings(), ClientSettings)
        if patience is not None:
            wait_ms = round(patience_s(patience) * 1000)
            self.settings = msgspec.structs.replace(self.settings, patience_ms=wait_ms)
        self._durability = arguments.text("durability", durability)
        self._transport = transport and arguments.settings("transport", transport, TransportSettings)
        self._endpoints = parse_urls(self.url)
        self._guide: Guide | None = None
        self._head = Role("head", self._attach_outboxes, self._detach_outboxes)
        self._tail = Role("tail", self._attach_subscriptions, self._detach_subscriptions)
        self._outboxes: dict[str, Outbox] = {}
        self._subscriptions: dict[Subscription, None] = {}
        self._error: QanatError | None = None
        self._mesh = mesh and mesh_settings(mesh)
        self._record = None if record is None else arguments.path("record", record)
        self.member: MeshMember | None = None
        """This process in the mesh, once something was subscribed to by way of it."""

    @property
    def region(self) -> str:
        """Of the servers that it talks to; empty until one has said it, and where a server stands alone."""
        return "" if self._guide is None else self._guide.region

    @property
    def error(self) -> QanatError | None:
        """What has ended it: it does nothing more, and whoever keeps clients makes a new one. None while it
        lives."""
        return self._error

    # --- life ---------------------------------------------------------------------------------------

    async def start(self) -> "AsyncClient":
        """Begins to connect, and does not wait for it."""
        self._begin()
        return self

    def _begin(self) -> Guide:
        if self._guide is None:
            self._guide = Guide(
                self._endpoints,
                Identity(name=self.name, incarnation=time.time_ns() // 1000, role="client"),
                (self._head, self._tail),
                patience_ms=self.settings.patience_ms,
                on_failed=self._fail,
                transport=self._transport,
            )
            self._guide.start()
        return self._guide

    async def ready(self) -> "AsyncClient":
        """Until a connection is up, or patience ends."""
        guide = self._begin()
        while not guide.links:
            if self._error is not None:
                await self.close()
                raise self._error
            await guide.changed()
        return self

    async def close(self) -> None:
        """Sends what was published, waits for the answers (as long as there is a connection), and
        disconnects."""
        guide = self._guide
        if self._error is None and guide is not None and guide.links:
            for outbox in list(self._outboxes.values()):
                if outbox.error is None:
                    await outbox.drained()
        self._fail(ClientClosed("the client is closed"))
        if self.member is not None:
            await self.member.close()
        if guide is not None:
            await guide.stop()

    async def __aenter__(self) -> "AsyncClient":
        return await self.ready()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- publishing ---------------------------------------------------------------------------------

    def publish(
        self,
        stream: str,
        payload: bytes,
        *,
        key: bytes = b"",
        attributes: dict[str, Value] | None = None,
        collects: str = "",
    ) -> Receipt:
        """Publishes one event; `await` what it returns to know that it is stored, and its sequence number.

        Calls without an await between them travel together. To bound memory, `await client.room(stream)` now
        and then. With `collects` the event is a garbage-collection event: earlier events that this predicate
        matches (`same key`, `upto 1000`, `keep last 10`, `older than 1h`, or any filter) are obsolete once it
        is stored.
        """
        if stream.__class__ is not str:
            arguments.instance("stream", stream, str, "text")
        if attributes is not None:
            arguments.attributes_of_event(attributes)
        outbox = self._outboxes.get(stream) or self._outbox(stream)
        if collects != "":
            predicate = str(parse(arguments.text("collects", collects)))
            attributes = {**(attributes or {}), GC_ATTRIBUTE: predicate}
            return outbox.add(payload, key, attributes, Kind.GC)
        return outbox.add(payload, key, attributes)

    async def publish_many(
        self,
        stream: str,
        payloads: Any,
        *,
        keys: Any = None,
        attributes: Sequence[Mapping[str, Value] | None] | Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        """Publishes many events in order; returns the first and last sequence number once all are stored.

        `payloads`: a list of bytes, an Arrow array, a 2-D uint8 array, or an Arrow table with a column
        `payload`,
        perhaps `key`, and any others as attributes. The numbers are 0 if an earlier attempt had stored the
        events.
        """
        return await (await self.send_many(stream, payloads, keys=keys, attributes=attributes))

    async def send_many(
        self,
        stream: str,
        payloads: Any,
        *,
        keys: Any = None,
        attributes: Sequence[Mapping[str, Value] | None] | Mapping[str, Any] | None = None,
    ) -> Receipts:
        """Like `publish_many`, but returns once all is on its way; holds back while the window is full."""
        rows = Rows.of(payloads, keys, attributes)
        outbox = self._outboxes.get(arguments.name("stream", stream)) or self._outbox(stream)
        if outbox.error is not None:
            outbox.refuse(outbox.error)
        outbox.flush()
        now_us = time.time_ns() // 1000
        flights = []
        for group in rows.groups(self.settings.batch_bytes):
            if outbox.full:
                await outbox.room()
            if len(group) > 1 and outbox.stages:
                flights += outbox.put_together(group, now_us)
                continue
            for part in group:
                if outbox.full:
                    await outbox.room()
                flights.append(outbox.put(part.payloads, part.keys, part.attributes, now_us))
        return Receipts(flights)

    async def publish_at(
        self,
        stream: str,
        payloads: Any,
        positions: tuple[Any, Any],
        *,
        keys: Any = None,
        attributes: Sequence[Mapping[str, Value] | None] | Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        """Like `publish_many`, under positions of the caller's own: (sequences, indexes), rising, of a log
        that can be read again.

        The stream drops what it has, so after any failure go on behind `position(stream)`. One call at a
        time.
        """
        rows, places = Rows.of(payloads, keys, attributes), arguments.rising_positions(positions)
        ahead = Ahead(self, stream)
        return await ahead.stored(await ahead.put_rows(rows, places))

    async def position(self, stream: str) -> Position:
        """The highest position of this client's name that the stream has, for `publish_at`; (0, 0) if it has
        none."""
        return await self._positioned(stream).reached()

    async def room(self, stream: str) -> None:
        """Waits while more than the window is published and not acknowledged."""
        outbox = self._outboxes.get(arguments.name("stream", stream))
        if outbox is not None and outbox.full:
            await outbox.room()

    async def flush(self) -> None:
        """Waits until everything published so far was answered. Refusals are raised by the receipts."""
        for outbox in list(self._outboxes.values()):
            await outbox.drained()

    async def stored(self, stream: str) -> int:
        """How many events of this client's name the stream has: after a restart, go on behind them."""
        outbox = self._outboxes.get(arguments.name("stream", stream)) or self._outbox(stream)
        return await outbox.known()

    def _set_back(self, stream: str) -> PositionsLost | None:
        """What the stream has lost while nothing was published to it, if the publisher does not know it
        yet."""
        outbox = self._outboxes.get(stream)
        if (
            isinstance(outbox, PositionedOutbox)
            and not outbox.told
            and isinstance(outbox.error, PositionsLost)
        ):
            return outbox.error
        return None

    async def leave(self, stream: str) -> None:
        """Publishes no more to a stream, once all is answered; whoever publishes to it again opens it
        anew."""
        outbox = self._outboxes.get(arguments.name("stream", stream))
        if outbox is not None:
            await outbox.drained()
            outbox.on_disconnect()
            self._forget_outbox(stream)

    def _positioned(self, stream: str) -> PositionedOutbox:
        outbox = self._outboxes.get(arguments.name("stream", stream))
        if outbox is None or (isinstance(outbox, PositionedOutbox) and outbox.error is not None):
            outbox = self._outbox(stream, PositionedOutbox)
        if not isinstance(outbox, PositionedOutbox):
            raise LocalError(
                f"this client publishes to {stream!r} without positions; use another client for events that"
                " have them"
            )
        return outbox

    def _outbox(self, stream: str, make: type[Outbox] = Outbox) -> Outbox:
        if self._error is not None:
            raise self._error
        outbox = make(
            arguments.name("stream", stream),
            self.name,
            self._durability,
            lambda: time.time_ns() // 1000,
            partial(self._forget_outbox, stream),
            batch_bytes=self.settings.batch_bytes,
            window_bytes=self.settings.window_bytes,
            in_place=self.settings.in_place,
        )
        self._outboxes[stream] = outbox
        self._want(self._head, True)
        if self._head.link is not None:
            outbox.on_connect(self._head.link)
        return outbox

    def _forget_outbox(self, stream: str) -> None:
        self._outboxes.pop(stream, None)

    # --- subscribing --------------------------------------------------------------------------------

    def subscribe(
        self,
        stream: str,
        *,
        start: Where = "latest",
        where: str = "",
        via: Via = "server",
        alive: bool = False,
    ) -> Subscription:
        """Events of a stream from `start` on: a sequence number, `earliest`, `latest` or a datetime.

        `where` is a filter: only events that pass come. Iterate over the result, or over its `batches()`.
        With `via="mesh"` events come from other clients of the region once the application has caught up: the
        same events in the same order, for less of the server's bandwidth. `alive` leaves out events that the
        policy or a GC event of before this call collects, and tombstones; what comes later comes as it is.
        """
        subscription = subscribed(via, Asked(self, stream, start, where, alive))
        if self._record is not None:
            subscription.recording = Recording(self._record, self.name, stream, where, str(start))
        return self._enlist(subscription)

    def read(self, stream: str, first: int, last: int, *, where: str = "") -> "Range":
        """The events `first` to `last`, all of which are readable by now; `take` their batches until it gives
        none."""
        from qanat.client.ranges import Range

        settings = self.settings
        return self._enlist(
            Range(self, stream, first, last, where, settings.subscription_bytes, in_place=settings.in_place)
        )

    async def look(self, stream: str, start: Where = "latest", size: int = 0) -> "Seen":
        """Where the stream is: what it keeps, what is readable, and how far about `size` bytes reach from
        `start`.

        A stream that is not there is not made (`NoStream`).
        """
        from qanat.client.ranges import Glance

        return await self._enlist(Glance(self, stream, start, size)).answer()

    def _enlist(self, subscription: _S) -> _S:
        if self._error is not None:
            raise self._error
        self._subscriptions[subscription] = None
        self._want(self._tail, True)
        if self._tail.link is not None:
            subscription.on_connect(self._tail.link)
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)
        self._want(self._tail, bool(self._subscriptions))

    # --- asking and ordering ------------------------------------------------------------------------

    async def ask(self, what: str, stream: str = "") -> Any:
        """What a server says: `streams`, `status`, `place`; of a `stream`, which is not made (`NoStream`)."""
        return await asked(self, what, stream)

    async def create_stream(self, stream: str, **kept_as: Unpack[KeptAs]) -> dict[str, Any]:
        """Makes a stream at a server alone, kept as these words and its file say; `OrderRefused` if it is
        there. Returns its description."""
        return await ordered(self, "create", stream, kept_as)

    async def set_stream(self, stream: str, **kept_as: Unpack[KeptAs]) -> dict[str, Any]:
        """Keeps a stream in another way from now on; what is not named stays, and None is the default.
        Returns its description."""
        return await ordered(self, "set", stream, kept_as)

    async def remove_stream(self, stream: str) -> dict[str, Any]:
        """Removes a stream and its events; its readers and publishers get `NoStream`. Returns what it was."""
        return await ordered(self, "remove", stream, {})

    async def stream_info(self, stream: str, start: int = 1) -> dict[str, Any]:
        """All about a stream; from `start` on also its kept and collected numbers (`spans`, `spans_upto`)."""
        return await described(self, stream, start)

    async def any_link(self) -> Link:
        """To whichever server answers first."""
        while True:
            if self._error is not None:
                raise self._error
            await self.ready()
            for link in self._begin().links.values():
                return link

    # --- the connections' side ----------------------------------------------------------------------

    def _want(self, role: Role, wanted: bool) -> None:
        if self._guide is not None:
            self._guide.want(role, wanted)
        else:
            role.wanted = wanted

    def _attach_outboxes(self, link: Link) -> None:
        for outbox in self._outboxes.values():
            if outbox.error is None:
                outbox.on_connect(link)

    def _detach_outboxes(self) -> None:
        for outbox in self._outboxes.values():
            outbox.on_disconnect()

    def _attach_subscriptions(self, link: Link) -> None:
        for subscription in self._subscriptions:
            subscription.on_connect(link)

    def _detach_subscriptions(self) -> None:
        for subscription in self._subscriptions:
            subscription.on_disconnect()

    def _fail(self, error: QanatError) -> None:
        if self._error is None:
            self._error = error
        if self._guide is not None:
            self._guide.tell()
        for outbox in self._outboxes.values():
            if outbox.error is None:
                outbox.fail(self._error)
        for subscription in list(self._subscriptions):
            subscription.fail(self._error)

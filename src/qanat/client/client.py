"""The asynchronous client: one connection, any number of streams and subscriptions."""

import asyncio
import itertools
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from qanat.client.errors import ClientClosed, RequestRefused, Unavailable
from qanat.client.outbox import Outbox, Receipt, Receipts
from qanat.client.rows import Rows
from qanat.client.subscription import Subscription, Where
from qanat.events.attributes import Value
from qanat.events.batch import Kind
from qanat.events.errors import QanatError, RemoteError
from qanat.events.filters import parse
from qanat.events.tombstones import GC_ATTRIBUTE
from qanat.runtime.connection import Connection
from qanat.runtime.dialer import Dialer
from qanat.runtime.service import STREAMS_CHANNEL, Closed, Service
from qanat.runtime.settings import TransportSettings
from qanat.wire.control import Identity
from qanat.wire.frame import Frame
from qanat.wire.streams import (
    ASK,
    EVENTS,
    Ask,
    Lost,
    Opened,
    Refused,
    Stored,
    Subscribed,
    Told,
    decode_control,
    decode_events,
    encode_control,
)

DEFAULT_URL = "qanat://127.0.0.1:7411"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client behaves; every default with its unit and reason."""

    batch_bytes: int = 512 * 1024
    """Payload bytes of one batch: per-batch costs vanish, and a batch still passes in a millisecond."""
    window_bytes: int = 8 * 1024 * 1024
    """Published and not acknowledged: twice what a 1-Gbit/s link across an ocean has under way in 30 ms."""
    subscription_bytes: int = 4 * 1024 * 1024
    """Received and not taken, per subscription; the server sends no more than this ahead."""
    patience_ms: int = 30_000
    """Without a server for this long, publishes and requests fail: longer than a restart, shorter than a person waits."""


class AsyncClient(Service):
    """Publishes and subscribes over one connection, which it renews when it breaks.

    Without a `url` it takes the environment's `QANAT_URL`, else the default port of this machine.

    `name` is the source under which the client publishes: two clients must not use one name at once. Give the same
    name after a restart to go on publishing without duplicates; without a name each client is a new source.
    """

    def __init__(
        self,
        url: str = "",
        *,
        name: str = "",
        durability: str = "",
        settings: ClientSettings | None = None,
        transport: TransportSettings | None = None,
    ) -> None:
        self.url = url or os.environ.get("QANAT_URL") or DEFAULT_URL
        self.name = name or f"~{uuid.uuid4().hex}"
        self.settings = settings or ClientSettings()
        self._durability = durability
        self._transport = transport
        self._dialer: Dialer | None = None
        self._connection: Connection | None = None
        self._outboxes: dict[str, Outbox] = {}
        self._by_request: dict[int, Outbox] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._questions: dict[int, asyncio.Future[bytes]] = {}
        self._requests = itertools.count(1)
        self._error: QanatError | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        """Set when a connection came up, failed to, or the client gave up."""

    # --- life ---------------------------------------------------------------------------------------

    async def start(self) -> "AsyncClient":
        """Connects; raises `Unavailable` if no server answers in `patience_ms`."""
        identity = Identity(name=self.name, incarnation=time.time_ns() // 1000, role="client")
        self._dialer = Dialer(
            self.url,
            identity,
            {STREAMS_CHANNEL: self},
            settings=self._transport,
            on_failure=lambda _: self._news.set(),
        )
        self._lose_patience_later()
        self._dialer.start()
        return self

    async def ready(self) -> "AsyncClient":
        """Until the connection is up, or patience ends; a connection refused at once is told at once."""
        if self._dialer is None:
            await self.start()
        while self._connection is None:
            if self._error is not None:
                raise self._error
            if self._dialer is not None and self._dialer.last_error is not None:
                error = self._dialer.last_error
                await self.close()
                raise Unavailable(str(error), definite=True)
            self._news.clear()
            await self._news.wait()
        return self

    async def close(self) -> None:
        """Sends what was published, waits for the answers (as long as there is a connection), and disconnects."""
        if self._error is None and self._connection is not None:
            for outbox in list(self._outboxes.values()):
                if outbox.error is None:
                    await outbox.drained()
        self._fail(ClientClosed("the client is closed"))
        if self._dialer is not None:
            await self._dialer.stop("closed")

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

        Calls without an await between them travel together. To bound memory, `await client.room(stream)` now and then.
        With `collects` the event is a garbage-collection event: earlier events that this predicate matches (`same key`,
        `upto 1000`, `keep last 10`, `older than 1h`, or any filter) are obsolete once it is stored.
        """
        outbox = self._outboxes.get(stream) or self._outbox(stream)
        if collects:
            attributes = {**(attributes or {}), GC_ATTRIBUTE: str(parse(collects))}
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

        `payloads`: a list of bytes, an Arrow array, a 2-D uint8 array, or an Arrow table with a column `payload`,
        perhaps `key`, and any others as attributes. The numbers are 0 if an earlier attempt had stored the events.
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
        outbox = self._outboxes.get(stream) or self._outbox(stream)
        outbox.flush()
        now_us = time.time_ns() // 1000
        flights = []
        for part in Rows.of(payloads, keys, attributes).parts(self.settings.batch_bytes):
            if outbox.full:
                await outbox.room()
            flights.append(outbox.put(part.payloads, part.keys, part.attributes, now_us))
        return Receipts(flights)

    async def room(self, stream: str) -> None:
        """Waits while more than the window is published and not acknowledged."""
        outbox = self._outboxes.get(stream)
        if outbox is not None and outbox.full:
            await outbox.room()

    async def flush(self) -> None:
        """Waits until everything published so far was answered. Refusals are raised by the receipts."""
        for outbox in list(self._outboxes.values()):
            await outbox.drained()

    async def stored(self, stream: str) -> int:
        """How many events of this client's name the stream has: after a restart, go on behind them."""
        outbox = self._outboxes.get(stream) or self._outbox(stream)
        return await outbox.known()

    def _outbox(self, stream: str) -> Outbox:
        if self._error is not None:
            raise self._error
        outbox = Outbox(
            stream,
            self.name,
            self._durability,
            lambda: self._next_request(outbox),
            lambda: time.time_ns() // 1000,
            batch_bytes=self.settings.batch_bytes,
            window_bytes=self.settings.window_bytes,
        )
        self._outboxes[stream] = outbox
        if self._connection is not None:
            outbox.on_connect(self._connection)
        return outbox

    def _next_request(self, outbox: Outbox) -> int:
        request = next(self._requests)
        self._by_request[request] = outbox
        return request

    # --- subscribing --------------------------------------------------------------------------------

    def subscribe(self, stream: str, *, start: Where = "latest", where: str = "") -> Subscription:
        """Events of a stream from `start` on: a sequence number, `earliest`, `latest` or a datetime.

        `where` is a filter that the server applies. Iterate over the result, or over its `batches()`.
        """
        if self._error is not None:
            raise self._error
        number = next(self._requests)
        subscription = Subscription(self, number, stream, start, where, self.settings.subscription_bytes)
        self._subscriptions[number] = subscription
        if self._connection is not None:
            subscription.on_connect(self._connection)
        return subscription

    def _forget(self, number: int) -> None:
        self._subscriptions.pop(number, None)

    # --- asking -------------------------------------------------------------------------------------

    async def ask(self, what: str, stream: str = "") -> Any:
        """What the server says of itself: `streams`, `status`; or `collect` with a stream's name."""
        await self.ready()
        if self._connection is None:
            raise Unavailable(f"no server at {self.url}", definite=True)
        request = next(self._requests)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._questions[request] = answer
        self._connection.send(ASK, STREAMS_CHANNEL, encode_control(Ask(request, what, stream)))
        try:
            return msgspec.json.decode(await answer)
        finally:
            self._questions.pop(request, None)

    # --- the connection's side ----------------------------------------------------------------------

    def on_connect(self, connection: Connection) -> None:
        self._connection = connection
        self._news.set()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._by_request.clear()
        for outbox in self._outboxes.values():
            if outbox.error is None:
                outbox.on_connect(connection)
        for subscription in self._subscriptions.values():
            subscription.on_connect(connection)

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        if frame.type == EVENTS:  # the one that comes for every batch
            subscription = self._subscriptions.get(decode_events(frame.control))
            if subscription is not None:
                subscription.on_item(frame.attachment)
            return
        match decode_control(frame.type, frame.control):
            case Stored() as stored:
                outbox = self._by_request.pop(stored.request, None)
                if outbox is not None:
                    outbox.on_stored(stored)
            case Opened() as opened:
                outbox = self._by_request.pop(opened.request, None)
                if outbox is not None:
                    outbox.on_opened(opened)
            case Refused() as refused:
                self._on_refused(refused)
            case Subscribed() as subscribed:
                subscription = self._subscriptions.get(subscribed.subscription)
                if subscription is not None:
                    subscription.on_subscribed(subscribed)
            case Lost() as lost:
                subscription = self._subscriptions.get(lost.subscription)
                if subscription is not None:
                    subscription.on_item(lost)
            case Told() as told:
                answer = self._questions.get(told.request)
                if answer is not None and not answer.done():
                    answer.set_result(told.answer)
            case _:
                raise RemoteError(f"a server does not send frame type {frame.type}")

    def _on_refused(self, refused: Refused) -> None:
        outbox = self._by_request.pop(refused.request, None)
        if outbox is not None:
            outbox.on_refused(refused)
        elif refused.request in self._subscriptions:
            self._subscriptions.pop(refused.request).on_refused(refused)
        else:
            answer = self._questions.get(refused.request)
            if answer is not None and not answer.done():
                answer.set_exception(RequestRefused(refused.code, refused.message))

    def on_writable(self, connection: Connection) -> None:
        for outbox in self._outboxes.values():
            outbox.take_off()

    def on_close(self, connection: Connection, reason: Closed) -> None:
        self._connection = None
        for outbox in self._outboxes.values():
            outbox.on_disconnect()
        for subscription in self._subscriptions.values():
            subscription.on_disconnect()
        questions, self._questions = self._questions, {}
        for answer in questions.values():
            if not answer.done():
                answer.set_exception(Unavailable(f"the connection to {self.url} broke: {reason}"))
        if self._error is None:
            self._lose_patience_later()

    def _lose_patience_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(self.settings.patience_ms / 1000, self._lose_patience)

    def _lose_patience(self) -> None:
        why = self._dialer.last_error if self._dialer is not None else None
        self._fail(
            Unavailable(
                f"no server at {self.url} for {self.settings.patience_ms / 1000:g} s: {why or 'silence'}"
            )
        )

    def _fail(self, error: QanatError) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._error is None:
            self._error = error
        self._news.set()
        for outbox in self._outboxes.values():
            if outbox.error is None:
                outbox.fail(self._error)
        for subscription in list(self._subscriptions.values()):
            subscription.fail(self._error)

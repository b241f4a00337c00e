"""A region of replicas for clients to find their way in: real listeners, a scripted chain behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest

from qanat.events.batch import Batch, decode_all, number, stream_id
from qanat.events.tombstones import from_sequence
from qanat.runtime.connection import Connection
from qanat.runtime.listener import Listener, listen
from qanat.runtime.service import STREAMS_CHANNEL, Closed, Service
from qanat.wire.control import Identity
from qanat.wire.frame import Frame
from qanat.wire.streams import (
    EVENTS,
    NOT_HEAD,
    NOT_TAIL,
    OPENED,
    REFUSED,
    SEEN,
    STORED,
    SUBSCRIBED,
    TOLD,
    Ask,
    Events,
    Look,
    Open,
    Opened,
    Place,
    Publish,
    Refused,
    Seen,
    Stored,
    Subscribe,
    Subscribed,
    Told,
    Unsubscribe,
    decode_control,
    encode_control,
)


class FakeStream:
    """What all replicas share of a stream: batches, and how far each source is had."""

    def __init__(self, name: str) -> None:
        self.stream_id = stream_id(name)
        self.shown = 0
        self.batches: list[Batch] = []
        self.next = 1
        self.positions: dict[str, int] = {}

    def append(self, batch: Batch) -> Stored | str:
        """As a log does it: an unknown source begins anywhere, a known one has no gap."""
        source = batch.source_names[0]
        positions = batch.positions()
        assert positions is not None
        first, last = int(positions[0][0]), int(positions[0][-1])
        known = self.positions.get(source)
        if known is not None and first > known + 1:
            return f"a gap: {known} is had, {first} comes"
        dropped = max(0, min(last, known or 0) - first + 1) if known is not None else 0
        if dropped == batch.count:
            return Stored(0, 0, self.next - 1, dropped)
        fresh = batch.slice(dropped, batch.count)
        data = bytearray(fresh.encode())
        number(data, self.next)
        stored = Stored(0, self.next, self.next + fresh.count - 1, dropped)
        self.batches.append(Batch.decode(bytes(data)))
        self.next += fresh.count
        self.positions[source] = last
        return stored

    def payloads(self) -> list[bytes]:
        return [batch.payload(i) for batch in self.batches for i in range(batch.count)]


class Replica(Service):
    """One process of the region, in the test's own loop."""

    def __init__(self, region: FakeRegion, name: str) -> None:
        self.region, self.name = region, name
        self.listener: Listener | None = None
        self.subscriptions: dict[tuple[Connection, int], str] = {}
        self.published: list[tuple[str, int]] = []
        """Sources and first positions of what came, in order, taken or not."""
        self.asked: list[str] = []
        self.ordered = False
        """Whether it says that it looks behind what a publish comes; it does not."""
        self.stores = True
        """Whether it takes what it is sent; if not, it never answers."""
        self.on_publish: Callable[[Connection, Publish, Frame], bool] = lambda *_: False
        """Does what a test wants with a publish; True if that was all."""
        self.tells_place: bool | None = True
        """False: refuses the question; None: does not answer it."""
        self.sees: Place | None = None
        """What it believes of the region, if that is not the truth."""

    @property
    def url(self) -> str:
        assert self.listener is not None
        return str(self.listener.url)

    @property
    def clients(self) -> int:
        return len(self.listener.connections) if self.listener is not None else 0

    async def start(self) -> None:
        port = self.listener.port if self.listener is not None else 0
        identity = Identity(name=self.name, role="node")
        self.listener = await listen("127.0.0.1", port, identity, {STREAMS_CHANNEL: self})

    async def kill(self) -> None:
        """Without a word, as `kill -9`."""
        assert self.listener is not None
        for connection in list(self.listener.connections):
            connection.abort("closed")
        await self.listener.close()

    def on_close(self, connection: Connection, reason: Closed) -> None:
        self.subscriptions = {
            key: stream for key, stream in self.subscriptions.items() if key[0] is not connection
        }

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        region = self.region
        match decode_control(frame.type, frame.control):
            case Ask(request, "place") if self.tells_place:
                self.asked.append("place")
                answer = msgspec.json.encode(self.sees or region.place(self.name))
                connection.send(TOLD, STREAMS_CHANNEL, encode_control(Told(request, answer)))
            case Ask(request, what):
                self.asked.append(what)
                if self.tells_place is not None:
                    self.refuse(connection, request, "local_error", "not a question for a server")
            case Open(request, stream, source):
                if self.name != region.head:
                    self.refuse(connection, request, NOT_HEAD, f"{self.name} is not the head")
                elif stream in region.refusals:
                    self.refuse(connection, request, *region.refusals[stream])
                else:
                    kept = region.stream(stream)
                    known = kept.positions.get(source, 0)
                    opened = Opened(request, stream, 1, kept.next, "always", known, 0, self.ordered)
                    connection.send(OPENED, STREAMS_CHANNEL, encode_control(opened))
            case Publish() as publish:
                self._publish(connection, publish, frame)
            case Subscribe() as subscribe:
                self._subscribe(connection, subscribe)
            case Look(number, stream):
                if self.name != region.tail:
                    self.refuse(connection, number, NOT_TAIL, f"{self.name} is not the tail")
                else:
                    end = region.stream(stream).next
                    seen = Seen(number, end, 1, end - 1, end - 1)
                    connection.send(SEEN, STREAMS_CHANNEL, encode_control(seen))
            case Unsubscribe(subscription):
                self.subscriptions.pop((connection, subscription), None)

    def refuse(
        self, connection: Connection, request: int, code: str, why: str, definite: bool = True
    ) -> None:
        refused = Refused(request, code, why, definite)
        connection.send(REFUSED, STREAMS_CHANNEL, encode_control(refused))

    def _publish(self, connection: Connection, publish: Publish, frame: Frame) -> None:
        (batch,) = decode_all(frame.attachment)
        positions = batch.positions()
        assert positions is not None
        self.published.append((batch.source_names[0], int(positions[0][0])))
        if self.on_publish(connection, publish, frame) or not self.stores:
            return
        if self.name != self.region.head:
            self.refuse(connection, publish.request, NOT_HEAD, f"{self.name} is not the head", False)
            return
        self.store(connection, publish, batch)

    def store(self, connection: Connection, publish: Publish, batch: Batch) -> None:
        kept = next(kept for kept in self.region.streams.values() if kept.stream_id == batch.stream)
        stored = kept.append(batch)
        if isinstance(stored, str):
            self.refuse(connection, publish.request, "position_gap", stored)
        else:
            stored = msgspec.structs.replace(stored, request=publish.request)
            connection.send(STORED, STREAMS_CHANNEL, encode_control(stored))
            self.region.show()

    def _subscribe(self, connection: Connection, subscribe: Subscribe) -> None:
        number = subscribe.subscription
        if self.name != self.region.tail:
            self.refuse(connection, number, NOT_TAIL, f"{self.name} is not the tail")
            return
        if subscribe.stream in self.region.refusals:
            self.refuse(connection, number, *self.region.refusals[subscribe.stream])
            return
        kept = self.region.stream(subscribe.stream)
        start = {"earliest": 1, "latest": kept.next}.get(str(subscribe.start), subscribe.start)
        assert isinstance(start, int)
        subscribed = Subscribed(number, start, kept.next)
        connection.send(SUBSCRIBED, STREAMS_CHANNEL, encode_control(subscribed))
        self.subscriptions[connection, number] = subscribe.stream
        for batch in kept.batches:
            if batch.last >= start:
                self.push(connection, number, from_sequence(batch, start))

    def push(self, connection: Connection, number: int, batch: Batch) -> None:
        connection.send(EVENTS, STREAMS_CHANNEL, encode_control(Events(number)), (batch.encode(),))

    def show(self, stream: str, batch: Batch) -> None:
        for (connection, subscription), name in self.subscriptions.items():
            if name == stream:
                self.push(connection, subscription, batch)


class FakeRegion:
    """Replicas `eu/1`, `eu/2`, … that share one history; a test says who is head and who is tail."""

    def __init__(self, count: int) -> None:
        names = [f"eu/{i + 1}" for i in range(count)]
        self.replicas = {name: Replica(self, name) for name in names}
        self.head, self.tail = names[0], names[-1]
        self.epoch = 1
        self.streams: dict[str, FakeStream] = {}
        self.owners: dict[str, str] = {}
        self.refusals: dict[str, tuple[str, str]] = {}

    def __getitem__(self, number: int) -> Replica:
        return self.replicas[f"eu/{number}"]

    @property
    def url(self) -> str:
        return ",".join(replica.url for replica in self.replicas.values())

    def stream(self, name: str) -> FakeStream:
        return self.streams.setdefault(name, FakeStream(name))

    def place(self, me: str) -> Place:
        urls = {name: replica.url for name, replica in self.replicas.items()}
        return Place(
            region="eu",
            epoch=self.epoch,
            me=me,
            head=self.head,
            tail=self.tail,
            replicas=urls,
            streams=self.owners,
        )

    def show(self) -> None:
        for name, kept in self.streams.items():
            for batch in kept.batches[kept.shown :]:
                self.replicas[self.tail].show(name, batch)
            kept.shown = len(kept.batches)

    def move(self, *, head: str = "", tail: str = "") -> None:
        """A new configuration. A tail that loses its place says so to those it serves."""
        former = self.replicas[self.tail]
        self.epoch += 1
        self.head, self.tail = head or self.head, tail or self.tail
        if former.name != self.tail:
            subscriptions, former.subscriptions = former.subscriptions, {}
            for connection, number in subscriptions:
                former.refuse(connection, number, NOT_TAIL, f"{former.name} is not the tail")


Regions = Callable[..., AbstractAsyncContextManager[FakeRegion]]


@pytest.fixture
def regions() -> Regions:
    """`async with regions(3) as region:`"""

    @asynccontextmanager
    async def make(count: int) -> AsyncIterator[FakeRegion]:
        region = FakeRegion(count)
        for replica in region.replicas.values():
            await replica.start()
        try:
            yield region
        finally:
            for replica in region.replicas.values():
                await replica.kill()

    return make

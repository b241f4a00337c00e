"""What a stream server does with its clients' frames."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from qanat.events.batch import Batch, decode_all
from qanat.events.errors import LocalError, MalformedBatch, RemoteError
from qanat.events.filters import Filter, FilterError, parse
from qanat.log.predicates import check, given
from qanat.runtime.budget import MemoryBudget
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL, Closed, Service
from qanat.serving.filter_cost import is_long
from qanat.serving.ready_answers import ReadyAnswers
from qanat.serving.refusals import NoStream, NotHead, Stopping, refuse
from qanat.serving.served_stream import ServedStream
from qanat.serving.side_thread import PARSING
from qanat.serving.staging import log_folder, staged_for
from qanat.serving.stream_description import describe
from qanat.serving.stream_ends import look
from qanat.serving.stream_orders import Orders
from qanat.serving.subscriber import ClientState, Subscriber
from qanat.wire.frame import Frame
from qanat.wire.streams import (
    ORDERS,
    SEEN,
    SUBSCRIBED,
    TOLD,
    Ask,
    BadRequest,
    Credit,
    Look,
    Open,
    Publish,
    Subscribe,
    Subscribed,
    Told,
    Unsubscribe,
    decode_control,
    encode_control,
)

log = logging.getLogger("qanat.streams")
_T = TypeVar("_T")


_SUBSCRIPTIONS = 10_000
"""Of one connection, about 500 bytes each: what one client can make the server remember."""


_KEPT_BYTES = 64 << 20
"""And with their filters: some 2 MiB of text."""
BATCHES_MAX = 1024
"""Batches of one publish: what each costs besides its bytes holds everybody up for a fraction of a tenth of a
second in all. A client of ours sends one, or those of a file of 14 MiB, which are some tens."""


class Streams(Protocol):
    """The streams of a server. What it cannot do it says as a `LocalError`, which goes to the client."""

    @property
    def streams(self) -> Mapping[str, ServedStream]:
        """All there are, by name."""

    @property
    def by_id(self) -> Mapping[int, ServedStream]:
        """Those that may be published to here and now."""

    def missing(self, number: int) -> LocalError:
        """Why a stream is not in `by_id`."""

    def to_publish(self, name: str, create: bool, durability: str) -> ServedStream: ...

    def to_read(self, name: str) -> ServedStream: ...

    def to_look(self, name: str) -> ServedStream:
        """Like `to_read`, but a stream that is not there is not made."""

    async def order(self, what: str, name: str, settings: bytes) -> None:
        """One of `ORDERS`."""


class StreamService(Service):
    """Publishes, subscriptions and questions of every connection."""

    def __init__(self, registry: Streams) -> None:
        self.registry = registry
        self.stopping = False
        self.tell_place: Any = dict
        self.tell_stream: Callable[[Any], object] = ServedStream.status
        self.tell_status: Any = dict
        self.refused_batches = 0
        self._dirty: dict[ServedStream, None] = {}
        self._answers = ReadyAnswers()
        self._orders = Orders(registry, self._describe)

    def on_connect(self, connection: Connection) -> None:
        connection.state[STREAMS_CHANNEL] = ClientState()

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        try:
            message = decode_control(frame.type, frame.control)
        except BadRequest as error:
            refuse(connection, error.request, error)
            return
        match message:
            case Publish():
                self._publish(connection, message, frame.attachment)
            case Credit(number, amount):
                self._credit(connection, number, amount)
            case Open():
                self._open(connection, message)
            case Subscribe():
                self._subscribe(connection, message)
            case Look():
                self._look(connection, message)
            case Unsubscribe(number):
                self._unsubscribe(connection, number)
            case Ask():
                self._ask(connection, message)
            case _:
                raise RemoteError(f"a client does not send frame type {frame.type}")

    def on_chunk_end(self, connection: Connection) -> None:
        """Everything that arrived together was appended: now it goes out together."""
        if self._dirty:
            dirty, self._dirty = self._dirty, {}
            for stream in dirty:
                stream.fan_out()

    # --- publishing ---------------------------------------------------------------------------------

    def _publish(self, connection: Connection, message: Publish, attachment: memoryview) -> None:
        try:
            self._check_running()
            if message.staged:
                self._publish_staged(connection, message)
                return
            batches = _batches(attachment)
            stream = self._stream_of(batches)
            _check_memory(connection.traffic.budget, stream, batches)
            predicates = [text for batch in batches for text in given(batch)]
        except LocalError as error:
            self._refuse_publish(connection, message, error)
            return
        if is_long(predicates):
            self._aside(
                connection,
                partial(check, predicates),
                lambda checked: self._checked(connection, message, batches, checked),
            )
        else:
            self._publish_batches(connection, message, stream, batches)

    def _checked(
        self, connection: Connection, message: Publish, batches: list[Batch], checked: Exception | None
    ) -> None:
        """Its predicates were parsed; meanwhile the stream may be gone."""
        try:
            if isinstance(checked, Exception):
                raise checked
            self._check_running()
            stream = self._stream_of(batches)
        except LocalError as error:
            self._refuse_publish(connection, message, error)
            return
        for batch in batches:
            batch.checked = True
        self._publish_batches(connection, message, stream, batches)
        self.on_chunk_end(connection)

    def _refuse_publish(self, connection: Connection, message: Publish, error: LocalError) -> None:
        self.refused_batches += not isinstance(error, Stopping | NotHead)  # those are no fault of the batch
        refuse(connection, message.request, error)

    def _aside(
        self, connection: Connection, work: Callable[[], _T], then: Callable[[_T | Exception], None]
    ) -> None:
        """What takes long is done beside the loop; nothing more is read from this connection meanwhile, so
        that its requests keep their order."""
        connection.pause_reading()

        def done(found: _T | Exception) -> None:
            if connection.closing:
                return
            try:
                then(found)
            except Exception as error:
                connection.fault(error)
            connection.resume_reading()

        PARSING.submit(connection, work, done)

    def _publish_batches(
        self, connection: Connection, message: Publish, stream: ServedStream, batches: list[Batch]
    ) -> None:
        client: ClientState = connection.state[STREAMS_CHANNEL]  # type: ignore[assignment]
        client.streams.add(stream)
        if stream.publish(connection, message.request, batches, message.after):
            self._dirty[stream] = None

    def _publish_staged(self, connection: Connection, message: Publish) -> None:
        number = staged_for(message.staged)
        stream = self.registry.by_id.get(number)
        if stream is None:
            raise self.registry.missing(number)
        if stream.publish_staged(connection, message):
            self._dirty[stream] = None

    def _check_running(self) -> None:
        if self.stopping:
            raise Stopping("the server is stopping; the client tries again elsewhere or later")

    def _stream_of(self, batches: list[Batch]) -> ServedStream:
        if not batches:
            raise MalformedBatch("a publish without a batch")
        number = batches[0].stream
        stream = self.registry.by_id.get(number)
        if stream is None:
            raise self.registry.missing(number)
        if any(batch.stream != number for batch in batches):
            raise NoStream("batches of several streams are in one publish")
        return stream

    def _open(self, connection: Connection, message: Open) -> None:
        try:
            self._check_running()
            stream = self.registry.to_publish(message.stream, message.create, message.durability)
        except LocalError as error:
            refuse(connection, message.request, error)
            return
        client: ClientState = connection.state[STREAMS_CHANNEL]  # type: ignore[assignment]
        client.streams.add(stream)
        stream.open(connection, message)

    # --- subscribing --------------------------------------------------------------------------------

    def _subscribe(self, connection: Connection, message: Subscribe) -> None:
        if is_long([message.where]):
            self._aside(
                connection,
                partial(parse, message.where),
                lambda found: self._subscribe_where(connection, message, found),
            )
            return
        try:
            where = parse(message.where) if message.where.strip() else None
        except FilterError as error:
            refuse(connection, message.subscription, error)
        else:
            self._subscribe_where(connection, message, where)

    def _subscribe_where(
        self, connection: Connection, message: Subscribe, where: Filter | Exception | None
    ) -> None:
        client: ClientState = connection.state[STREAMS_CHANNEL]  # type: ignore[assignment]
        try:
            if isinstance(where, Exception):
                raise where
            self._check_running()
            stream = self.registry.to_read(message.stream)
            if message.alive and message.upto:
                raise LocalError("a range has all its events: `alive` is for subscriptions without an end")
            if where is not None and where.contextual:
                raise FilterError("a subscription's filter cannot use predicates about a GC event")
            start = self._start(stream, message)
            if message.subscription in client.subscriptions:
                raise RemoteError(f"subscription {message.subscription} exists already on this connection")
            connection.traffic.budget.refuse_new("subscription")
            if len(client.subscriptions) >= _SUBSCRIPTIONS:
                raise LocalError(
                    f"{_SUBSCRIPTIONS} subscriptions are open on this connection; open another connection"
                )
        except LocalError as error:
            refuse(connection, message.subscription, error)
            return
        folder = (
            log_folder(stream.log.folder)
            if message.files and connection.is_local and where is None and not message.alive
            else None
        )
        subscriber = Subscriber(
            connection,
            message.subscription,
            start,
            message.credit,
            where,
            files=folder is not None,
            upto=message.upto,
        )
        if connection.kept_bytes + subscriber.kept_bytes > _KEPT_BYTES:
            full = LocalError(
                f"this connection's subscriptions would take more than {_KEPT_BYTES >> 20} MiB; write shorter"
                " filters, or open another connection"
            )
            refuse(connection, message.subscription, full)
            return
        client.subscriptions[message.subscription] = (stream, subscriber)
        connection.kept_bytes += subscriber.kept_bytes
        subscribed = Subscribed(message.subscription, start, stream.log.next, folder, message.alive)
        connection.send(SUBSCRIBED, STREAMS_CHANNEL, encode_control(subscribed))
        if message.alive:
            stream.subscribe_alive(subscriber)
        else:
            stream.subscribe(subscriber)

    def _look(self, connection: Connection, message: Look) -> None:
        try:
            self._check_running()
            stream = self.registry.to_look(message.stream)
            seen = look(stream, message)
        except LocalError as error:
            refuse(connection, message.subscription, error)
            return
        connection.send(SEEN, STREAMS_CHANNEL, encode_control(seen))

    @staticmethod
    def _start(stream: ServedStream, message: Subscribe) -> int:
        if message.start_us is not None:
            return stream.log.seek_time(message.start_us)
        match message.start:
            case "earliest":
                return stream.log.first
            case "latest":
                return stream.readable + 1
            case int(number):
                if not 1 <= number <= stream.log.next:
                    raise LocalError(
                        f"stream {stream.name!r} goes up to {stream.log.next - 1}; {number} is not there yet"
                    )
                return number

    def _unsubscribe(self, connection: Connection, number: int) -> None:
        client: ClientState = connection.state[STREAMS_CHANNEL]  # type: ignore[assignment]
        found = client.subscriptions.pop(number, None)
        if found is not None:
            connection.kept_bytes -= found[1].kept_bytes
            found[0].unsubscribe(found[1])

    def _credit(self, connection: Connection, number: int, amount: int) -> None:
        client: ClientState = connection.state[STREAMS_CHANNEL]  # type: ignore[assignment]
        found = client.subscriptions.get(number)
        if found is not None:
            stream, subscriber = found
            subscriber.credit += max(0, amount)
            stream.pump(subscriber)

    def on_writable(self, connection: Connection) -> None:
        client: ClientState = connection.state[STREAMS_CHANNEL]  # type: ignore[assignment]
        if client.held:
            client.held = False
            connection.resume_reading()
        for stream, subscriber in list(client.subscriptions.values()):
            stream.pump_soon(subscriber)

    def on_close(self, connection: Connection, reason: Closed) -> None:
        client = connection.state.pop(STREAMS_CHANNEL, None)
        if isinstance(client, ClientState):
            for stream, subscriber in client.subscriptions.values():
                stream.unsubscribe(subscriber)
            for stream in client.streams:
                stream.forget(connection)

    # --- questions ----------------------------------------------------------------------------------

    def _ask(self, connection: Connection, message: Ask) -> None:
        if message.what in ORDERS:
            self._order(connection, message)
            return
        try:
            question, tell = self._question(message)
            answer = self._answers.get(question, tell, message.start)
        except LocalError as error:
            refuse(connection, message.request, error)
            return
        connection.send(TOLD, STREAMS_CHANNEL, encode_control(Told(message.request, answer)))
        if not connection.writable and connection.reading:  # who takes no answers asks no more
            client: ClientState = connection.state[STREAMS_CHANNEL]  # type: ignore[assignment]
            client.held = True
            connection.pause_reading()

    def _question(self, message: Ask) -> tuple[str, Callable[[], object]]:
        """Its name, of one about a stream with the stream's, and what answers it."""
        questions = {"streams": self._tell_streams, "status": self.tell_status, "place": self.tell_place}
        if message.what in ("stream", "describe"):
            stream = self.registry.streams.get(message.stream)
            if stream is None:
                raise NoStream(f"there is no stream {message.stream!r} here")
            whole = message.what == "describe"
            tell = (
                (lambda: self._describe(stream, message.start)) if whole else lambda: self.tell_stream(stream)
            )
            return f"{message.what} {message.stream}", tell
        if message.what not in questions:
            raise LocalError(
                f"{message.what!r} is not a question for a server; ask {', '.join(questions)}, stream or"
                " describe"
            )
        return message.what, questions[message.what]

    def _describe(self, stream: ServedStream, start: int) -> dict[str, object]:
        told: Any = self.tell_stream(stream)
        return {**told, **describe(stream, start)}

    def _order(self, connection: Connection, message: Ask) -> None:
        try:
            self._check_running()
            self._orders.take(connection, message)
        except LocalError as error:
            refuse(connection, message.request, error)

    def _tell_streams(self) -> object:
        return [self.tell_stream(stream) for _, stream in sorted(self.registry.streams.items())]


def _check_memory(budget: MemoryBudget, stream: ServedStream, batches: list[Batch]) -> None:
    """What a stream remembers of its sources is never given up: when memory is short only those go on that it
    knows."""
    if not budget.level:
        return
    budget.refuse_more("publish")
    if any(not any(stream.log.position(source)) for batch in batches for source in batch.source_names):
        budget.refuse_new("source")


def _batches(attachment: memoryview) -> list[Batch]:
    batches = list(islice(decode_all(attachment), BATCHES_MAX + 1))
    if len(batches) > BATCHES_MAX:
        raise MalformedBatch(f"more than {BATCHES_MAX} batches are in one publish; send them in several")
    return batches

"""The blocking client: the asynchronous one on a loop in a thread of its own."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from qanat.client.administering import KeptAs
from qanat.client.client import AsyncClient
from qanat.client.errors import ClientClosed
from qanat.client.flight import Flight
from qanat.client.settings import ClientSettings
from qanat.client.subscription import Subscription, Where
from qanat.client.ways import Via
from qanat.events import arguments
from qanat.events.attributes import Value
from qanat.events.batch import Batch
from qanat.events.errors import QanatError
from qanat.events.event import Event, events
from qanat.events.position import Position
from qanat.runtime.loop import new_loop

if TYPE_CHECKING:
    from qanat.client.encoded import Laid
    from qanat.client.mesh_member import MeshSettings
    from qanat.wire.streams import Seen

_T = TypeVar("_T")


class Client:
    """Publishes and subscribes; every call blocks until it is done. Safe to use from several threads.

    See `AsyncClient` for what `url`, `name`, `patience`, `settings`, `mesh` and `record` mean.
    """

    def __init__(
        self,
        url: str = "",
        *,
        name: str = "",
        durability: str = "",
        patience: float | None = None,
        settings: ClientSettings | None = None,
        mesh: "MeshSettings | None" = None,
        record: str | os.PathLike[str] | None = None,
    ) -> None:
        self._client = AsyncClient(
            url,
            name=name,
            durability=durability,
            patience=patience,
            settings=settings,
            mesh=mesh,
            record=record,
        )
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="qanat-client", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self._call(self._client.ready())
        except BaseException:
            self._end()
            raise

    @property
    def url(self) -> str:
        """Where its servers are; see `AsyncClient`."""
        return self._client.url

    @property
    def error(self) -> QanatError | None:
        """What has ended it; see `AsyncClient.error`."""
        return self._client.error

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._closed:
            work.close()
            raise ClientClosed("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def publish(
        self,
        stream: str,
        payload: bytes,
        *,
        key: bytes = b"",
        attributes: dict[str, Value] | None = None,
        collects: str = "",
    ) -> int:
        """Publishes one event and returns its sequence number once it is stored."""

        async def work() -> int:
            return await self._client.publish(
                stream, payload, key=key, attributes=attributes, collects=collects
            )

        return self._call(work())

    def publish_many(
        self,
        stream: str,
        payloads: Any,
        *,
        keys: Any = None,
        attributes: Sequence[Mapping[str, Value] | None] | Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        """Publishes many events in order; first and last sequence number once all are stored."""
        return self._call(self._client.publish_many(stream, payloads, keys=keys, attributes=attributes))

    def publish_at(
        self,
        stream: str,
        payloads: Any,
        positions: tuple[Any, Any],
        *,
        keys: Any = None,
        attributes: Sequence[Mapping[str, Value] | None] | Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        """Publishes many events under positions of the caller's own; see `AsyncClient.publish_at`."""
        return self._call(
            self._client.publish_at(stream, payloads, positions, keys=keys, attributes=attributes)
        )

    def publish_flights(
        self, stream: str, flights: "Iterable[Flight | Laid]", kept: Callable[[Flight], None] | None = None
    ) -> int:
        """Publishes batches that are encoded already, see `qanat.client.encoded`; how many events were new,
        once all are stored."""
        from qanat.client.encoded import publish_flights

        return self._call(publish_flights(self._client, stream, flights, kept))

    def leave(self, stream: str) -> None:
        """Publishes no more to a stream; see `AsyncClient.leave`."""
        self._call(self._client.leave(stream))

    def position(self, stream: str) -> Position:
        """The highest position of this client's name that the stream has."""
        return self._call(self._client.position(stream))

    def subscribe(
        self,
        stream: str,
        *,
        start: Where = "latest",
        where: str = "",
        via: Via = "server",
        alive: bool = False,
    ) -> "BlockingSubscription":
        """Events of a stream from `start` on; nothing published after this call returns is missed."""

        async def work() -> Subscription:
            return await self._client.subscribe(
                stream, start=start, where=where, via=via, alive=alive
            ).confirmed()

        return BlockingSubscription(self, self._call(work()))

    def read(self, stream: str, first: int, last: int, *, where: str = "") -> "BlockingSubscription":
        """The events `first` to `last`; see `AsyncClient.read`."""

        async def work() -> Subscription:
            return await self._client.read(stream, first, last, where=where).confirmed()

        return BlockingSubscription(self, self._call(work()))

    def look(self, stream: str, start: Where = "latest", size: int = 0) -> "Seen":
        """Where the stream is; see `AsyncClient.look`."""
        return self._call(self._client.look(stream, start, size))

    def stored(self, stream: str) -> int:
        """How many events of this client's name the stream has: after a restart, go on behind them."""

        async def work() -> int:
            return await self._client.stored(stream)

        return self._call(work())

    def ask(self, what: str, stream: str = "") -> Any:
        """What a server says of itself; see `AsyncClient.ask`."""
        return self._call(self._client.ask(what, stream))

    def create_stream(self, stream: str, **kept_as: Unpack[KeptAs]) -> dict[str, Any]:
        """Makes a stream; see `AsyncClient.create_stream`."""
        return self._call(self._client.create_stream(stream, **kept_as))

    def set_stream(self, stream: str, **kept_as: Unpack[KeptAs]) -> dict[str, Any]:
        """Keeps a stream in another way; see `AsyncClient.set_stream`."""
        return self._call(self._client.set_stream(stream, **kept_as))

    def remove_stream(self, stream: str) -> dict[str, Any]:
        """Removes a stream and its events; see `AsyncClient.remove_stream`."""
        return self._call(self._client.remove_stream(stream))

    def stream_info(self, stream: str, start: int = 1) -> dict[str, Any]:
        """All about a stream; see `AsyncClient.stream_info`."""
        return self._call(self._client.stream_info(stream, start))

    def close(self) -> None:
        """Waits for what was published, then disconnects."""
        if not self._closed:
            try:
                self._call(self._client.close())
            finally:
                self._end()

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class BlockingSubscription:
    """Iterate for events, or over `batches()`. Use from one thread at a time."""

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self._client, self._subscription = client, subscription
        self._batches: deque[Batch] = deque()
        self._events: Iterator[Event] = iter(())

    @property
    def next(self) -> int:
        """The sequence number that comes next from the server."""
        return self._subscription.next

    @property
    def way(self) -> str:
        """Where events come from now: `server` (the server), `mesh` (other clients) or `both`."""
        return self._subscription.way

    @property
    def end(self) -> int:
        """The stream's next sequence number at the moment of subscribing."""
        return self._subscription.end

    def take(self, timeout_s: float | None = None) -> list[Batch]:
        """All batches that are here, at least one; an empty list if none came in time."""
        if timeout_s is not None:
            arguments.seconds("timeout_s", timeout_s)

        async def work() -> list[Batch]:
            if timeout_s is None:
                return await self._subscription.take()
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._subscription.take()
            except TimeoutError:
                return []

        return self._client._call(work())

    def batches(self) -> Iterator[Batch]:
        while True:
            yield from self.take()

    def __iter__(self) -> "BlockingSubscription":
        return self

    def __next__(self) -> Event:
        while True:
            for event in self._events:
                return event
            if not self._batches:
                self._batches.extend(self.take())
            self._events = events(self._batches.popleft())

    def close(self) -> None:
        self._client._call(self._subscription.close())

    def __enter__(self) -> "BlockingSubscription":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

"""Reading a part of a stream: where it is, and from one sequence number to another.

Who reads a backlog in parallel asks first where the stream begins and ends, then reads ranges of it by as
many clients as it likes.
"""

from typing import TYPE_CHECKING

from qanat.client.errors import request_refused
from qanat.client.subscription import Subscription, Where
from qanat.events import arguments
from qanat.events.batch import Batch
from qanat.events.errors import LocalError, RemoteError
from qanat.events.tombstones import to_sequence
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.streams import LOOK, Look, Refused, Seen, encode_control

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient
    from qanat.client.link import Link


class Range(Subscription):
    """Events from `first` to `last`; then `take` gives an empty list.

    The last batch may reach beyond `last`, as it lies in the log: `within` cuts it.
    """

    def __init__(
        self,
        client: "AsyncClient",
        stream: str,
        first: int,
        last: int,
        where: str,
        window_bytes: int,
        *,
        in_place: bool,
    ) -> None:
        if arguments.whole("last", last) < arguments.whole("first", first, 1):
            raise LocalError(f"events {first} to {last} of {stream!r} are no range")
        super().__init__(client, stream, first, where, window_bytes, in_place=in_place)
        self.upto = last

    async def take(self) -> list[Batch]:
        while True:
            while not self._ready:
                if self.next > self.upto:
                    return []
                await self._fill()
            kept = self.within(await super().take())
            if kept:
                return kept

    def within(self, batches: list[Batch]) -> list[Batch]:
        """Without what lies behind the range. A tombstone that reaches over its end is cut there: who reads
        the next range gets the rest."""
        kept = (to_sequence(batch, self.upto) for batch in batches if batch.first <= self.upto)
        return [batch for batch in kept if batch is not None]


class Glance(Subscription):
    """Asks a stream's server where the stream is; `seen` is the answer."""

    seen: Seen | None = None

    def __init__(self, client: "AsyncClient", stream: str, start: Where, size: int) -> None:
        super().__init__(client, stream, start, "", 1)
        self._size = arguments.whole("size", size)

    def on_connect(self, link: "Link") -> None:
        self._link, self._connection = link, link.connection
        self._number = link.enlist(self)
        question = Look(self._number, self.stream, self._start, self._start_us, self._size)
        link.connection.send(LOOK, STREAMS_CHANNEL, encode_control(question))

    def on_seen(self, seen: Seen) -> None:
        self.seen = seen
        self._confirmed.set()

    def on_refused(self, refused: Refused) -> None:
        self._client._forget(self)
        self.fail(request_refused(refused.code, refused.message, self.stream))

    async def answer(self) -> Seen:
        try:
            await self.confirmed()
        finally:
            await self.close()
        if self.seen is None:
            raise RemoteError(f"the server did not say where {self.stream!r} is")
        return self.seen

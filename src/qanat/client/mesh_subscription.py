"""A subscription by way of the mesh, and when it is served directly instead.

| way | events come from | until |
|---|---|---|
| `server` | the server, at the application's pace | the application has caught up, and the mesh is there |
| `both` | the server; the mesh, after what has arrived | the mesh has delivered something |
| `mesh` | other clients, or the proxy's part in the mesh | the application falls behind, or the mesh does |

Both ways give every event in order from where they begin, so what came twice is dropped by its number, and a
change of way leaves no gap. In `mesh` the server still keeps a subscription that may be sent nothing: it
tells when another replica serves, and, asked anew, how far the stream is.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from qanat.client.mesh_member import MeshMember
from qanat.client.subscription import Item, Subscription, Where
from qanat.events.batch import Batch, stream_id
from qanat.events.errors import QanatError
from qanat.events.filters import Filter, evaluate, parse
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.streams import SUBSCRIBE, Subscribe, Subscribed, encode_control

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient
    from qanat.client.link import Link

_PAUSE_S, _PAUSE_LIMIT_S = 1.0, 60.0
"""After it fell back to `server`, for how long at least it stays there; doubles each time it happens soon
again."""


class MeshSubscription(Subscription):
    """Like any other subscription; `way` says where its events come from now.

    What waits for the application is bounded: above the window it leaves the mesh and is served directly, by
    credit.
    """

    def __init__(
        self,
        client: "AsyncClient",
        stream: str,
        start: Where,
        where: str,
        window_bytes: int,
        member: MeshMember,
    ) -> None:
        super().__init__(client, stream, start, where, window_bytes)
        self.fallbacks = 0
        """How often it left the mesh."""
        self._member = member
        self._id = stream_id(stream)
        self._filter: Filter | None = parse(where) if where.strip() else None
        self._come: deque[tuple[int, Batch]] = deque()
        """Of what arrived: the batches of the mesh, each with its size before filtering."""
        self._come_bytes = 0
        self._from = 0
        """The stream's next number when the server last began to send."""
        self._upto = 0
        """The last number that the mesh has delivered."""
        self._pause_s = _PAUSE_S
        self._entered_s = self._not_before_s = 0.0
        self._again: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._probed_at, self._known_end = 0, 0

    # --- taking -------------------------------------------------------------------------------------

    async def _fill(self) -> None:
        if self.way == "server":
            self._enter_mesh()
        await super()._fill()

    def _unpack(self, item: Item) -> None:
        if item is _FROM_MESH:
            size, batch = self._come.popleft()
            self._come_bytes -= size
            self._accept(batch)
        else:
            super()._unpack(item)

    def _resubscribe(self) -> None:
        self._come.clear()
        self._come_bytes = 0
        if self.way != "server":
            self._fall_back()
        super()._resubscribe()

    def _resume_at(self) -> int:
        return max([super()._resume_at(), *(batch.last + 1 for _, batch in self._come)])

    # --- changing the way ---------------------------------------------------------------------------

    @property
    def _caught_up(self) -> bool:
        """Whether all that was there when the server began is taken, and the application keeps pace with what
        comes."""
        if not self.next or self.next < self._from or self._error is not None:
            return False
        return (
            sum(len(item) for item in self._arrived if isinstance(item, memoryview)) * 4 < self._window_bytes
        )

    def _enter_mesh(self) -> None:
        if not self._member.ready:
            self._member.when_ready(self)
        elif not self._caught_up:
            return
        elif self._loop.time() < self._not_before_s:
            if self._again is None:
                self._again = self._loop.call_at(self._not_before_s, self.on_member_ready)
        elif self._member.join(self._id, upto := self._resume_at() - 1, self):
            self.way = "both"
            self._upto = upto
            self._entered_s = self._loop.time()

    def on_member_ready(self) -> None:
        """The time has come to look again, if the application waits: otherwise it will when it comes back."""
        self._again = None
        if self.way == "server" and self._waiter is not None:
            self._enter_mesh()

    def on_member_lost(self) -> None:
        """This client leaves the mesh, to enter it again in another way."""
        if self.way != "server":
            self._fall_back()
        self._member.when_ready(self)

    def on_mesh(self, batch: Batch) -> None:
        """The next batch, in order; called while the member's machine is at work, so what changes it comes
        later."""
        if self.way == "server":
            return
        if self.way == "both" and batch.first > max(self._upto + 1, self.next):
            # another subscription of this client is ahead; until this one is there, the server feeds it
            return
        self._upto = batch.last
        if self._upto >= self.next:
            size = batch.virtual_size
            self._come.append((size, batch if self._filter is None else _passing(batch, self._filter)))
            self._come_bytes += size
            self.on_item(_FROM_MESH)
        if self._come_bytes > self._window_bytes:
            self._fall_back()
        elif self.way == "both" and self._upto + 1 >= self.next:
            self._rely_on_mesh()

    def _rely_on_mesh(self) -> None:
        self.way = "mesh"
        link = self._link
        if link is not None:
            super().on_disconnect()
            self._watch(link)
        self._probe_later()

    def _fall_back(self) -> None:
        """What has come stays; the server sends what follows it."""
        was, self.way = self.way, "server"
        self.fallbacks += 1
        now = self._loop.time()
        self._pause_s = _PAUSE_S if now - self._entered_s > _PAUSE_LIMIT_S else self._pause_s
        self._not_before_s = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_LIMIT_S)
        self._leave_mesh()
        link = self._link
        if was == "mesh" and link is not None:
            super().on_disconnect()
            super().on_connect(link)

    def _leave_mesh(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        self._loop.call_soon(self._member.leave, self._id, self)

    # --- watching -----------------------------------------------------------------------------------

    def _watch(self, link: "Link") -> None:
        """A subscription without credit. As long as `_connection` is not set, none is given."""
        self._link, self._connection = link, None
        self._number = link.enlist(self)
        watch = Subscribe(self._number, self.stream, "latest", None, "", 0)
        link.connection.send(SUBSCRIBE, STREAMS_CHANNEL, encode_control(watch))

    def _probe_later(self) -> None:
        self._probed_at = self._upto
        self._known_end = 0
        delay_s = self._member.settings.probe_ms / 1000
        self._probe = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        """Nothing came for a while: is there anything? And if there was at the last look, why did it not
        come?"""
        link, silent = self._link, self._upto == self._probed_at
        if silent and self._known_end > self._upto + 1:
            self._fall_back()
            return
        known_end = self._known_end
        self._probe_later()
        if silent and link is not None:
            self._known_end = known_end
            super().on_disconnect()
            self._watch(link)

    # --- the connection's side ----------------------------------------------------------------------

    def on_connect(self, link: "Link") -> None:
        self._member.use_proxy(link.connection.peer.name, link.url, link.connection.peer.cluster)
        if self.way == "mesh":
            self._watch(link)
        else:
            super().on_connect(link)

    def on_subscribed(self, subscribed: Subscribed) -> None:
        if self.way == "mesh":
            self._known_end = subscribed.start
        else:
            self._from = subscribed.next
        super().on_subscribed(subscribed)

    def fail(self, error: QanatError) -> None:
        if self._error is None:
            self._leave_mesh()
        super().fail(error)


_FROM_MESH = memoryview(b"")
"""Stands in the queue of what arrived for the next batch of the mesh."""


def _passing(batch: Batch, where: Filter) -> Batch:
    """The rows that pass, and what is no data: that says what became of other events. Perhaps none."""
    mask = evaluate(where, batch)
    if batch.kinds is not None:
        mask = mask | (batch.kinds != 0)
    if mask.any():
        return batch.take(mask)
    return Batch.build(batch.stream, [], first=batch.first, seqs=np.empty(0, np.uint64), span=batch.span)

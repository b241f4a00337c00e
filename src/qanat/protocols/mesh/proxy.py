"""The proxy's side of the mesh: a member whose `Recv` is its whole history."""

from typing import TypeAlias, assert_never

from qanat.events.batch import Batch
from qanat.kernel import Address, Context
from qanat.protocols.history import HistoryTruncated, Synced
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.messages import Notify, Request
from qanat.protocols.mesh.node import MeshNode
from qanat.protocols.mesh.notifier import News
from qanat.protocols.mesh.requests import Arrived
from qanat.protocols.mesh.shown import Shown
from qanat.protocols.views import ViewsConfig

ProxyRequest: TypeAlias = Arrived | Synced


class MeshProxy(MeshNode[ProxyRequest]):
    """Tells and serves what is durable, so that no client has an event that a power cut could unmake.

    Whoever feeds the history says so by `Arrived` or `Synced`; the history is not changed here.
    """

    def __init__(self, context: Context, config: MeshConfig, views: ViewsConfig, history: Shown) -> None:
        super().__init__(context, config, views, context.address)
        self.history = history
        self._shown: dict[int, int] = {}
        """Streams with events, and the counter that was last told."""

    def on_request(self, now_us: int, request: ProxyRequest) -> None:
        match request:
            case Arrived() | Synced():
                self._show(request.stream)
            case _:
                assert_never(request)

    def _show(self, stream: int) -> None:
        counter, shown = self.history.durable(stream), self._shown.get(stream, 0)
        if counter > shown:
            self._shown[stream] = counter
            self.notifier.received(stream, shown + 1, counter)
            self.notifier.progressed()

    def counter(self, stream: int) -> int:
        return self._shown.get(stream, 0)

    def _progress(self, ask: bool = False, news: News = ()) -> Notify | None:
        """A proxy has nobody to ask: it knows more than any client."""
        return Notify(tuple(self._shown), tuple(self._shown.values()), False, news) if self._shown else None

    def answer(self, message: Request) -> tuple[list[Batch], int, int]:
        stream = message.stream
        durable = self.history.durable(stream)
        try:
            read = self.history.read(stream, message.nxt, self.config.answer_bytes, durable)
        except HistoryTruncated as error:
            self.context.trace("truncated", stream=stream, first=error.first, last=error.last)
            return [], message.cnt, durable
        batches = [batch for batch in read if batch.first <= message.cnt]
        # A read that ends before what was asked for, and before our counter, ended for want of room.
        upto = message.cnt
        if batches and len(batches) == len(read) and batches[-1].last < min(message.cnt, durable):
            upto = batches[-1].last
        return batches, upto, durable

    def on_attach(self, sender: Address) -> None:
        attached = self.notifier.attached
        if sender not in attached and len(attached) >= self.config.attached_limit:
            self.context.trace("refused", sender=sender, reason="attached_limit")
            return
        attached[sender] = None
        progress = self._progress()
        if progress is not None:
            self.context.send(sender, progress)

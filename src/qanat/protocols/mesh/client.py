"""A client of the mesh: asks neighbours for what they have more of, and the proxy for what did not come."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TypeAlias, assert_never

import numpy as np

from qanat.events.batch import Batch
from qanat.kernel import Address, Context, require
from qanat.protocols.mesh.buffer import ReceiveBuffer
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.incoming import Incoming
from qanat.protocols.mesh.messages import Attach, Events, Notify, Request
from qanat.protocols.mesh.node import MeshNode
from qanat.protocols.mesh.requests import Subscribe, Unsubscribe
from qanat.protocols.views import Leave, UseProxy, ViewsConfig

ATTACH = "attach"
LATE = "late"
ClientRequest: TypeAlias = Subscribe | Unsubscribe | UseProxy | Leave


class MeshClient(MeshNode[ClientRequest]):
    """Delivers each stream's batches in order and without gaps; `streams` holds the books, for checkers.

    `after` are the streams wanted from the start, each with the number after which to begin. What an earlier
    life had is the application's to remember: it subscribes with the last number that it has processed.
    """

    def __init__(
        self,
        context: Context,
        config: MeshConfig,
        views: ViewsConfig,
        proxy: Address,
        after: Mapping[int, int],
        *,
        listens: bool = True,
    ) -> None:
        super().__init__(context, config, views, proxy, listens=listens)
        self.streams = {stream: Incoming(stream, number) for stream, number in after.items()}
        self.buffer = ReceiveBuffer(config.buffer_bytes)
        self.early_bytes = 0
        self._looks = 0
        self._looking = False
        self._order = count().__next__
        self._proxy_rests = False
        """The proxy had not what it was asked for, or broke the channel: it is asked again at the next look."""

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        super().on_start(now_us, saved)
        self._attach()

    def on_request(self, now_us: int, request: ClientRequest) -> None:
        match request:
            case Subscribe():
                if request.stream not in self.streams:
                    self.streams[request.stream] = Incoming(request.stream, request.after)
            case Unsubscribe():
                self._forget(request.stream)
            case UseProxy():
                self._use_proxy(request.address)
            case Leave():
                for stream in list(self.streams):
                    self._forget(stream)
                self.membership.stop()
                self.notifier.stop()
                self.context.cancel_timer(ATTACH)
            case _:
                assert_never(request)

    # What others say

    def on_notify(self, sender: Address, message: Notify) -> None:
        """receiveNotify, for each stream that we want."""
        streams = self.streams
        for stream, cnt in zip(message.streams, message.counters, strict=False):
            incoming = streams.get(stream)
            if incoming is not None and incoming.nxt <= cnt:
                self._want(incoming, sender, cnt)

    def on_events(self, sender: Address, message: Events) -> None:
        incoming = self.streams.get(message.stream)
        if incoming is None:
            return
        before = incoming.cnt
        for batch in message.batches:
            self._take(incoming, batch)
        asked = incoming.asked.get(message.nxt)
        if asked is not None and asked.peer == sender:
            incoming.close(message.nxt)
            self._settle(incoming, sender, asked.last, message)
        if incoming.cnt > before and self.membership.listens:
            self.notifier.progressed()
        self._fall_back(incoming)

    def _settle(self, incoming: Incoming, sender: Address, last: int, message: Events) -> None:
        """One answer is in: ask on where it ended for want of room; what it left out, the proxy has."""
        upto = min(message.upto, last)
        lost = len(incoming.lost)
        if upto < message.nxt:
            incoming.lose(message.nxt, last)  # It speaks of nothing: asking on would go on for ever.
        else:
            self._left_out(incoming, message.nxt, upto)
            if upto < last and incoming.cnt < last:
                self._ask(incoming, sender, max(upto, incoming.cnt) + 1, last)
        if sender == self.membership.proxy and len(incoming.lost) > lost:
            self._proxy_rests = True

    def _left_out(self, incoming: Incoming, first: int, upto: int) -> None:
        incoming.lose(first, upto)

    def counter(self, stream: int) -> int:
        incoming = self.streams.get(stream)
        return 0 if incoming is None else incoming.cnt

    def answer(self, message: Request) -> tuple[list[Batch], int, int]:
        config, stream = self.config, message.stream
        batches, upto = self.buffer.find(stream, message.nxt, message.cnt, config.answer_bytes)
        return batches, upto, self.counter(stream)

    def _progress(self, ask: bool = False) -> Notify | None:
        streams = self.streams
        if not streams:
            return None
        return Notify(tuple(streams), tuple([incoming.cnt for incoming in streams.values()]), ask)

    # Asking

    def _want(self, incoming: Incoming, peer: Address, cnt: int) -> None:
        """Ask a peer that says it has more, unless enough is under way."""
        config = self.config
        if (
            incoming.open_parts >= config.requests
            or incoming.at_peer.get(peer, 0) >= config.neighbour_requests
        ):
            return
        first = incoming.nxt
        last = min(cnt, first + config.request_events - 1)
        incoming.nxt = last + 1
        self._ask(incoming, peer, first, last)

    def _ask(self, incoming: Incoming, peer: Address, first: int, last: int) -> None:
        incoming.ask(peer, first, last, self._looks)
        if not self._looking:
            self._look_later()
        self.context.send(peer, Request(incoming.stream, first, last))

    def _fall_back(self, incoming: Incoming) -> None:
        """requestFromProxy: exactly what others left out, a few requests at a time."""
        proxy = self.membership.proxy
        while (
            incoming.lost
            and incoming.at_peer.get(proxy, 0) < self.config.proxy_requests
            and not self._proxy_rests
        ):
            part = incoming.next_lost()
            if part is None:
                return
            require(incoming.cnt < incoming.nxt - 1, "the proxy is asked for what nobody was asked for")
            require(part[0] not in incoming.asked, f"{part[0]} was asked for and is lost at the same time")
            self._ask(incoming, proxy, *part)

    # Taking

    def _take(self, incoming: Incoming, batch: Batch) -> None:
        """deliverEvent, for as much as its turn has come; what is early waits, if there is room."""
        if batch.stream != incoming.stream:
            return
        first, last = batch.first, batch.last
        if last <= incoming.cnt:
            return
        if first > incoming.cnt + 1:
            room = self.config.early_bytes - self.early_bytes
            if first < incoming.nxt and batch.virtual_size <= room:
                incoming.keep_early(first, last, self._order(), batch)
                self.early_bytes += batch.virtual_size
            return
        self._deliver(incoming, batch, first, last)
        if incoming.early:
            had = incoming.early_bytes
            for ripe in incoming.ripe():
                if ripe.last > incoming.cnt:
                    self._deliver(incoming, ripe, ripe.first, ripe.last)
            self.early_bytes -= had - incoming.early_bytes

    def _deliver(self, incoming: Incoming, batch: Batch, first: int, last: int) -> None:
        """The application gets the rows after `cnt`; neighbours later get the batch whole, as it came."""
        cnt = incoming.cnt
        part = batch
        if first <= cnt:
            row = int(np.searchsorted(batch.seqs(), np.uint64(cnt), "right"))
            part = batch.slice(row, batch.count)
        incoming.cnt = last
        if incoming.nxt <= last:
            incoming.nxt = last + 1
        self.context.deliver(part)
        self.buffer.add(incoming.stream, first, last, batch)

    # What does not come

    def _look_later(self) -> None:
        self._looking = True
        self.context.set_timer(LATE, round(self.config.answer_ms * 1000))

    def on_other_timer(self, name: str) -> None:
        if name == ATTACH:
            self._attach()
            return
        require(name == LATE, f"no timer is called {name!r}")
        self._looks += 1
        self._looking = self._proxy_rests = False
        for incoming in self.streams.values():
            self._give_up_late(incoming)
            self._fall_back(incoming)
            if (incoming.asked or incoming.lost) and not self._looking:
                self._look_later()

    def _give_up_late(self, incoming: Incoming) -> None:
        """Two looks make at least one `answer_ms`; the proxy gets more time."""
        proxy, looks = self.membership.proxy, self._looks
        patience = self.config.proxy_answers
        late = [
            first
            for first, asked in incoming.asked.items()
            if looks - asked.since >= (patience if asked.peer == proxy else 2)
        ]
        for first in late:
            incoming.give_up(first)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        super().on_link_down(now_us, peer)
        if peer == self.membership.proxy:
            self._proxy_rests = True
        for incoming in self.streams.values():
            if peer in incoming.at_peer:
                for first in [first for first, asked in incoming.asked.items() if asked.peer == peer]:
                    incoming.give_up(first)
                self._fall_back(incoming)
        if not self._looking:
            self._look_later()

    # The proxy

    def _attach(self) -> None:
        """Without a way in we ask the proxy to notify us, and again each `idle_ms`: it may have forgotten."""
        if not self.membership.listens:
            self.context.send(self.membership.proxy, Attach())
            self.context.set_timer(ATTACH, round(self.config.idle_ms * 1000))

    def _use_proxy(self, proxy: Address) -> None:
        """Requests open at the old proxy are left to be answered, or to be late like a neighbour's."""
        self.membership.use_proxy(proxy)
        self._proxy_rests = False
        self._attach()

    def _forget(self, stream: int) -> None:
        incoming = self.streams.pop(stream, None)
        if incoming is None:
            return
        self.early_bytes -= incoming.early_bytes
        self.buffer.forget(stream)

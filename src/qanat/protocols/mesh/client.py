"""A client of the mesh: asks neighbours for what they have more of, and the proxy for what did not come."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TypeAlias, assert_never

import numpy as np

from qanat.events.batch import Batch
from qanat.kernel import Address, Context, require
from qanat.protocols.mesh.buffer import ReceiveBuffer
from qanat.protocols.mesh.config import MeshConfig
from qanat.protocols.mesh.incoming import Gap, Incoming
from qanat.protocols.mesh.messages import Attach, Events, Notify, Request
from qanat.protocols.mesh.node import MeshNode
from qanat.protocols.mesh.notifier import News
from qanat.protocols.mesh.requests import Subscribe, Unsubscribe
from qanat.protocols.views import Leave, UseProxy, ViewsConfig

ATTACH = "attach"
LATE = "late"
TOLD = 4
"""News of a busy peer that are remembered, the latest; more would only be asked of it when others have
them."""
PATIENCE = 5
"""Looks at late answers, each `answer_ms` after the last, until a gap that nobody filled is asked of the
proxy."""
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
        """The proxy had not what it was asked for, or broke the channel: it is asked again at the next
        look."""

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
        """receiveNotify, for each stream that we want: first for the news, then for what is older."""
        streams, news = self.streams, message.news
        for stream, first, last in news:
            incoming = streams.get(stream)
            if incoming is not None and (last >= incoming.nxt or incoming.gaps):
                self._want(incoming, sender, first, last)
        for stream, cnt in zip(message.streams, message.counters, strict=False):
            incoming = streams.get(stream)
            if incoming is not None and (cnt >= incoming.nxt or incoming.gaps):
                self._want_older(incoming, sender, cnt, at_once=not news)

    def on_events(self, sender: Address, message: Events) -> None:
        incoming = self.streams.get(message.stream)
        if incoming is None:
            return
        tells = self.membership.listens
        progressed = False
        following = message.nxt  # what follows the part of the answer that is here without holes
        for batch in message.batches:
            first, last = batch.first, batch.last
            if last <= incoming.cnt:
                had = True
            elif had := self._take(incoming, batch):
                progressed = True
                if tells:
                    self.notifier.received(incoming.stream, first, last)
            if had and first <= following <= last:
                following = last + 1
        asked = incoming.asked.get(message.nxt)
        if asked is not None and asked.peer == sender:
            incoming.close(message.nxt)
            if following <= asked.last:
                self._settle(incoming, sender, asked.last, message)
            if sender in incoming.told:
                self._want_told(incoming, sender)
        if progressed and tells:
            self.notifier.progressed()
        if incoming.lost:
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

    def _progress(self, ask: bool = False, news: News = ()) -> Notify | None:
        streams = self.streams
        if not streams:
            return None
        return Notify(tuple(streams), tuple([incoming.cnt for incoming in streams.values()]), ask, news)

    def _lacks(self) -> bool:
        stalled = [incoming.stalls() for incoming in self.streams.values()]
        return any(stalled)

    # Asking

    def _want(self, incoming: Incoming, peer: Address, first: int, last: int) -> None:
        """Ask a peer for what it says is new, unless enough is under way."""
        if first > last:
            return
        self._reveal(incoming, last)
        for gap in list(incoming.gaps):
            if gap.last < first:
                continue
            if gap.first > last:
                return
            if not self._has_room(incoming, peer):
                self._remember(incoming, peer, first, last)
                return
            self._ask_gap(incoming, peer, gap, max(gap.first, first), min(gap.last, last))

    def _want_told(self, incoming: Incoming, peer: Address) -> None:
        """There is room at a peer again: ask for any of its news. Of a member that cannot serve all of its F
        they thus take different parts, and have them from each other."""
        told = incoming.told.pop(peer)
        while told and self._has_room(incoming, peer):
            self._want(incoming, peer, *told.pop(self.context.rng.randrange(len(told))))
        for first, last in told:
            self._remember(incoming, peer, first, last)

    def _remember(self, incoming: Incoming, peer: Address, first: int, last: int) -> None:
        """News of a peer that has enough to do for us: it is looked at again when an answer is in."""
        if peer in incoming.at_peer:
            told = incoming.told.setdefault(peer, [])
            told.append((first, last))
            if len(told) > TOLD:
                del told[0]

    def _want_older(self, incoming: Incoming, peer: Address, cnt: int, *, at_once: bool) -> None:
        """Ask a peer for what it has besides its news, if others have been given time to tell of it.

        Of the proxy this is asked only if there is nobody else to wait for: it has everything, so all would.
        """
        self._reveal(incoming, cnt)
        if not at_once and peer == self.membership.proxy:
            at_once = len(self.membership.view) <= 1
            if not at_once:
                return
        patience = self.config.older_after
        for gap in list(incoming.gaps):
            if gap.first > cnt:
                return
            gap.passed += 1
            if at_once or gap.passed >= patience:
                if not self._has_room(incoming, peer):
                    return
                self._ask_gap(incoming, peer, gap, gap.first, min(gap.last, cnt))

    def _reveal(self, incoming: Incoming, last: int) -> None:
        """What lies between is a gap now; beyond a bound it stays unknown, and a later NOTIFY brings it up
        again."""
        config = self.config
        last = min(last, incoming.cnt + config.requests * config.request_events)
        gaps = incoming.gaps
        if last >= incoming.nxt and (len(gaps) < config.requests or gaps[-1].last == incoming.nxt - 1):
            incoming.reveal(last, self._looks)
            if not self._looking:
                self._look_later()

    def _has_room(self, incoming: Incoming, peer: Address) -> bool:
        config = self.config
        return (
            incoming.open_parts < config.requests
            and incoming.at_peer.get(peer, 0) < config.neighbour_requests
        )

    def _ask_gap(self, incoming: Incoming, peer: Address, gap: Gap, first: int, last: int) -> None:
        """What is far ahead is not asked for while early events take half of their room: it would find
        none."""
        config = self.config
        if first > incoming.cnt + 1 and 2 * self.early_bytes > config.early_bytes:
            return
        last = min(last, first + config.request_events - 1)
        if gap.first < first and last < gap.last and len(incoming.gaps) >= 2 * config.requests:
            return
        incoming.claim(gap, first, last, self._looks)
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

    def _take(self, incoming: Incoming, batch: Batch) -> bool:
        """deliverEvent, for as much as its turn has come; what is early waits, if there is room. Neighbours
        may ask for it either way. False: it is not here now."""
        first, last = batch.first, batch.last
        if batch.stream != incoming.stream or last <= incoming.cnt or not 1 <= first <= last:
            return False
        if first > incoming.cnt + 1:
            size = batch.virtual_size
            if first >= incoming.nxt or size > self.config.early_bytes - self.early_bytes:
                return False
            incoming.keep_early(first, last, self._order(), batch)
            self.early_bytes += size
            incoming.fill(first, last)
            self.buffer.add(incoming.stream, first, last, batch)
            return True
        incoming.fill(first, last)
        self._deliver(incoming, batch, first, last)
        self.buffer.add(incoming.stream, first, last, batch)
        if incoming.early:
            had = incoming.early_bytes
            for ripe in incoming.ripe():
                if ripe.last > incoming.cnt:
                    self._deliver(incoming, ripe, ripe.first, ripe.last)
            self.early_bytes -= had - incoming.early_bytes
        return True

    def _deliver(self, incoming: Incoming, batch: Batch, first: int, last: int) -> None:
        """The application gets the rows after `cnt`; neighbours later get the batch whole, as it came."""
        cnt = incoming.cnt
        part = batch
        if first <= cnt:
            row = int(np.searchsorted(batch.seqs(), np.uint64(cnt), "right"))
            part = batch.slice(row, batch.count)
        incoming.cnt = last
        self.context.deliver(part)

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
            if (incoming.asked or incoming.lost or incoming.gaps) and not self._looking:
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
            incoming.reopen(first, self.config.older_after)
        for gap in [gap for gap in incoming.gaps if looks - gap.since >= PATIENCE]:
            # Nobody told of it, or nobody had room: it is as good as lost.
            incoming.gaps.remove(gap)
            incoming.lose(gap.first, gap.last)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        super().on_link_down(now_us, peer)
        if peer == self.membership.proxy:
            self._proxy_rests = True
        for incoming in self.streams.values():
            incoming.told.pop(peer, None)
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
        """What was asked of the old proxy is asked of the new one: the old one may be gone, or no longer
        serve."""
        old = self.membership.proxy
        if proxy == old:
            return
        self.membership.use_proxy(proxy)
        self._proxy_rests = False
        self._attach()
        for incoming in self.streams.values():
            for first in [first for first, asked in incoming.asked.items() if asked.peer == old]:
                incoming.give_up(first)
            self._fall_back(incoming)

    def _forget(self, stream: int) -> None:
        incoming = self.streams.pop(stream, None)
        if incoming is None:
            return
        self.early_bytes -= incoming.early_bytes
        self.buffer.forget(stream)

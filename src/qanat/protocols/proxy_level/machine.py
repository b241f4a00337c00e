"""One proxy: publishing to the streams that it owns, both halves of the protocol, and its timer."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

import msgspec

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.kernel import Address, Context, Machine
from qanat.protocols.history import History, Synced
from qanat.protocols.proxy_level.config import ProxyLevelConfig
from qanat.protocols.proxy_level.exchange import Exchange
from qanat.protocols.proxy_level.messages import MESSAGES, ProxyLevelMessage, Unserved
from qanat.protocols.proxy_level.receiving import Receiving
from qanat.protocols.proxy_level.sending import Sending


class Publish(msgspec.Struct, frozen=True):
    """Request: add these events to their stream. `request` comes back in the answer."""

    request: int
    batch: Batch


class Published(msgspec.Struct, frozen=True):
    """Delivered: the events of that request are `first`..`last` and durable; `dropped` of them were had
    before."""

    request: int
    stream: int
    first: int
    last: int
    dropped: int


class Refused(msgspec.Struct, frozen=True):
    """Delivered: nothing of that request was stored. `owner` names where the stream belongs, "" if it is here
    or nowhere."""

    request: int
    stream: int
    owner: str
    reason: str


class Advanced(msgspec.Struct, frozen=True):
    """Delivered: `first`..`last` of the stream may now be read from the history."""

    stream: int
    first: int
    last: int


Request: TypeAlias = Publish | Synced


class Streams(msgspec.Struct, frozen=True):
    """Every stream of the deployment and the region that owns it; `region` is ours."""

    region: str
    owners: Mapping[int, str]

    @property
    def own(self) -> list[int]:
        return sorted(stream for stream, owner in self.owners.items() if owner == self.region)

    @property
    def remote(self) -> list[int]:
        return sorted(stream for stream, owner in self.owners.items() if owner != self.region)


class ProxyLevel(Machine[ProxyLevelMessage, Request]):
    """A region's proxy that is one node. What must survive is in the history; the machine persists
    nothing."""

    message_types = MESSAGES
    delivers = (Published, Refused, Advanced, Unserved)
    receiving_type: type[Receiving] = Receiving
    sending_type: type[Sending] = Sending

    def __init__(
        self,
        context: Context,
        config: ProxyLevelConfig,
        history: History,
        streams: Streams,
        peers: Sequence[Address],
    ) -> None:
        super().__init__(context)
        self.history = history
        self.streams = streams
        self.config = config
        self._own = frozenset(streams.own)
        self._shown = {stream: history.durable(stream) for stream in streams.own}
        """How far our own streams were shown: what is not durable could still get another number."""
        self._pending: dict[int, deque[Published]] = {stream: deque() for stream in streams.own}
        others = [peer for peer in peers if peer != context.address]
        self.receiving = self.receiving_type(context, config, history, streams.remote, others, self._taken)
        self.sending = self.sending_type(context, config, history, streams.owners, others, self.visible)
        self.exchange = Exchange(context, config, self.receiving, self.sending, self.sending.advertise)

    def visible(self, stream: int) -> int:
        return self._shown[stream] if stream in self._own else self.history.counter(stream)

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.exchange.start(now_us)

    def on_message(self, now_us: int, sender: Address, message: ProxyLevelMessage) -> None:
        self.exchange.on_message(now_us, sender, message)

    def on_timer(self, now_us: int, name: str) -> None:
        self.exchange.on_timer(now_us, name)

    def on_request(self, now_us: int, request: Request) -> None:
        match request:
            case Publish():
                self._publish(request)
            case Synced():
                self._show(request.stream)
            case _:
                assert_never(request)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.exchange.on_link_down(now_us, peer)

    # Transitions

    def _publish(self, request: Publish) -> None:
        """addLocalEvent, for each event of the batch."""
        batch, stream = request.batch, request.batch.stream
        owner = self.streams.owners.get(stream)
        if stream not in self._own:
            reason = f"stream {stream:#x} belongs to {owner!r}: publish it there"
            if owner is None:
                reason = f"no region owns stream {stream:#x}"
            self.context.deliver(Refused(request.request, stream, owner or "", reason))
            return
        if len(self._pending[stream]) >= self.config.pending_publishes:
            reason = f"{self.config.pending_publishes} publishes wait for the disk already: try again later"
            self.context.deliver(Refused(request.request, stream, "", reason))
            return
        try:
            numbered = self.history.append(batch)
        except LocalError as error:
            self.context.deliver(Refused(request.request, stream, "", str(error)))
            return
        self._pending[stream].append(Published(request.request, stream, *numbered))
        self._show(stream)

    def _show(self, stream: int) -> None:
        """What has become durable of our own stream is answered for, and goes out."""
        if stream not in self._own:
            return
        durable, shown, pending = self.history.durable(stream), self._shown[stream], self._pending[stream]
        if durable > shown:
            self._shown[stream] = durable
            self.context.deliver(Advanced(stream, shown + 1, durable))
        while pending and pending[0].last <= durable:
            self.context.deliver(pending.popleft())
        if durable > shown:
            self.sending.advanced(stream)

    def _taken(self, stream: int, before: int) -> None:
        self.context.deliver(Advanced(stream, before + 1, self.history.counter(stream)))
        self.sending.advanced(stream)

"""The sending half: advertise counters, serve subscriptions.

A subscription is a cursor into the history. Batches leave as they lie there, while fewer than `window_bytes`
are unacknowledged, and fewer than `peer_window_bytes` of all streams of that subscriber; so a slow or dead
one costs a window and nothing more, and is served from the history later.
"""

from collections import deque
from collections.abc import Callable, Iterable

from qanat.kernel import Address, Context
from qanat.protocols.history import History, HistoryTruncated
from qanat.protocols.proxy_level.config import ProxyLevelConfig
from qanat.protocols.proxy_level.messages import (
    Ack,
    Advertisement,
    Ended,
    Events,
    Subscribe,
    Unserved,
    Unsubscribe,
)


class Flow:
    """All that is in flight to one subscriber, and which of its streams wait for room."""

    __slots__ = ("in_flight_bytes", "waiting")

    def __init__(self) -> None:
        self.in_flight_bytes = 0
        self.waiting: dict[int, None] = {}
        """In the order in which they began to wait."""


class Cursor:
    """One subscription: what was sent and not acknowledged, and where it goes on."""

    __slots__ = ("_flow", "_in_flight", "following", "in_flight_bytes", "token")

    def __init__(self, token: int, following: int, flow: Flow) -> None:
        self.token, self.following = token, following
        self.in_flight_bytes = 0
        self._flow = flow
        self._in_flight: deque[tuple[int, int]] = deque()
        """(last number, bytes) of each message."""

    @property
    def in_flight_messages(self) -> int:
        return len(self._in_flight)

    def sent(self, last: int, size_bytes: int) -> None:
        self.following = last + 1
        self._in_flight.append((last, size_bytes))
        self.in_flight_bytes += size_bytes
        self._flow.in_flight_bytes += size_bytes

    def acknowledged(self, upto: int) -> None:
        while self._in_flight and self._in_flight[0][0] <= upto:
            size_bytes = self._in_flight.popleft()[1]
            self.in_flight_bytes -= size_bytes
            self._flow.in_flight_bytes -= size_bytes


class Sending:
    """`visible(stream)` says how far a stream may be shown: what is durable of our own, all we have of
    others'."""

    def __init__(
        self,
        context: Context,
        config: ProxyLevelConfig,
        history: History,
        streams: Iterable[int],
        peers: Iterable[Address],
        visible: Callable[[int], int],
    ) -> None:
        self._context = context
        self._config = config
        self._history = history
        self._streams = tuple(sorted(streams))
        self._visible = visible
        self._peers: tuple[Address, ...] = ()
        self.cursors: dict[int, dict[Address, Cursor]] = {stream: {} for stream in self._streams}
        """By stream and subscriber; for checkers and status to read."""
        self.flows: dict[Address, Flow] = {}
        self.active = True
        self.set_peers(peers)

    def set_peers(self, peers: Iterable[Address]) -> None:
        """Who is advertised to and may subscribe; subscriptions of others end."""
        self._peers = tuple(sorted(set(peers) - {self._context.address}))
        for peer in [peer for peer in self.flows if peer not in self._peers]:
            self.on_link_down(peer)

    def set_streams(self, streams: Iterable[int]) -> None:
        """Which streams there are; subscriptions to others end."""
        wanted = frozenset(streams)
        for stream in self.cursors:
            if stream not in wanted:
                self._end_all(stream)
        self._streams = tuple(sorted(wanted))
        self.cursors = {stream: self.cursors.get(stream, {}) for stream in self._streams}
        for peer in self.flows:
            self._push_waiting(peer)

    def start(self) -> None:
        """Serve from now on."""
        self.active = True

    def stop(self) -> None:
        """Serve nobody any more, and say so; whoever subscribes later is told as well."""
        self.active = False
        for stream in self._streams:
            self._end_all(stream)
        self.flows = {}

    def _end_all(self, stream: int) -> None:
        for peer, cursor in list(self.cursors[stream].items()):
            self._end(stream, peer)
            self._context.send(peer, Ended(stream, cursor.token))

    def advertise(self) -> None:
        if not self.active:
            return
        counters = tuple((stream, self._visible(stream)) for stream in self._streams)
        for peer in self._peers:
            self._context.send(peer, Advertisement(counters))

    def on_subscribe(self, sender: Address, message: Subscribe) -> None:
        if sender not in self._peers or message.stream not in self.cursors or message.after < 0:
            self._context.trace("subscription refused", sender=sender, stream=message.stream)
            return
        if not self.active:
            self._context.send(sender, Ended(message.stream, message.token))
            return
        self._end(message.stream, sender)
        flow = self.flows.setdefault(sender, Flow())
        self.cursors[message.stream][sender] = Cursor(message.token, message.after + 1, flow)
        self._push_waiting(sender)
        self._push(message.stream, sender)

    def on_unsubscribe(self, sender: Address, message: Unsubscribe) -> None:
        if self._cursor(sender, message) is not None:
            self._end(message.stream, sender)
            self._push_waiting(sender)

    def on_ack(self, sender: Address, message: Ack) -> None:
        cursor = self._cursor(sender, message)
        if cursor is not None:
            cursor.acknowledged(message.upto)
            self._push_waiting(sender)
            self._push(message.stream, sender)

    def on_link_down(self, peer: Address) -> None:
        """What was in flight may be lost; the subscriber starts anew from its counter."""
        for subscribers in self.cursors.values():
            subscribers.pop(peer, None)
        self.flows.pop(peer, None)

    def advanced(self, stream: int) -> None:
        """There may be more to see of this stream."""
        for peer in list(self.cursors.get(stream, ())):
            self._push(stream, peer)

    def _cursor(self, sender: Address, message: Unsubscribe | Ack) -> Cursor | None:
        cursor = self.cursors.get(message.stream, {}).get(sender)
        return cursor if cursor is not None and cursor.token == message.token else None

    def _end(self, stream: int, peer: Address) -> None:
        """What was in flight leaves room: `_push_waiting` is for the caller, who may have more to say
        first."""
        cursor = self.cursors[stream].pop(peer, None)
        if cursor is not None:
            cursor.acknowledged(cursor.following)
            self.flows[peer].waiting.pop(stream, None)

    def _push_waiting(self, peer: Address) -> None:
        """Streams that waited for room that another had, those first that have waited longest."""
        waiting = self.flows[peer].waiting
        for stream in list(waiting):
            if stream in waiting:  # else a stream before it has ended, and so it has had its turn
                del waiting[stream]
                self._push(stream, peer)

    def _push(self, stream: int, peer: Address) -> None:
        cursor = self.cursors[stream].get(peer)
        if cursor is None:
            return
        flow, config = self.flows[peer], self._config
        upto = self._visible(stream)
        while cursor.following <= upto and cursor.in_flight_messages < config.window_messages:
            room = config.window_bytes - cursor.in_flight_bytes
            if room <= 0:
                return
            room = min(room, config.peer_window_bytes - flow.in_flight_bytes)
            if room <= 0:
                flow.waiting[stream] = None
                return
            try:
                batches = self._history.read(stream, cursor.following, min(room, config.message_bytes), upto)
            except HistoryTruncated as lost:
                self._end(stream, peer)
                self._context.send(peer, Unserved(stream, cursor.token, lost.first, lost.last))
                self._push_waiting(peer)
                return
            if not batches:
                return
            cursor.sent(batches[-1].last, sum(batch.virtual_size for batch in batches))
            self._context.send(peer, Events(stream, cursor.token, tuple(batches)))

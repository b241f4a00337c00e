"""The receiving half: choose one source for each remote stream, take its events.

The rule is the paper's (Fig. 1, rcvAdvertisement): the stream goes to whoever advertises

    cnt > expects.seq + C / (T - expects.time)

where `expects` is the source with the counter and the time of its last advertisement that passed. Two things
are added: nobody gets the stream who is not ahead of ourselves, which makes cycles impossible; and a source
is forgotten when the channel with it breaks or when it does not send what it promised. docs/proxy-level.md
has the argument.
"""

from collections.abc import Callable, Iterable

import msgspec

from qanat.events.errors import LocalError, QanatError
from qanat.events.tombstones import tombstone
from qanat.kernel import Address, Context
from qanat.protocols.history import History
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

Taken = Callable[[int, int], None]
"""Told after events were stored: the stream, and its counter before."""


class Expects(msgspec.Struct):
    """The paper's `expects` for one stream, and what the subscription behind it needs."""

    seq: int
    source: Address | None = None
    time_us: int = 0
    token: int = 0
    """Of the present subscription; counts up from a number of this life's own, so that none of an earlier
    one, nor of an earlier life, is taken for it."""
    heard_us: int = 0
    """When the source last sent events, or was chosen, or had nothing more to send."""
    stalls: int = 0
    """How often in a row a source was given up for sending nothing."""
    unserved: dict[Address, int] = {}
    """Sources that have dropped what we need, with the last number that they lack."""
    stuck_us: int | None = None
    """Since when there is no source but such."""


def switches(counter: int, seq: int, elapsed_us: int, c_event_us: int) -> bool:
    """counter > seq + C / elapsed, in whole numbers; never at elapsed 0, where the right side is infinite."""
    return (counter - seq) * elapsed_us > c_event_us


class Receiving:
    """`streams` are the remote ones. Nothing of a stream is taken but from its present subscription."""

    def __init__(
        self,
        context: Context,
        config: ProxyLevelConfig,
        history: History,
        streams: Iterable[int],
        peers: Iterable[Address],
        taken: Taken,
    ) -> None:
        self._context = context
        self._history = history
        self._taken = taken
        self._peers = frozenset(peers)
        self._c_event_us = round(config.c_event_s * 1_000_000)
        self._stall_us = round(config.stall_ms * 1000)
        self._first_token = context.rng.getrandbits(48)
        self.expects = {stream: self._new(stream) for stream in sorted(streams)}
        """By stream; for checkers and status to read."""
        self.active = True

    def _new(self, stream: int) -> Expects:
        return Expects(self._history.counter(stream), token=self._first_token)

    def set_peers(self, peers: Iterable[Address]) -> None:
        """Who may be a source; streams that came from others look for a new one."""
        self._peers = frozenset(peers)
        for stream, expects in self.expects.items():
            if expects.source is not None and expects.source not in self._peers:
                self._forget(stream, expects, tell=True)

    def knows(self, peer: Address) -> bool:
        return peer in self._peers

    def set_streams(self, streams: Iterable[int]) -> None:
        """Which streams are remote; those that are new look for a source."""
        wanted = frozenset(streams)
        for stream, expects in self.expects.items():
            if stream not in wanted:
                self._forget(stream, expects, tell=True)
        self.expects = {stream: self.expects.get(stream) or self._new(stream) for stream in sorted(wanted)}

    def start(self) -> None:
        """Take advertisements from now on, from our own counters; also after `stop`. Tokens go on rising."""
        for stream, expects in self.expects.items():
            self._forget(stream, expects, tell=False)
            expects.stalls, expects.unserved, expects.stuck_us = 0, {}, None
        self.active = True

    def stop(self) -> None:
        """Take nothing any more: another replica of this region does."""
        for stream, expects in self.expects.items():
            self._forget(stream, expects, tell=True)
        self.active = False

    def on_advertisement(self, now_us: int, sender: Address, message: Advertisement) -> None:
        """rcvAdvertisement; `now_us` is T."""
        if sender not in self._peers or not self.active:
            return
        for stream, counter in message.counters:
            expects = self.expects.get(stream)
            if expects is None:
                continue
            if expects.source is None:
                ahead = counter > expects.seq
            else:
                ahead = switches(counter, expects.seq, now_us - expects.time_us, self._c_event_us)
            if not ahead:
                continue
            if expects.source != sender and not self._choose(now_us, stream, expects, sender, counter):
                continue
            expects.seq, expects.time_us = counter, now_us

    def on_events(self, now_us: int, sender: Address, message: Events) -> None:
        """addRemoteEvent, for each event of the batches."""
        expects = self._subscription(sender, message)
        if expects is None:
            return
        stream = message.stream
        before = self._history.counter(stream)
        try:
            for batch in message.batches:
                if batch.stream != stream:
                    raise QanatError(f"a batch of stream {batch.stream:#x} among those of {stream:#x}")
                self._history.append_numbered(batch)
        except QanatError as error:
            # The peer's mistake, or a full disk here: either way the stream is asked for again, from the
            # counter.
            self._context.trace("events refused", sender=sender, stream=stream, reason=str(error))
            self._forget(stream, expects, tell=True)
        else:
            self._context.send(sender, Ack(stream, message.token, self._history.counter(stream)))
        if self._history.counter(stream) > before:
            expects.heard_us, expects.stalls = now_us, 0
            self._taken(stream, before)

    def on_unserved(self, sender: Address, message: Unserved) -> bool:
        """The source no longer has what we need: others may. False if that was another subscription."""
        expects = self._subscription(sender, message)
        if expects is None:
            return False
        expects.unserved[sender] = message.last
        self._forget(message.stream, expects, tell=False)
        return True

    def on_ended(self, sender: Address, message: Ended) -> None:
        """The source serves nobody any more; whoever does will advertise."""
        expects = self._subscription(sender, message)
        if expects is not None:
            self._forget(message.stream, expects, tell=False)

    def on_link_down(self, peer: Address) -> None:
        """Events in flight are lost: ask again, from our own counter, whoever advertises more."""
        for stream, expects in self.expects.items():
            expects.unserved.pop(peer, None)
            if expects.source == peer:
                self._forget(stream, expects, tell=False)

    def on_tick(self, now_us: int) -> None:
        """Give up sources that promised events and sent none for long: the rule alone would wait for them for
        ever."""
        for stream, expects in self.expects.items():
            if expects.source is None or expects.seq <= self._history.counter(stream):
                expects.heard_us = now_us
            elif now_us - expects.heard_us > self._stall_us << min(expects.stalls, 6):
                expects.stalls += 1
                self._context.trace("source stalled", stream=stream, source=expects.source)
                self._forget(stream, expects, tell=True)
            self._look_for_what_was_dropped(now_us, stream, expects)

    def _look_for_what_was_dropped(self, now_us: int, stream: int, expects: Expects) -> None:
        """Whoever has what comes next may come yet. If nobody does, it was dropped everywhere: we go on
        behind it, with a tombstone in its place."""
        own = self._history.counter(stream)
        lacked = [last for last in expects.unserved.values() if last > own]
        if expects.source is not None or not lacked or not self.active:
            expects.stuck_us = None
        elif expects.stuck_us is None:
            expects.stuck_us = now_us
        elif now_us - expects.stuck_us > self._stall_us:
            expects.stuck_us = None
            missing = tombstone(stream, own + 1, min(lacked))
            self._context.trace("dropped everywhere", stream=stream, first=own + 1, last=min(lacked))
            try:
                self._history.append_numbered(missing)
            except LocalError as error:  # a full disk: later
                self._context.trace("not stored", stream=stream, reason=str(error))
                return
            self._forget(stream, expects, tell=False)
            self._taken(stream, own)

    def _choose(self, now_us: int, stream: int, expects: Expects, sender: Address, counter: int) -> bool:
        """Subscribe to `sender`, from our own counter on, if it has something for us."""
        if not self._is_of_use(stream, expects, sender, counter):
            return False
        own = self._history.counter(stream)
        if expects.source is not None:
            self._context.send(expects.source, Unsubscribe(stream, expects.token))
        expects.token += 1
        self._context.trace("source", stream=stream, source=sender, after=own)
        self._context.send(sender, Subscribe(stream, own, expects.token))
        expects.source, expects.heard_us = sender, now_us
        return True

    def _is_of_use(self, stream: int, expects: Expects, sender: Address, counter: int) -> bool:
        """Ahead of ourselves, and not one that has dropped what comes next for us."""
        own = self._history.counter(stream)
        return counter > own and expects.unserved.get(sender, 0) <= own

    def _forget(self, stream: int, expects: Expects, *, tell: bool) -> None:
        """No source any more: the next to advertise more than we have gets the stream."""
        if tell and expects.source is not None:
            self._context.send(expects.source, Unsubscribe(stream, expects.token))
        expects.source, expects.seq = None, self._history.counter(stream)

    def _subscription(self, sender: Address, message: Events | Unserved | Ended) -> Expects | None:
        expects = self.expects.get(message.stream)
        if expects is None or expects.source != sender or expects.token != message.token:
            return None
        return expects

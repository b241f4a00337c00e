"""Giving a stream's events to whoever listens, from a log.

Subscribers at the live edge are *live*: each new chunk is framed once and written to all of them. A
subscriber whose connection is full or whose credit is used up leaves them; it is then read for from the log,
at its own pace, until it is back at the edge, together with others who are near it (`trailing`). So a slow
one costs the others nothing, and no queue grows for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.events.filters import Filter
from qanat.log import StreamLog
from qanat.log.errors import CorruptLog, OutOfDescriptors
from qanat.log.reader import Chunk, Truncated
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.serving.alive_reading import LivingReading
from qanat.serving.filter_cost import AT_ONCE, cost
from qanat.serving.live_filters import Listeners
from qanat.serving.refusals import refuse
from qanat.serving.side_thread import SEARCHING
from qanat.serving.subscriber import (
    Subscriber,
    all_passing,
    chunk_frame,
    events_frame,
    rows_of,
    silence,
)
from qanat.serving.syncing import AGAIN_S
from qanat.serving.trailing import Trailing
from qanat.wire.frame import Bytes
from qanat.wire.streams import LOST, Lost, encode_control

log = logging.getLogger("qanat.streams")

READ_BYTES = 1024 * 1024
"""One read for a subscriber that catches up: large enough to be all payload, small enough that others get
their turn."""
_JOINED_BYTES = 16 * 1024
"""Frames up to here are put together before they are sent to many: one copy is cheaper than a gathered write
for each."""
_AT_ONCE_BYTES = 64 << 20
"""Written to live subscribers in a row, some tens of milliseconds; the others have theirs in turns, between
what else there is to do."""
_HEAVY_BYTES = 64 * 1024
"""One read for a filter that takes long: others have theirs asked in between."""
_TURN_S = 0.01
_SILENCE_MS = 1_000
"""How long a filtered subscriber may go without hearing that nothing matched; it resumes from there after a
break."""


class Delivery:
    """The listeners of one stream; lives on the event loop. Whoever makes events readable calls `fan_out`.

    Events are shown up to `readable` and not beyond: by default as far as the log itself lets them be read.
    """

    def __init__(self, stream_log: StreamLog) -> None:
        self.log = stream_log
        self.subscribers: set[Subscriber] = set()
        self.watchers: set[Subscriber] = set()
        """Who subscribed without credit: nothing is sent to them, but they hear when another replica
        serves."""
        self.delivered_bytes = 0
        self.on_readable: Callable[[], None] | None = None
        """Called when more may be shown, for whoever passes it on by another way."""
        self._loop = asyncio.get_running_loop()
        self._edge = self.readable
        """All live subscribers were given everything up to here."""
        self._live: dict[Subscriber, None] = {}
        self._live_filtered: dict[Subscriber, None] = {}
        self._live_alone: dict[Subscriber, None] = {}
        """At the edge, with filters that are asked each by itself: they are read for when it moves."""
        self._ahead: dict[Subscriber, None] = {}
        """Who wants to begin beyond the edge: it waits until the edge is there."""
        self._listeners = Listeners()
        self._to_pump: deque[Subscriber] = deque()
        self._pumping = False
        self._silence: asyncio.TimerHandle | None = None
        self.alone_reads = self.alone_bytes = 0
        """What was read for one subscriber alone."""
        self.trailing = Trailing(self, self._place)
        self.living = LivingReading(self)

    @property
    def edge(self) -> int:
        return self._edge

    @property
    def readable(self) -> int:
        """The highest sequence number that may be shown."""
        return self.log.readable

    def read(self, start: int, size: int = READ_BYTES) -> Chunk | Truncated:
        return self.log.read(start, size)

    def read_on(self, start: int, size: int = READ_BYTES) -> Chunk | Truncated:
        """As `read`; nothing while no file can be opened, and the edge is looked at again."""
        try:
            return self.read(start, size)
        except OutOfDescriptors:
            self._loop.call_later(AGAIN_S, self.fan_out)
            return Chunk([], start, start - 1)

    def damaged(self, error: CorruptLog) -> LocalError:
        """A read found damage: what its readers are told."""
        log.error("the log is damaged", extra={"stream": self.log.stream, "reason": str(error)})
        return error

    # --- subscribing --------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        if subscriber.credit > 0:
            self.subscribers.add(subscriber)
            self._place(subscriber)
        else:
            self.watchers.add(subscriber)

    def subscribe_alive(self, subscriber: Subscriber) -> None:
        """Once it is known what is dead, and leaving that out up to what is the end now."""
        self.living.begin(subscriber)

    def _place(self, subscriber: Subscriber) -> None:
        """At the edge it is live, beyond it waits; otherwise it is read for. One that wants no more than a
        range is never live."""
        if subscriber.at <= subscriber.alive_upto:
            self.pump(subscriber)
        elif subscriber.done:
            self._finish(subscriber)
        elif subscriber.at > self._edge + (not subscriber.upto):
            self._ahead[subscriber] = None
        elif subscriber.at > self._edge:
            if subscriber.filter is None:
                self._live[subscriber] = None
            elif self._listeners.takes(subscriber):
                self._live_filtered[subscriber] = None
                self._listeners.listen(subscriber, subscriber.filter)
            else:
                self._live_alone[subscriber] = None
        else:
            self.pump(subscriber)

    def _finish(self, subscriber: Subscriber) -> None:
        """It has its range; with a filter it cannot know unless it is told."""
        self.subscribers.discard(subscriber)
        if subscriber.filter is not None and subscriber.silent_from <= subscriber.upto:
            self._send_silence(subscriber)

    def _leave_edge(self, subscriber: Subscriber) -> None:
        self._live.pop(subscriber, None)
        self._live_alone.pop(subscriber, None)
        self._ahead.pop(subscriber, None)
        if self._live_filtered.pop(subscriber, 0) is None:
            self._listeners.rest(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.discard(subscriber)
        self.watchers.discard(subscriber)
        self._leave_edge(subscriber)
        self._listeners.forget(subscriber)
        self.trailing.remove(subscriber)
        self.living.remove(subscriber)

    def end_subscription(self, subscriber: Subscriber, error: LocalError) -> None:
        """It is not shown here any more, and is told why."""
        self.unsubscribe(subscriber)
        subscriber.end()
        refuse(subscriber.connection, subscriber.number, error)

    def end_subscriptions(self, error: LocalError) -> None:
        """It is not shown here any more: whoever listens is told."""
        for subscriber in (*self.subscribers, *self.watchers, *self.living.waiting):
            self.end_subscription(subscriber, error)

    # --- delivering -----------------------------------------------------------------------------------

    def fan_out(self) -> None:
        """Gives the live subscribers what became readable."""
        while self._edge < self.readable:
            if not self._live and not self._live_filtered:
                self._edge = self.readable
                break
            try:
                chunk = self.read_on(self._edge + 1)
            except CorruptLog as error:
                why = self.damaged(error)
                for subscriber in (*self._live, *self._live_filtered):
                    self.end_subscription(subscriber, why)
                continue
            if isinstance(chunk, Truncated):
                self._tell_lost(chunk)
                continue
            if not chunk.data:
                break
            if self._live:
                self._fan_out_all(chunk)
            if self._live_filtered:
                self._fan_out_filtered(chunk)
            self._edge = chunk.last
            if self._ahead:
                self._place_ahead()
        if self._ahead:
            self._place_ahead()
        for subscriber in [each for each in self._live_alone if each.at <= self._edge]:
            del self._live_alone[subscriber]
            self.pump_soon(subscriber)
        if self.on_readable is not None:
            self.on_readable()

    def _place_ahead(self) -> None:
        ahead, self._ahead = self._ahead, {}
        for subscriber in ahead:
            self._place(subscriber)

    def _fan_out_all(self, chunk: Chunk) -> None:
        size = chunk.size
        frames: dict[tuple[int, bool], list[Bytes]] = {}
        after = chunk.last + 1
        slow = []
        left = _AT_ONCE_BYTES
        for subscriber in self._live:
            if left <= 0:
                slow.append(subscriber)
                self.pump_soon(subscriber)
            elif subscriber.credit > 0 and subscriber.connection.writable:
                key = subscriber.number, subscriber.files
                parts = frames.get(key)
                if parts is None:
                    parts = chunk_frame(key[0], chunk, files=key[1])
                    if size <= _JOINED_BYTES:  # once, and not again for each of a thousand subscribers
                        parts = [b"".join(parts)]
                    frames[key] = parts
                subscriber.connection.send_parts(parts)
                left -= 0 if subscriber.files else size
                subscriber.credit -= size
                subscriber.at = after
            else:
                slow.append(subscriber)
        self.delivered_bytes += size * (len(self._live) - len(slow))
        for subscriber in slow:
            self._leave_edge(subscriber)

    def _fan_out_filtered(self, chunk: Chunk) -> None:
        slow = [subscriber for subscriber in self._live_filtered if not subscriber.ready]
        for subscriber in slow:
            self._leave_edge(subscriber)
        found = self._listeners.find(rows_of(chunk, self._edge + 1))
        if found is None:  # each by itself then, in turns
            for subscriber in list(self._live_filtered):
                self._leave_edge(subscriber)
                self.pump_soon(subscriber)
            return
        left = _AT_ONCE_BYTES
        for rows, listeners, last in found:
            for subscriber in list(listeners):
                if left > 0:
                    subscriber.send_filtered([rows], last)
                    left -= rows.size
                else:
                    self._leave_edge(subscriber)
                    self.pump_soon(subscriber)
        for subscriber in self._live_filtered:
            subscriber.at = chunk.last + 1
        if self._live_filtered:
            self.tell_silence_later()

    def _tell_silence(self) -> None:
        """Who was sent nothing for a while hears up to where nothing matched."""
        self._silence = None
        waiting = [s for s in self.subscribers if s.filter is not None and s.silent_from < s.at]
        for subscriber in waiting:
            if subscriber.ready:
                self._send_silence(subscriber)
        if waiting:
            self.tell_silence_later()

    def _send_silence(self, subscriber: Subscriber) -> None:
        quiet = silence(self.log.stream, subscriber.silent_from, subscriber.at - 1).encode()
        subscriber.send(events_frame(subscriber.number, [quiet]), len(quiet))
        subscriber.silent_from = subscriber.at

    def tell_now(self, subscriber: Subscriber) -> None:
        """What was left out at the end of what it has."""
        if subscriber.silent_from < subscriber.at:
            self._send_silence(subscriber)

    def tell_silence_later(self) -> None:
        if self._silence is None:
            self._silence = self._loop.call_later(_SILENCE_MS / 1000, self._tell_silence)

    def pump(self, subscriber: Subscriber) -> None:
        """Reads one piece for a subscriber that is behind, and comes back for more after the others had their
        turn."""
        subscriber.scheduled = False
        if subscriber in self.watchers and subscriber.credit > 0:
            self.watchers.discard(subscriber)
            self.subscribe(subscriber)
            return
        if subscriber not in self.subscribers or not subscriber.ready or subscriber.searching:
            return
        if subscriber in self._live or subscriber in self._live_filtered or subscriber in self._ahead:
            return
        if subscriber.alive_upto:
            if not self.living.serve(subscriber):
                self._place(subscriber)
            return
        if subscriber.at > self._edge:
            self._place(subscriber)
            return
        if self.trailing.serve(subscriber):
            return
        try:
            chunk = self.read_on(subscriber.at, _HEAVY_BYTES if subscriber.heavy else READ_BYTES)
        except CorruptLog as error:
            self.end_subscription(subscriber, self.damaged(error))
            return
        if isinstance(chunk, Truncated):
            self.lost(subscriber, chunk)
        elif chunk.data:
            self.alone_reads += 1
            self.alone_bytes += chunk.size
            self._send_chunk(subscriber, chunk)
        else:
            self._loop.call_later(AGAIN_S, self.pump_soon, subscriber)
            return
        if not subscriber.searching:
            self._go_on(subscriber)

    def _go_on(self, subscriber: Subscriber) -> None:
        if subscriber.done or subscriber.at > self._edge:
            self._place(subscriber)
        elif subscriber.ready:
            self.pump_soon(subscriber)

    def pump_soon(self, subscriber: Subscriber) -> None:
        if not subscriber.scheduled:
            subscriber.scheduled = True
            self._to_pump.append(subscriber)
            if not self._pumping:
                self._pumping = True
                self._loop.call_soon(self._pump_turn)

    def _pump_turn(self) -> None:
        """As many as there is time for before others have their turn."""
        until_s = perf_counter() + _TURN_S
        try:
            while self._to_pump:
                self.pump(self._to_pump.popleft())
                if perf_counter() > until_s:
                    break
        finally:
            self._pumping = bool(self._to_pump)
            if self._pumping:
                self._loop.call_soon(self._pump_turn)

    def _send_chunk(self, subscriber: Subscriber, chunk: Chunk) -> None:
        if subscriber.filter is None:
            size = chunk.size
            subscriber.send(chunk_frame(subscriber.number, chunk, files=subscriber.files), size)
            subscriber.at = chunk.last + 1
            self.delivered_bytes += size
            return
        batches = rows_of(chunk, subscriber.at)
        self.ask(
            subscriber,
            subscriber.filter,
            batches,
            partial(self._send_passed, subscriber, chunk.last),
            self._go_on,
        )

    def _send_passed(self, subscriber: Subscriber, last: int, passed: list[Batch]) -> None:
        subscriber.send_filtered(passed, last)
        if not passed:
            self.tell_silence_later()

    def ask(
        self,
        subscriber: Subscriber,
        where: Filter,
        batches: list[Batch],
        take: Callable[[list[Batch]], None],
        go_on: Callable[[Subscriber], None],
    ) -> None:
        """`take` is told the rows that pass: before this returns, or, if it takes long, when they were found
        beside the loop, and then it goes on."""
        if cost(where, batches) <= AT_ONCE:
            take(all_passing(batches, where))
            return

        def found(passed: list[Batch] | Exception) -> None:
            subscriber.searching = False
            if subscriber not in self.subscribers:
                return
            if isinstance(passed, Exception):
                log.error("a filter failed", exc_info=passed, extra={"stream": self.log.stream})
                self.end_subscription(subscriber, LocalError(f"the filter failed: {type(passed).__name__}"))
                return
            take(passed)
            go_on(subscriber)

        subscriber.searching = True
        SEARCHING.submit(subscriber.connection, partial(all_passing, batches, where), found)

    def lost(self, subscriber: Subscriber, lost: Truncated) -> None:
        message = Lost(subscriber.number, lost.first, lost.last)
        subscriber.connection.send(LOST, STREAMS_CHANNEL, encode_control(message))
        subscriber.at = subscriber.silent_from = lost.last + 1

    def _tell_lost(self, lost: Truncated) -> None:
        """Retention overtook the edge itself, because nobody was there to read."""
        for subscriber in (*self._live, *self._live_filtered):
            self.lost(subscriber, lost)
        self._edge = lost.last

    # --- care ---------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """Subscriptions at the edge."""
        return len(self._live) + len(self._live_filtered) + len(self._live_alone)

    def largest_lag(self) -> int:
        """Events that the slowest subscription is behind."""
        readable = self.readable
        return max((readable - subscriber.at + 1 for subscriber in self.subscribers), default=0)

    def stop_delivery(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self.living.stop()
        self.trailing.stop()

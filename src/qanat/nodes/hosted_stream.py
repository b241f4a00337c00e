"""A stream at its server: its log, who publishes to it, and who listens.

Subscribers at the live edge are *live*: each new chunk is framed once and written to all of them. A subscriber whose
connection is full or whose credit is used up leaves them; it is then read for from the log, at its own pace, until it is
back at the edge. So a slow one costs the others nothing, and no queue grows for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.events.filters import Filter, FilterIndex
from qanat.events.tombstones import gc_event
from qanat.log import StreamLog
from qanat.log.reader import Chunk, Truncated
from qanat.nodes.subscriber import Subscriber, chosen, events_frame, passing, rows_of, silence
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.wire.frame import Bytes
from qanat.wire.streams import LOST, REFUSED, STORED, Lost, Refused, Stored, encode_control

log = logging.getLogger("qanat.streams")

_READ_BYTES = 1024 * 1024
"""One read for a subscriber that catches up: large enough to be all payload, small enough that others get their turn."""
_UNSYNCED_BYTES = 64 * 1024 * 1024
"""Appended and not yet synced, per stream; above it publishers are not read from until the disk has caught up."""
_SILENCE_MS = 1_000
"""How long a filtered subscriber may go without hearing that nothing matched; it resumes from there after a break."""


class HostedStream:
    """Lives on the event loop; only syncs and collections run in worker threads."""

    def __init__(self, name: str, stream_log: StreamLog, pool: Executor) -> None:
        self.name, self.log, self._pool = name, stream_log, pool
        self.mode = stream_log.config.mode
        self.subscribers: set[Subscriber] = set()
        self.published_events = self.published_bytes = self.duplicate_events = 0
        self.delivered_bytes = 0
        self.failed = ""
        """Why the stream takes no more events, if it does not."""
        self._loop = asyncio.get_running_loop()
        self._edge = stream_log.readable
        """All live subscribers were given everything up to here."""
        self._live: dict[Subscriber, None] = {}
        self._live_filtered: dict[Subscriber, None] = {}
        self._index = FilterIndex()
        self._filter_ids: dict[Filter, int] = {}
        self._listeners: dict[int, dict[Subscriber, None]] = {}
        self._next_filter_id = 0
        self._unanswered: deque[tuple[Connection, Stored | Refused]] = deque()
        self._unsynced_bytes = 0
        self._held: dict[Connection, None] = {}
        self._syncing = False
        self._timer: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None

    # --- publishing ---------------------------------------------------------------------------------

    def publish(self, connection: Connection, request: int, batches: list[Any]) -> None:
        """Appends, and answers: at once, or after the sync that covers it."""
        first = last = dropped = 0
        try:
            for batch in batches:
                appended = self.log.append(batch)
                first, last = first or appended.first, appended.last
                dropped += appended.dropped
                self.published_bytes += batch.size
                self._unsynced_bytes += batch.size
        except LocalError as error:
            error.definite = error.definite and not first  # an earlier batch of the same publish is stored
            if self._unanswered:
                self._unanswered.append(
                    (connection, refusal(request, error))
                )  # answers keep the order of publishes
            else:
                refuse(connection, request, error)
            return
        self.published_events += max(0, last - first + 1)
        self.duplicate_events += dropped
        stored = Stored(request, first, last, dropped)
        if self.mode == "always":
            self._unanswered.append((connection, stored))
            self._sync_soon()
            if self._unsynced_bytes > _UNSYNCED_BYTES and connection.reading:
                connection.pause_reading()
                self._held[connection] = None
        else:
            connection.send(STORED, STREAMS_CHANNEL, encode_control(stored))
            if self.mode == "interval" and self._timer is None and not self._syncing:
                self._timer = self._loop.call_later(self.log.config.interval_ms / 1000, self._sync_soon)

    def _sync_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._syncing and not self.failed:
            self._syncing = True
            self._unsynced_bytes = 0
            future = self._loop.run_in_executor(self._pool, self.log.sync)
            future.add_done_callback(self._synced)

    def _synced(self, future: "asyncio.Future[int]") -> None:
        self._syncing = False
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        durable = future.result()
        while self._unanswered:
            connection, answer = self._unanswered[0]
            if isinstance(answer, Refused):
                connection.send(REFUSED, STREAMS_CHANNEL, encode_control(answer))
            elif answer.last <= durable:
                connection.send(STORED, STREAMS_CHANNEL, encode_control(answer))
            else:
                break
            self._unanswered.popleft()
        if self._unsynced_bytes <= _UNSYNCED_BYTES:
            held, self._held = self._held, {}
            for connection in held:
                connection.resume_reading()
        if self._unanswered:
            self._sync_soon()
        elif self.mode == "interval" and self._unsynced_bytes and self._timer is None:
            self._timer = self._loop.call_later(self.log.config.interval_ms / 1000, self._sync_soon)
        self.fan_out()

    def _fail(self, error: BaseException) -> None:
        """The disk failed under a sync: nothing more is stored here, and whoever waits is told that it is unknown."""
        self.failed = str(error)
        log.error("stream stopped", extra={"stream": self.name, "reason": self.failed})
        for connection, answer in self._unanswered:
            if isinstance(answer, Stored):
                answer = Refused(answer.request, "disk_failed", self.failed, False)
            connection.send(REFUSED, STREAMS_CHANNEL, encode_control(answer))
        self._unanswered.clear()
        held, self._held = self._held, {}
        for connection in held:
            connection.resume_reading()

    # --- subscribing --------------------------------------------------------------------------------

    def subscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.add(subscriber)
        self._place(subscriber)

    def _place(self, subscriber: Subscriber) -> None:
        """At the edge it is live; otherwise it is read for."""
        if subscriber.at > self._edge:
            if subscriber.filter is None:
                self._live[subscriber] = None
            else:
                self._live_filtered[subscriber] = None
                self._listen(subscriber, subscriber.filter)
        else:
            self.pump(subscriber)

    def _listen(self, subscriber: Subscriber, where: Filter) -> None:
        number = self._filter_ids.get(where)
        if number is None:
            number = self._filter_ids[where] = self._next_filter_id
            self._next_filter_id += 1
            self._index.add(number, where)
            self._listeners[number] = {}
        self._listeners[number][subscriber] = None

    def _leave_edge(self, subscriber: Subscriber) -> None:
        self._live.pop(subscriber, None)
        where = subscriber.filter
        if where is not None and self._live_filtered.pop(subscriber, 0) is None:
            number = self._filter_ids[where]
            listeners = self._listeners[number]
            listeners.pop(subscriber, None)
            if not listeners:
                self._index.remove(number)
                del self._listeners[number], self._filter_ids[where]

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.discard(subscriber)
        self._leave_edge(subscriber)

    def forget(self, connection: Connection) -> None:
        """The connection ended: nothing is held for it."""
        self._held.pop(connection, None)

    # --- delivery -----------------------------------------------------------------------------------

    def fan_out(self) -> None:
        """Gives the live subscribers what became readable."""
        while self._edge < self.log.readable:
            if not self._live and not self._live_filtered:
                self._edge = self.log.readable
                return
            chunk = self.log.read(self._edge + 1, _READ_BYTES)
            if isinstance(chunk, Truncated):
                self._tell_lost(chunk)
                continue
            if not chunk.data:
                return
            if self._live:
                self._fan_out_all(chunk)
            if self._live_filtered:
                self._fan_out_filtered(chunk)
            self._edge = chunk.last

    def _fan_out_all(self, chunk: Chunk) -> None:
        size = chunk.size
        frames: dict[int, list[Bytes]] = {}
        after = chunk.last + 1
        slow = []
        for subscriber in self._live:
            if subscriber.credit > 0 and subscriber.connection.writable:
                parts = frames.get(subscriber.number)
                if parts is None:
                    parts = frames[subscriber.number] = events_frame(subscriber.number, chunk.data)
                subscriber.connection.send_parts(parts)
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
        for batch in rows_of(chunk, self._edge + 1):
            for number, rows in self._matches(batch):
                for subscriber in self._listeners[number]:
                    subscriber.send_filtered([rows], batch.last)
        for subscriber in self._live_filtered:
            subscriber.at = chunk.last + 1
        if self._live_filtered:
            self._tell_silence_later()

    def _matches(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """(filter, its rows) for each filter that has any: all filters are asked at once."""
        offsets, ids = self._index.match(batch)
        rows = np.repeat(np.arange(batch.count), np.diff(offsets))
        order = np.argsort(ids, kind="stable")
        numbers, starts = np.unique(ids[order], return_index=True)
        groups = (
            dict(zip(numbers.tolist(), np.split(rows[order], starts[1:]), strict=True)) if len(ids) else {}
        )
        # GC events and tombstones go to everyone, so with one in the batch every filter has rows.
        for number in list(groups) if batch.kinds is None else list(self._listeners):
            mask = np.zeros(batch.count, bool)
            mask[groups.get(number, ())] = True
            taken = chosen(batch, mask)
            if taken is not None:
                yield number, taken

    def _tell_silence(self) -> None:
        """Who was sent nothing for a while hears up to where nothing matched."""
        self._silence = None
        waiting = [s for s in self.subscribers if s.filter is not None and s.silent_from < s.at]
        for subscriber in waiting:
            if subscriber.ready:
                quiet = silence(self.log.stream, subscriber.silent_from, subscriber.at - 1).encode()
                subscriber.send(events_frame(subscriber.number, [quiet]), len(quiet))
                subscriber.silent_from = subscriber.at
        if waiting:
            self._tell_silence_later()

    def _tell_silence_later(self) -> None:
        if self._silence is None:
            self._silence = self._loop.call_later(_SILENCE_MS / 1000, self._tell_silence)

    def pump(self, subscriber: Subscriber) -> None:
        """Reads one piece for a subscriber that is behind, and comes back for more after the others had their turn."""
        subscriber.scheduled = False
        if subscriber not in self.subscribers or not subscriber.ready or subscriber in self._live:
            return
        if subscriber in self._live_filtered:
            return
        chunk = self.log.read(subscriber.at, _READ_BYTES)
        if isinstance(chunk, Truncated):
            self._lost(subscriber, chunk)
        elif chunk.data:
            self._send_chunk(subscriber, chunk)
        if subscriber.at > self._edge:
            self._place(subscriber)
        elif subscriber.ready:
            self.pump_soon(subscriber)

    def pump_soon(self, subscriber: Subscriber) -> None:
        if not subscriber.scheduled:
            subscriber.scheduled = True
            self._loop.call_soon(self.pump, subscriber)

    def _send_chunk(self, subscriber: Subscriber, chunk: Chunk) -> None:
        if subscriber.filter is None:
            size = chunk.size
            subscriber.send(events_frame(subscriber.number, chunk.data), size)
            subscriber.at = chunk.last + 1
            self.delivered_bytes += size
            return
        batches = rows_of(chunk, subscriber.at)
        passed = [
            rows for rows in (passing(batch, subscriber.filter) for batch in batches) if rows is not None
        ]
        subscriber.send_filtered(passed, chunk.last)
        if not passed:
            self._tell_silence_later()

    def _lost(self, subscriber: Subscriber, lost: Truncated) -> None:
        message = Lost(subscriber.number, lost.first, lost.last)
        subscriber.connection.send(LOST, STREAMS_CHANNEL, encode_control(message))
        subscriber.at = subscriber.silent_from = lost.last + 1

    def _tell_lost(self, lost: Truncated) -> None:
        """Retention overtook the edge itself, because nobody was there to read."""
        for subscriber in (*self._live, *self._live_filtered):
            self._lost(subscriber, lost)
        self._edge = lost.last

    # --- care ---------------------------------------------------------------------------------------

    def expire(self, now_us: int) -> bool:
        """Under an age policy, publishes a GC event once the stream has been silent for that age; whether it did.

        While events come, each collects what is too old by its own time. In silence nobody would: then the owner
        says so in the stream itself, as Sprinkler's daily collection does, so that every region does the same.
        """
        age_ms, newest_us = self.log.config.policy.age_ms, self.log.newest_us
        if age_ms is None or newest_us is None or self.failed or newest_us > now_us - age_ms * 1000:
            return False
        stats = self.log.stats()
        if stats.rows - stats.dead_rows <= 1:  # the last such event itself
            return False
        self.log.append(gc_event(self.log.stream, f"older than {age_ms}ms", time_us=now_us))
        self._sync_soon()
        self.fan_out()
        return True

    def status(self) -> dict[str, Any]:
        """What a person wants to know of it."""
        return {
            "stream": self.name,
            "first": self.log.first,
            "next": self.log.next,
            "durable": self.log.durable,
            "durability": self.mode,
            "subscribers": len(self.subscribers),
            "live": len(self._live) + len(self._live_filtered),
            "largest_lag": self.largest_lag(),
            "published_events": self.published_events,
            "duplicate_events": self.duplicate_events,
            "failed": self.failed,
        }

    def largest_lag(self) -> int:
        """Events that the slowest subscription is behind."""
        readable = self.log.readable
        return max((readable - subscriber.at + 1 for subscriber in self.subscribers), default=0)

    async def settle(self) -> None:
        """Until everything published so far was answered."""
        while (self._syncing or self._unanswered) and not self.failed:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        for timer in (self._timer, self._silence):
            if timer is not None:
                timer.cancel()
        while self._syncing:
            await asyncio.sleep(0.001)
        await self._loop.run_in_executor(self._pool, self.log.close)


def refusal(request: int, error: LocalError) -> Refused:
    """Why not; the code is the error's name in the wire's own way of writing."""
    code = "".join("_" + c.lower() if c.isupper() else c for c in type(error).__name__).lstrip("_")
    return Refused(request, code, str(error), error.definite)


def refuse(connection: Connection, request: int, error: LocalError) -> None:
    connection.send(REFUSED, STREAMS_CHANNEL, encode_control(refusal(request, error)))

"""A stream at its server: publishes are appended here, and answered once one sync covers them all."""

import asyncio
import logging
from collections import deque
from concurrent.futures import Executor

import msgspec

from qanat.events.batch import Batch
from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.log import StreamLog
from qanat.log.errors import OutOfDescriptors
from qanat.runtime.connection import Connection
from qanat.runtime.service import STREAMS_CHANNEL
from qanat.serving.acknowledgements import Answer, Answers
from qanat.serving.disk_watch import Room
from qanat.serving.refusals import NoStream, PositionMissing, refusal, refuse
from qanat.serving.served_stream import ServedStream
from qanat.serving.staging import Stagings
from qanat.serving.syncing import AGAIN_S
from qanat.wire.streams import OPENED, STORED, Open, Opened, Publish, Refused, Stored, encode_control

log = logging.getLogger("qanat.streams")

_UNSYNCED_BYTES = 64 * 1024 * 1024
"""Appended and not yet synced, per stream; above it publishers are not read from until the disk has caught
up."""
_UNSYNCED_FILE_BYTES = 1024 * 1024
"""As which a file counts there that was taken over: its bytes were in the page cache before, and are, whoever
is not read from. The more files one sync covers, the fewer manifests are written."""


class HostedStream(ServedStream):
    """Lives on the event loop; only syncs and collections run in worker threads."""

    ordered = True

    def __init__(self, name: str, stream_log: StreamLog, pool: Executor) -> None:
        super().__init__(name, stream_log)
        self._pool = pool
        self._unanswered: deque[tuple[Connection, Answer]] = deque()
        self._unsynced_bytes = 0
        self._held: dict[Connection, None] = {}
        self._syncing = False
        self._timer: asyncio.TimerHandle | None = None
        self._stagings = Stagings(stream_log)
        self.removed = False
        """Its files are gone, or about to go."""
        self._room = Room(f"stream {name!r}")

    @property
    def mode(self) -> str:
        return self.log.config.mode

    def open(self, connection: Connection, message: Open) -> None:
        """Answers once all that the answer counts is as durable as the stream's events are: who goes on
        behind a position that is lost with the next power cut leaves out what stood there."""
        opened = self.opened(connection, message)
        staging = self._stagings.offer(connection, message)
        if staging is not None:
            opened = msgspec.structs.replace(opened, staging=staging)
        if self.mode == "always" and self.log.durable < self.log.next - 1:
            self._unanswered.append((connection, opened))
            self._sync_soon()
        else:
            connection.send(OPENED, STREAMS_CHANNEL, encode_control(opened))

    def publish(
        self,
        connection: Connection,
        request: int,
        batches: list[Batch],
        after: tuple[int, int] | None = None,
    ) -> bool:
        """Appends, and answers: at once, or after the sync that covers it."""
        first = last = dropped = size = 0
        try:
            self.writers.check(connection, batches)
            if after is not None:
                self._check_behind(batches[0], Position(*after))
            latest_us = self.latest_us
            for batch in batches:
                appended = self.log.append(batch, given=True, latest_us=latest_us)
                first, last = first or appended.first, appended.last
                dropped += appended.dropped
                size += batch.size
        except LocalError as error:
            error.definite = error.definite and not first  # an earlier batch of the same publish is stored
            if first:
                self.writers.took(connection, batches)
            self._refuse(connection, request, error)
            return bool(first)
        self.writers.took(connection, batches)
        return self._appended(connection, Stored(request, first, last, dropped), size, size)

    def publish_staged(self, connection: Connection, message: Publish) -> bool:
        name = message.staged
        try:
            self._stagings.check(connection, name)
        except LocalError as error:
            self._refuse(connection, message.request, error)
            return False
        try:
            size = self.log.staged_bytes(name)
            asks = message.after is not None or self.writers.several
            begins = self.log.staged(name, 1) if asks else []
            self.writers.check(connection, begins)
            if message.after is not None:
                self._check_behind(begins[0], Position(*message.after))
            if (appended := self.log.adopt(name, self.latest_us)) is not None:
                self.writers.took(connection, begins)
                unsynced = min(size, _UNSYNCED_FILE_BYTES)
                return self._appended(connection, Stored(message.request, *appended), size, unsynced)
            batches = self.log.staged(name)
            if any(batch.stream != self.log.stream for batch in batches):
                raise NoStream("a staged file has batches of another stream")
        except LocalError as error:
            self.log.discard(name)
            self._refuse(connection, message.request, error)
            return False
        self.log.discard(name)
        return self.publish(connection, message.request, batches, message.after)

    def _refuse(self, connection: Connection, request: int, error: LocalError) -> None:
        self._room.refused(error)
        if self._unanswered:  # answers keep the order of publishes
            self._unanswered.append((connection, refusal(request, error)))
        else:
            refuse(connection, request, error)

    def _appended(self, connection: Connection, stored: Stored, size: int, unsynced: int) -> bool:
        """Answers at once, or after the sync that covers it; whether there is something to `fan_out`."""
        self.published_bytes += size
        self._unsynced_bytes += unsynced
        self.published_events += max(0, stored.last - stored.first + 1)
        self.duplicate_events += stored.dropped
        if self._room.lacking:
            self._room.taken()
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
            return True
        return False

    def _check_behind(self, batch: Batch, after: Position) -> None:
        """What comes behind something that was refused or lost is not taken: it would hide that."""
        source = batch.source_names[0] if batch.source_names else ""
        known = self.log.position(source)
        if known < after:
            raise PositionMissing(
                f"this batch of source {source!r} comes behind {after}, but stream {self.name!r} has it up to"
                f" {known}: publish what lies between first"
            )

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
        if isinstance(error, OutOfDescriptors):
            self._timer = self._loop.call_later(AGAIN_S, self._sync_soon)
            return
        if error is not None:
            self._fail(error)
            return
        durable = future.result()
        answers = Answers()
        while self._unanswered and _covers(self._unanswered[0][1]) <= durable:
            answers.add(*self._unanswered.popleft())
        answers.send()
        if self.mode == "always" and not self._unanswered:
            self._unsynced_bytes = 0  # it began late enough to cover what came after it was asked for
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
        """The disk failed under a sync: nothing more is stored here, and whoever waits is told that it is
        unknown."""
        self.failed = str(error)
        log.error("stream stopped", extra={"stream": self.name, "reason": self.failed})
        answers = Answers()
        for connection, answer in self._unanswered:
            if not isinstance(answer, Refused):
                answer = Refused(answer.request, "disk_failed", self.failed, False)
            answers.add(connection, answer)
        answers.send()
        self._unanswered.clear()
        held, self._held = self._held, {}
        for connection in held:
            connection.resume_reading()

    def forget(self, connection: Connection) -> None:
        super().forget(connection)
        self._held.pop(connection, None)
        if not self.removed:
            self._stagings.forget(connection)

    def expire(self, now_us: int) -> bool:
        """Publishes the GC event that is due, if one is; whether it did."""
        event = None if self.failed else self.expiry(now_us)
        if event is None:
            return False
        self.log.append(event)
        self._sync_soon()
        self.fan_out()
        return True

    async def settle(self) -> None:
        """Until everything published so far was answered."""
        while (self._syncing or self._unanswered) and not self.failed:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        self.stop_delivery()
        if self._timer is not None:
            self._timer.cancel()
        while self._syncing:
            await asyncio.sleep(0.001)
        await self._loop.run_in_executor(self._pool, self.log.close)


def _covers(answer: Answer) -> int:
    """The sequence number up to which it promises that all is stored."""
    match answer:
        case Stored():
            return answer.last
        case Opened():
            return answer.next - 1
        case Refused():
            return 0

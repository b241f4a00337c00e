"""A stream as its clients see it, however it is stored."""

import time
from abc import abstractmethod
from typing import Any

from qanat.events.batch import Batch
from qanat.events.tombstones import gc_event
from qanat.log import StreamLog
from qanat.runtime.connection import Connection
from qanat.serving.delivery import Delivery
from qanat.serving.refusals import refuse
from qanat.serving.staging import NotStaged
from qanat.serving.writers import Writers
from qanat.wire.streams import Open, Opened, Publish


class ServedStream(Delivery):
    """Delivery, and what is counted of publishing."""

    ordered = False
    """Whether a publish may say behind what it comes."""

    def __init__(self, name: str, stream_log: StreamLog) -> None:
        super().__init__(stream_log)
        self.name = name
        self.published_events = self.published_bytes = self.duplicate_events = 0
        self.failed = ""
        """Why the stream takes no more events, if it does not."""
        self.writers = Writers()
        self._grew = (-1, 0.0)
        """The number that came next when somebody looked last, and since when it does, on a clock that nobody
        sets."""

    @abstractmethod
    def publish(
        self,
        connection: Connection,
        request: int,
        batches: list[Batch],
        after: tuple[int, int] | None = None,
    ) -> bool:
        """Takes batches of this stream, and answers STORED or REFUSED in the order of the publishes; whether
        there is something to `fan_out` once all that arrived together was taken. Where streams are `ordered`,
        batches that come behind a position (`after`) are refused if that is missing."""

    def publish_staged(self, connection: Connection, message: Publish) -> bool:
        """The same of a file that the publisher has laid down; only who offers that in its OPENED takes
        it."""
        refuse(connection, message.request, NotStaged(f"stream {self.name!r} takes no staged files here"))
        return False

    @abstractmethod
    def open(self, connection: Connection, message: Open) -> None:
        """Answers OPENED, with what of the source is stored."""

    def forget(self, connection: Connection) -> None:
        """The connection ended: nothing is held for it."""
        self.writers.forget(connection)

    @property
    def latest_us(self) -> int:
        """No event may be dated later now."""
        return time.time_ns() // 1000 + self.log.config.ahead_ms * 1000

    def opened(self, connection: Connection, message: Open) -> Opened:
        self.writers.opened(connection, message.source)
        sequence, index = self.log.position(message.source)
        mode = self.log.config.mode
        next_ = self.log.next
        return Opened(message.request, self.name, self.log.first, next_, mode, sequence, index, self.ordered)

    def expiry(self, now_us: int) -> Batch | None:
        """Under an age policy, the GC event that is due once the stream has been silent for that age.

        While events come, each collects what is too old by its own time. In silence nobody would: then the
        owner says so in the stream itself, as Sprinkler's daily collection does, so that every region does
        the same.

        A clock that is wrong must not make a stream silent that is not: for as long as clocks may differ,
        nothing has come here either. Nor is the event dated by that clock: it bears the time at which the
        newest one before it had that age.
        """
        config, newest_us = self.log.config, self.log.newest_us
        age_ms, silent_ms = config.policy.age_ms, self._silent_ms()
        if age_ms is None or newest_us is None or newest_us > now_us - age_ms * 1000:
            return None
        if silent_ms < min(age_ms, config.ahead_ms):
            return None
        stats = self.log.stats()
        if stats.rows - stats.dead_rows <= 1:  # the last such event itself
            return None
        return gc_event(self.log.stream, f"older than {age_ms}ms", time_us=newest_us + age_ms * 1000 + 1)

    def _silent_ms(self) -> float:
        """For how long nothing came, as far as this process has looked."""
        next_, now_s = self.log.next, time.monotonic()
        if next_ != self._grew[0]:
            self._grew = (next_, now_s)
        return (now_s - self._grew[1]) * 1000

    def _policy(self) -> dict[str, object]:
        """What of the policy is not the default, which collects nothing."""
        policy = self.log.config.policy
        named = {"by_key": policy.by_key, "keep_last": policy.keep_last, "age_ms": policy.age_ms}
        return {name: value for name, value in named.items() if value}

    def status(self) -> dict[str, Any]:
        """What a person wants to know of it."""
        return {
            "stream": self.name,
            "first": self.log.first,
            "next": self.log.next,
            "durable": self.log.durable,
            "durability": self.log.config.mode,
            "policy": self._policy(),
            "retain_bytes": self.log.config.retain_bytes,
            "retain_age_ms": self.log.config.retain_age_ms,
            "subscribers": len(self.subscribers),
            "live": self.live,
            "trailing": len(self.trailing.laggards),
            "caravans": len(self.trailing.caravans.all),
            "caravan_reads": self.trailing.reads,
            "caravan_read_bytes": self.trailing.read_bytes,
            "alone_reads": self.alone_reads,
            "alone_bytes": self.alone_bytes,
            "largest_lag": self.largest_lag(),
            "published_events": self.published_events,
            "duplicate_events": self.duplicate_events,
            "failed": self.failed,
        }

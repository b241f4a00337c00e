"""A stream in memory, with subscribers whose sockets are lists."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
from tests.unit.replica.test_chained_stream import FakeConnection

from qanat.events.batch import Batch, stream_id
from qanat.events.filters import parse
from qanat.log import LogConfig, StreamLog
from qanat.log.disk_memory import MemoryDisk
from qanat.log.errors import CorruptLog
from qanat.log.reader import Chunk, Truncated
from qanat.runtime.connection import Connection
from qanat.serving.caravan_settings import CaravanControl, CaravansConfig
from qanat.serving.delivery import READ_BYTES, Delivery
from qanat.serving.subscriber import Subscriber
from qanat.wire.control import Identity
from qanat.wire.streams import Lost

STREAM = stream_id("s")
SMALL: dict[str, Any] = {"read_bytes": 4_000, "near_bytes": 16_000, "wake_bytes": 32_000, "plan_ms": 5.0}
"""As large as a test's log is."""
PLENTY = 1 << 30


class Peer(FakeConnection):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.peer, self.remote = Identity(name=name, role="client"), "nowhere"

    @property
    def lost(self) -> list[tuple[int, int]]:
        return [(one.first, one.last) for one in self.said if isinstance(one, Lost)]


class Stream(Delivery):
    """Counts reads; can be cut, and damaged. Events are numbered payloads of 100 bytes, in batches of ten;
    `parity` is their attribute."""

    def __init__(self, events: int = 2_000, **config: Any) -> None:
        log = StreamLog.open(MemoryDisk(), "log", STREAM, LogConfig(mode="memory"))
        super().__init__(log)
        self.cut = 1
        self.damage = 0
        self.reads_seen: list[int] = []
        self.trailing.control = CaravanControl(CaravansConfig(**(SMALL | config)))
        self.grow(events)

    def grow(self, events: int) -> None:
        for start in range(0, events, 10):
            rows = range(self.log.next, self.log.next + min(10, events - start))
            payloads = [b"%0100d" % number for number in rows]
            parities = pa.array([number % 2 for number in rows])
            self.log.append(Batch.build(STREAM, payloads, attributes={"parity": parities}))
        self.fan_out()

    def read(self, start: int, size: int = READ_BYTES) -> Chunk | Truncated:
        self.reads_seen.append(start)
        if start < self.cut:
            return Truncated(start, self.cut - 1)
        if start <= self.damage:
            raise CorruptLog("log/1", 0, "a test says so", "mend it")
        return super().read(start, size)

    def join(
        self, name: str, at: int = 1, credit: int = PLENTY, where: str = "", upto: int = 0
    ) -> tuple[Peer, Subscriber]:
        peer = Peer(name)
        chosen = parse(where) if where else None
        subscriber = Subscriber(cast(Connection, peer), 1, at, credit, chosen, upto=upto)
        self.subscribe(subscriber)
        return peer, subscriber

    def give(self, subscriber: Subscriber, credit: int) -> None:
        subscriber.credit += credit
        self.pump(subscriber)


def numbers(peer: Peer, start: int = 1) -> list[int]:
    """As a client has them: it cuts off what it did not ask for, or has had, of the first batch of a
    frame."""
    found: list[int] = []
    for batch in peer.events:
        assert batch.last >= start, "a batch of which it needs nothing"
        found += [number for number in batch.seqs().tolist() if number >= start]
        start = batch.last + 1
    return found

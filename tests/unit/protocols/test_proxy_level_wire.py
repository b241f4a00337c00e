"""Three proxies by hand, with real stream logs on disk and real frames between them."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest

from qanat.events.batch import Batch
from qanat.events.tombstones import gc_event
from qanat.kernel import Address, Message
from qanat.log import LogConfig, OsDisk
from qanat.log.checker import Event, Grave, check_history, rows_of
from qanat.protocols.history import Synced
from qanat.protocols.proxy_level import ProxyLevel, ProxyLevelConfig, Publish, Streams, Unserved
from qanat.protocols.proxy_level.exchange import ADVERTISE
from qanat.serving.log_history import LogHistory
from qanat.wire.messages import MessageCodec

STREAM = 1
X, Y, Z = (Address(f"{name}/proxy-1") for name in "xyz")
CONFIG = ProxyLevelConfig(window_bytes=3000, message_bytes=1000)


class Post:
    """Carries frames between machines; a cut pair loses them."""

    def __init__(self) -> None:
        self.codec: MessageCodec[Message] = MessageCodec(ProxyLevel.message_types)
        self.machines: dict[Address, ProxyLevel] = {}
        self.frames: deque[tuple[Address, Address, bytes, bytes]] = deque()
        self.cut: set[frozenset[Address]] = set()

    def deliver_all(self) -> None:
        while self.frames:
            source, target, control, attachment = self.frames.popleft()
            if frozenset((source, target)) not in self.cut:
                message = self.codec.decode(control, attachment)
                self.machines[target].on_message(0, source, message)  # type: ignore[arg-type]

    def round(self) -> None:
        for machine in self.machines.values():
            machine.on_timer(0, ADVERTISE)
        self.deliver_all()


class PostContext:
    def __init__(self, address: Address, post: Post) -> None:
        self.address, self._post = address, post
        self.rng = random.Random(1)
        self.delivered: list[object] = []

    def wall_us(self) -> int:
        return 0

    def send(self, to: Address, message: Message) -> None:
        control, attachments = self._post.codec.encode(message)
        self._post.frames.append((self.address, to, control, b"".join(attachments)))

    def cast(self, to: Address, message: Message) -> None:
        self.send(to, message)

    def set_timer(self, name: str, after_us: int) -> None: ...

    def cancel_timer(self, name: str) -> None: ...

    def persist(self, record: bytes) -> None: ...

    def when_persisted(self, name: str) -> None: ...

    def deliver(self, item: object) -> None:
        self.delivered.append(item)

    def trace(self, what: str, **fields: object) -> None: ...


def proxy(
    post: Post, address: Address, folder: Path, **log: object
) -> tuple[ProxyLevel, LogHistory, PostContext]:
    config = LogConfig(**log)  # type: ignore[arg-type]
    history = LogHistory(OsDisk(), str(folder / address.replace("/", "-")), lambda stream: config)
    context = PostContext(address, post)
    streams = Streams(address.split("/")[0], {STREAM: "x"})
    machine = post.machines[address] = ProxyLevel(context, CONFIG, history, streams, [X, Y, Z])
    machine.on_start(0, ())
    return machine, history, context


def publish(machine: ProxyLevel, history: LogHistory, batch: Batch, published: list[Event]) -> None:
    first = history.counter(STREAM) + 1
    machine.on_request(0, Publish(0, batch))
    published += [row for row in rows_of(history.read(STREAM, first, 1)) if isinstance(row, Event)]
    history.sync(STREAM)
    machine.on_request(0, Synced(STREAM, history.durable(STREAM)))


def held(history: LogHistory) -> list[Event | Grave]:
    return rows_of(history.read(STREAM, 1, 1 << 40))


@pytest.mark.paper("S4", "S5")
def test_a_region_that_was_away_catches_up_by_what_is_left(tmp_path: Path) -> None:
    post = Post()
    owner, at_x, _ = proxy(post, X, tmp_path)
    _, at_y, _ = proxy(post, Y, tmp_path)
    _, at_z, _ = proxy(post, Z, tmp_path)
    post.cut = {frozenset((X, Z)), frozenset((Y, Z))}
    published: list[Event] = []
    for i in range(40):
        batch = Batch.build(STREAM, [bytes(50)] * 5, keys=[b"k%d" % (i % 4)] * 5, time_us=i)
        publish(owner, at_x, batch, published)
        post.round()
    assert (at_y.counter(STREAM), at_z.counter(STREAM)) == (200, 0)
    publish(owner, at_x, gc_event(STREAM, "upto 150", time_us=99), published)
    post.round()
    for log in (at_x.logs[STREAM], at_y.logs[STREAM]):
        while log.collect(everything=True).more:
            pass
    assert held(at_y)[0] == Grave(1, 150)
    post.cut = {frozenset((X, Z))}  # Z hears from Y alone
    post.round()
    assert at_z.counter(STREAM) == 201
    for history in (at_x, at_y, at_z):
        check_history(published, held(history))
    assert len(held(at_z)) == 52  # a tombstone, 50 events, the GC event
    # The owner is on the line again, and is taken only once it is ahead.
    post.cut = set()
    post.round()
    assert post.machines[Z].receiving.expects[STREAM].source == Y
    for history in (at_x, at_y, at_z):
        history.close()


def test_a_new_life_goes_on_from_what_the_log_has(tmp_path: Path) -> None:
    post = Post()
    owner, at_x, _ = proxy(post, X, tmp_path)
    _, at_y, _ = proxy(post, Y, tmp_path)
    proxy(post, Z, tmp_path)
    published: list[Event] = []
    for i in range(10):
        publish(owner, at_x, Batch.build(STREAM, [b"%d" % i] * 3), published)
        post.round()
    at_y.close()
    again, at_y, _ = proxy(post, Y, tmp_path)
    assert again.receiving.expects[STREAM].seq == 30
    for machine in post.machines.values():
        if machine is not again:
            machine.on_link_down(0, Y)
    publish(owner, at_x, Batch.build(STREAM, [b"new"]), published)
    post.round()
    check_history(published, held(at_y))
    at_x.close()
    at_y.close()


def test_what_retention_dropped_is_said_and_never_skipped(tmp_path: Path) -> None:
    post = Post()
    owner, at_x, _ = proxy(post, X, tmp_path, mode="memory", retain_bytes=65536, segment_bytes=65536)
    for _ in range(100):
        owner.on_request(0, Publish(0, Batch.build(STREAM, [bytes(4000)])))
    assert at_x.logs[STREAM].first > 1
    _, at_y, told = proxy(post, Y, tmp_path)
    _, at_z, _ = proxy(post, Z, tmp_path)
    for _ in range(3):
        post.round()
    assert at_y.counter(STREAM) == at_z.counter(STREAM) == 0
    assert [(type(item), item.first) for item in told.delivered if isinstance(item, Unserved)] == [
        (Unserved, 1)
    ]

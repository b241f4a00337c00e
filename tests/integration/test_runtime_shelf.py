"""Large messages to peers on the same machine lie in memory that they read, once for all of them; whatever
goes wrong with that, nothing that was not meant is heard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.integration.listening import RawPeer, Server
from tests.waiting import run, until

from qanat.events.batch import Batch
from qanat.kernel import Address, Machine, Message
from qanat.runtime.driver import Driver
from qanat.runtime.placing import Taker
from qanat.runtime.settings import TransportSettings
from qanat.runtime.shelf import Reader
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.frame import FrameType, encode
from qanat.wire.placed import Shelf, Taken, encode_control, encode_place

CHANNEL, SIZE = 20, 300_000


class Big(Message, frozen=True):
    number: int
    batches: tuple[Batch, ...]


class Heard(Message, frozen=True):
    number: int


class Send(msgspec.Struct, frozen=True):
    to: tuple[str, ...]
    number: int
    batches: tuple[Batch, ...]


class Talker(Machine[Big | Heard, Send]):
    """Sends one thing to many, and says what it has heard."""

    message_types = (Big, Heard)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        pass

    def on_message(self, now_us: int, sender: Address, message: Big | Heard) -> None:
        if isinstance(message, Big):
            payloads = [batch.payload(0) for batch in message.batches]
            self.context.deliver((message.number, payloads))
            self.context.send(sender, Heard(message.number))
        else:
            self.context.deliver((sender, message.number))

    def on_request(self, now_us: int, request: Send) -> None:
        for peer in request.to:
            self.context.send(Address(peer), Big(request.number, request.batches))

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.context.deliver(("down", peer))


def payload(number: int, size: int = SIZE) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


def batch(number: int, size: int = SIZE) -> Batch:
    return Batch.build(1, [payload(number, size)])


class House:
    """One who has much to say, and peers of its machine who dial it."""

    def __init__(self) -> None:
        self.heard: dict[str, list[Any]] = {}
        self.drivers: dict[str, Driver] = {}
        self.urls: dict[str, Url] = {}
        self.driver: Driver

    def _make(self, name: str, short_way: bool, settings: dict[str, Any]) -> Driver:
        found = self.drivers[name] = Driver(
            Identity(name, time.time_ns()),
            self.urls.get,
            settings=TransportSettings(**{"backoff_ms": 2, "backoff_limit_ms": 20, **settings}),
            short_way=short_way,
        )
        self.heard[name] = []
        found.add(CHANNEL, "talker", Talker, self.heard[name].append)
        return found

    async def start(self, *peers: str, peer_settings: dict[str, Any] | None = None, **settings: Any) -> None:
        self.driver = self._make("publisher", False, settings)
        self.urls["publisher"] = await self.driver.start("127.0.0.1", 0)
        for peer in peers:
            driver = self._make(peer, True, peer_settings or settings)
            await driver.start_unlisted()
            await self.call(peer)

    async def call(self, peer: str) -> None:
        """It dials, and is known."""
        number = -1 - len(self.heard["publisher"])
        self.drivers[peer].request(CHANNEL, Send(("publisher",), number, ()))
        await until(lambda: ("publisher", number) in self.heard[peer])

    def send(self, number: int, *peers: str, size: int = SIZE) -> None:
        self.driver.request(CHANNEL, Send(peers, number, (batch(number, size),)))

    async def came(self, number: int, *peers: str, size: int = SIZE) -> None:
        expected = (number, [payload(number, size)])
        await until(lambda: all(expected in self.heard[peer] for peer in peers))

    @property
    def sent_bytes(self) -> int:
        return self.driver.traffic.sent_bytes

    @property
    def placed_bytes(self) -> int:
        return int(self.driver.traffic.placed_bytes.value)

    @property
    def lies(self) -> int:
        return 0 if self.driver.shelf is None else len(self.driver.shelf._laid)

    async def close(self) -> None:
        for driver in reversed(self.drivers.values()):
            await driver.stop()


PEERS = ("a", "b", "c")


def in_house(work: Callable[[House], Any], *peers: str, **settings: Any) -> None:
    async def main() -> None:
        house = House()
        await house.start(*peers, **settings)
        await work(house)
        await house.close()

    run(main())


def test_they_lie_there_once_for_all_and_in_order_with_others() -> None:
    async def work(house: House) -> None:
        sizes = [SIZE if number % 3 else 400 for number in range(40)]
        for number, size in enumerate(sizes):
            house.send(number, *PEERS, size=size)
            assert house.lies <= number + 1, "once for all of them"
        await house.came(39, *PEERS, size=sizes[39])
        for peer in PEERS:
            big = [item for item in house.heard[peer] if item[0] != "publisher"]
            assert big == [(number, [payload(number, size)]) for number, size in enumerate(sizes)]
        assert house.placed_bytes > 3 * 26 * SIZE > 100 * house.sent_bytes
        await until(lambda: house.lies == 0)

    in_house(work, *PEERS)


def test_several_batches_in_one_message_are_sent() -> None:
    async def work(house: House) -> None:
        house.driver.request(CHANNEL, Send(("a",), 7, (batch(1), batch(2))))
        await until(lambda: (7, [payload(1), payload(2)]) in house.heard["a"])
        assert house.placed_bytes == 0

    in_house(work, "a")


def test_what_has_no_room_is_sent() -> None:
    async def work(house: House) -> None:
        for number in range(10):
            house.send(number, *PEERS)
        await house.came(9, *PEERS)
        assert 0 < house.placed_bytes < 3 * 10 * SIZE
        assert house.sent_bytes > 3 * 5 * SIZE
        await until(lambda: house.lies == 0)

    in_house(work, *PEERS, shelf_bytes=2 * SIZE)


def over_tcp(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"short_ways": False}


def none_is_had(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"shelf_bytes": 0}


def none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"peer_settings": {"shelf_bytes": 0}}


def none_can_be_made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.delattr(os, "memfd_create")
    return {}


def another_file(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As in a container that shares the network and has processes of its own."""
    of = Taker.of
    monkeypatch.setattr(Taker, "of", lambda told: of(Shelf(told.path, told.device, told.inode + 1)))
    return {}


def not_to_be_read(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """As by another user."""
    before = os.open

    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith("/proc/"):
            raise PermissionError(13, "Permission denied")
        return before(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refused)
    return {}


@pytest.mark.parametrize(
    "trouble", [over_tcp, none_is_had, none_is_wanted, none_can_be_made, another_file, not_to_be_read]
)
def test_where_it_cannot_be_read_the_bytes_are_sent(
    monkeypatch: pytest.MonkeyPatch, trouble: Callable[[pytest.MonkeyPatch], dict[str, Any]]
) -> None:
    async def work(house: House) -> None:
        for number in range(3):
            house.send(number, *PEERS)
        await house.came(2, *PEERS)
        assert house.placed_bytes == 0
        assert house.sent_bytes > 3 * 3 * SIZE

    in_house(work, *PEERS, **trouble(monkeypatch))


def damaged(fd: int, offset: int) -> None:
    os.pwrite(fd, b"!", offset + SIZE // 2)


def cut_off(fd: int, offset: int) -> None:
    os.ftruncate(fd, offset + SIZE // 2)


def another_message(fd: int, offset: int) -> None:
    """As if the place had been used again before it was read: all of it is well, but it is not what was
    meant."""
    os.pwrite(fd, batch(99).encode(), offset)


def test_without_short_ways_there_is_no_shelf() -> None:
    """One switch for all of them: nothing is set aside for what nobody will read."""

    async def work() -> None:
        driver = Driver(
            Identity("a"), lambda name: None, settings=TransportSettings(short_ways=False), short_way=True
        )
        await driver.start("127.0.0.1", 0)
        assert driver.shelf is None
        assert driver.capabilities == ()
        await driver.stop()

    run(work())


@pytest.mark.parametrize("trouble", [damaged, cut_off, another_message])
def test_what_is_not_as_it_was_laid_down_is_not_heard(
    monkeypatch: pytest.MonkeyPatch, trouble: Callable[[int, int], None]
) -> None:
    """The channel breaks, as machines know it; on the next one the bytes are sent, and on the one after it
    the shelf is tried again."""
    lay = Reader.lay

    def spoilt(self: Reader, data: memoryview) -> int | None:
        offset = lay(self, data)
        assert offset is not None
        trouble(self._shelf._fd, offset)
        return offset

    async def work(house: House) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Reader, "lay", spoilt)
            house.send(1, "a")
            await until(lambda: ("down", "publisher") in house.heard["a"])
            await until(lambda: ("down", "a") in house.heard["publisher"])
        assert house.lies == 0
        assert not [item for item in house.heard["a"] if item[0] in (1, 99)]
        await house.call("a")
        house.send(2, "a")
        await house.came(2, "a")
        assert house.placed_bytes < 1.5 * SIZE and house.sent_bytes > SIZE, "this time it was sent"
        for connection in list(house.drivers["a"].traffic.live):
            connection.abort("reset", "cut by the test")
        await until(lambda: house.heard["publisher"].count(("down", "a")) == 2)
        await house.call("a")
        house.send(3, "a")
        await house.came(3, "a")
        assert house.placed_bytes > 1.5 * SIZE

    in_house(work, "a")


def test_what_was_laid_down_for_one_who_has_gone_is_forgotten() -> None:
    async def work(house: House) -> None:
        connection = next(iter(house.drivers["a"].traffic.live))
        connection.pause_reading()
        house.send(1, "a", "b")
        await house.came(1, "b")
        assert house.lies == 1
        connection.abort("reset", "cut by the test")
        await until(lambda: house.lies == 0)

    in_house(work, "a", "b")


@pytest.mark.parametrize(
    "frame",
    [
        (FrameType.TAKEN, encode_control(Taken(1)), []),
        (FrameType.PLACED, b"", [encode_place(0, batch(1).encode())]),
        (FrameType.SHELF, b"\xc1", []),
    ],
)
def test_words_about_a_shelf_that_is_not_there_cost_their_connection(
    frame: tuple[int, bytes, list[bytes]],
) -> None:
    async def work(house: House) -> None:
        assert house.driver.listener is not None
        peer = RawPeer(Server(house.driver.listener, None, house.driver.traffic))  # type: ignore[arg-type]
        await peer.hello()
        await peer.send(b"".join(encode(frame[0], CHANNEL, frame[1], frame[2])))
        await peer.ended()
        assert house.driver.traffic.closes.labels("malformed").value == 1
        house.send(1, "a")
        await house.came(1, "a")

    in_house(work, "a")


def test_no_file_is_opened_that_can_be_no_shelf() -> None:
    found = os.stat("/etc/hostname")
    assert Taker.of(Shelf("/etc/hostname", found.st_dev, found.st_ino)) is None
    pipe = os.pipe()
    try:
        found = os.fstat(pipe[0])
        assert Taker.of(Shelf(f"/proc/{os.getpid()}/fd/{pipe[0]}", found.st_dev, found.st_ino)) is None
    finally:
        os.close(pipe[0])
        os.close(pipe[1])

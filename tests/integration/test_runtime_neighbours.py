"""A peer that lives in the node's own process and is no machine, as the bridge to ZooKeeper is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tests.waiting import run, until

from qanat.kernel import Address, Machine, Message
from qanat.runtime.driver import Driver
from qanat.runtime.url import Url
from qanat.wire.control import Identity

CHANNEL, BRIDGE = 20, Address("bridge")


class Word(Message, frozen=True):
    text: str


class Talker(Machine[Word, tuple[str, str]]):
    message_types = (Word,)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.heard: list[tuple[str, str]] = []
        self.down: list[str] = []
        self.context.deliver(self)

    def on_message(self, now_us: int, sender: Address, message: Word) -> None:
        self.heard.append((sender, message.text))

    def on_request(self, now_us: int, request: tuple[str, str]) -> None:
        to, text = request
        if text.startswith("keep "):
            self.context.persist(text.encode())
        self.context.send(Address(to), Word(text))

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.down.append(peer)


def node(name: str, urls: dict[str, Url], folder: Path) -> tuple[Driver, list[Talker]]:
    machines: list[Talker] = []
    driver = Driver(Identity(name, time.time_ns()), urls.get, folder=folder)
    driver.add(CHANNEL, "talker", Talker, machines.append)
    return driver, machines


def test_it_is_handed_what_machines_send_in_order_after_their_records_and_is_heard(tmp_path: Path) -> None:
    async def main() -> None:
        driver, machines = node("node", {}, tmp_path)
        taken: list[tuple[str, bool]] = []
        journal = tmp_path / "talker.journal"

        def take(message: Message) -> None:
            assert isinstance(message, Word)
            taken.append((message.text, b"keep a" in journal.read_bytes()))
            driver.hear(CHANNEL, BRIDGE, Word(message.text.upper()))

        driver.neighbours[BRIDGE] = take
        await driver.start("127.0.0.1", 0)
        (talker,) = machines
        for text in ("first", "keep a", "last"):
            driver.tell(CHANNEL, (BRIDGE, text))
        assert taken == [], "not in the middle of what the machine does"
        await until(lambda: len(talker.heard) == 3)
        assert taken[0][0] == "first" and taken[1:] == [("keep a", True), ("last", True)]
        assert talker.heard == [("bridge", "FIRST"), ("bridge", "KEEP A"), ("bridge", "LAST")]
        await driver.stop()
        driver.hear(CHANNEL, BRIDGE, Word("late"))
        assert len(talker.heard) == 3

    run(main())


def test_nobody_from_outside_is_taken_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        driver, machines = node("node", {}, tmp_path / "node")
        driver.neighbours[BRIDGE] = ignore
        url = await driver.start("127.0.0.1", 0)
        stranger, strangers = node("bridge", {"node": url}, tmp_path / "bridge")
        friend, _ = node("friend", {"node": url}, tmp_path / "friend")
        for each in (stranger, friend):
            await each.start_unlisted()
        stranger.tell(CHANNEL, ("node", "I am the bridge"))
        await until(lambda: strangers[0].down == ["node"])
        friend.tell(CHANNEL, ("node", "hello"))
        await until(lambda: machines[0].heard)
        assert machines[0].heard == [("friend", "hello")]
        for each in (stranger, friend, driver):
            await each.stop()

    run(main())


def ignore(message: Message) -> None:
    """It is not asked."""

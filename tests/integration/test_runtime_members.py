"""What a mesh needs of the driver: nodes that strangers dial by name, nodes that nobody dials, channels that
end when idle."""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Sequence

from tests.integration.hostile import Peer, datagram
from tests.waiting import until

from qanat.kernel import Address, Machine, Message
from qanat.runtime.driver import Driver
from qanat.runtime.loop import run
from qanat.runtime.members import Heard, member_name, with_members
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.messages import MessageCodec

CHANNEL = 20


class Word(Message, frozen=True):
    text: str


class Echo(Machine[Word, tuple[str, str]]):
    """Sends what it is told to, answers each word with the same word in capitals, remembers all."""

    message_types = (Word,)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.heard: list[tuple[str, str]] = []
        self.down: list[str] = []
        self.context.deliver(self)

    def on_message(self, now_us: int, sender: Address, message: Word) -> None:
        self.heard.append((sender, message.text))
        if message.text.islower():
            self.context.send(sender, Word(message.text.upper()))

    def on_request(self, now_us: int, request: tuple[str, str]) -> None:
        self.context.send(Address(request[0]), Word(request[1]))

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.down.append(peer)


def node(name: str, urls: dict[str, Url], idle_ms: float = 0) -> tuple[Driver, list[Echo]]:
    machines: list[Echo] = []
    driver = Driver(
        Identity(name, time.time_ns()), with_members(urls.get), rng=random.Random(name), idle_ms=idle_ms
    )
    driver.add(CHANNEL, "echo", Echo, machines.append)
    return driver, machines


async def member(token: str, idle_ms: float = 0) -> tuple[str, Driver, Echo]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    name = member_name(token, "127.0.0.1", port)
    driver, machines = node(name, {}, idle_ms)
    await driver.start("127.0.0.1", port)
    return name, driver, machines[0]


def test_strangers_dial_a_member_by_its_name_alone() -> None:
    async def main() -> None:
        a, a_driver, a_echo = await member("a")
        b, b_driver, b_echo = await member("b")
        a_driver.request(CHANNEL, (b, "hello"))
        await until(lambda: a_echo.heard)
        assert (b_echo.heard, a_echo.heard) == ([(a, "hello")], [(b, "HELLO")])
        await a_driver.stop()
        await b_driver.stop()

    run(main)


def test_whoever_has_the_port_of_a_dead_member_is_not_taken_for_it() -> None:
    async def main() -> None:
        _, a_driver, a_echo = await member("a")
        b, b_driver, b_echo = await member("b")
        former = b.replace("b@", "c@")
        a_driver.request(CHANNEL, (former, "hello"))
        await until(lambda: former in a_echo.down)
        assert b_echo.heard == []
        await a_driver.stop()
        await b_driver.stop()

    run(main)


def test_a_node_that_does_not_listen_hears_on_the_channel_it_dialled() -> None:
    async def main() -> None:
        a, a_driver, _ = await member("a")
        driver, machines = node("shy", {})
        await driver.start_unlisted()
        driver.request(CHANNEL, (a, "hello"))
        await until(lambda: machines[0].heard)
        a_driver.request(CHANNEL, ("shy", "WELCOME"))
        await until(lambda: (a, "WELCOME") in machines[0].heard)
        assert driver.listener is None
        await driver.stop()
        await a_driver.stop()

    run(main)


def test_an_idle_channel_is_closed_and_opens_again_when_it_is_used() -> None:
    async def main() -> None:
        a, a_driver, a_echo = await member("a", idle_ms=60)
        b, b_driver, b_echo = await member("b", idle_ms=60)
        a_driver.request(CHANNEL, (b, "one"))
        await until(lambda: a_echo.heard)
        await until(lambda: not a_driver.traffic.live and not b_driver.traffic.live)
        assert a_echo.down == [], "it lost nothing by closing what it did not use"
        assert b_echo.down == [a], "the other end cannot know that nothing was lost"
        b_driver.request(CHANNEL, (a, "two"))
        await until(lambda: (a, "TWO") in b_echo.heard)
        await a_driver.stop()
        await b_driver.stop()

    run(main)


class Fragile(Echo):
    """Stops at one word."""

    def on_message(self, now_us: int, sender: Address, message: Word) -> None:
        if message.text == "die":
            raise RuntimeError("told to die")
        super().on_message(now_us, sender, message)


def test_a_machine_that_keeps_nothing_is_made_anew_after_a_fault() -> None:
    async def main() -> None:
        machines: list[Echo] = []
        failures: list[str] = []
        urls: dict[str, Url] = {}
        driver = Driver(
            Identity("server", 1),
            with_members(urls.get),
            on_failure=lambda _, reason: failures.append(reason),
        )
        driver.add(CHANNEL, "echo", Fragile, machines.append, again=True)
        urls["server"] = await driver.start("127.0.0.1", 0)
        other, echoes = node("other", urls)
        await other.start("127.0.0.1", 0)
        for lives in (1, 2, 3):
            other.request(CHANNEL, ("server", "die"))
            await until(lambda lives=lives: len(failures) == lives)  # type: ignore[misc]
            await until(lambda lives=lives: len(machines) == lives + 1 and not driver.failed())  # type: ignore[misc]
            other.request(CHANNEL, ("server", "hello"))
            await until(lambda lives=lives: echoes[0].heard.count(("server", "HELLO")) == lives)  # type: ignore[misc]
        assert driver.machines() == {"echo": {"failure": None, "restarts": 3}}
        await other.stop()
        await driver.stop()

    run(main)


class Casting(Echo):
    """Answers by datagram."""

    def on_message(self, now_us: int, sender: Address, message: Word) -> None:
        self.heard.append((sender, message.text))
        self.context.cast(sender, Word("answer"))
        self.context.send(sender, Word("answer"))


def test_a_server_answers_and_dials_no_address_but_those_that_something_came_from() -> None:
    """A datagram under the name of a third goes no further; a connection under it is answered where it is."""

    async def main() -> None:
        machines: list[Echo] = []
        driver = Driver(Identity("server", 1), Heard(lambda _: None))
        driver.add(CHANNEL, "echo", Casting, machines.append)
        url = await driver.start("127.0.0.1", 0)
        with (
            socket.create_server(("127.0.0.1", 0)) as target,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as honest,
        ):
            port = target.getsockname()[1]
            heard.bind(("127.0.0.1", port))
            honest.bind(("127.0.0.1", 0))
            for one in (target, heard, honest):
                one.setblocking(False)
            name = f"x@127.0.0.1:{port}"
            word = MessageCodec[Word]((Word,)).encode(Word("hello"))[0]
            datagram(str(url), name, CHANNEL, word)
            await until(lambda: driver.traffic.datagrams_dropped.labels("forged").value == 1)
            peer = await Peer.connect(str(url), f"y@192.0.2.1:{port}", role="node", channels=(CHANNEL,))
            peer.say(CHANNEL, word)
            await until(lambda: peer.heard.qsize() == 1)
            mine = f"z@127.0.0.1:{honest.getsockname()[1]}"
            datagram(str(url), mine, CHANNEL, word, sock=honest)
            await until(lambda: len(machines[0].heard) == 2)
            await until(lambda: _readable(honest))
            assert not _readable(heard) and not _readable(target)
            assert driver._book(name) is None and driver._book(mine) is not None
            await peer.close()
        await driver.stop()

    run(main)


def _readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])

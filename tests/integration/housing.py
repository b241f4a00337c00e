"""Drivers in one loop, each with machines that say what they are told and write down what they hear."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from qanat.events.batch import Batch
from qanat.events.errors import RemoteError
from qanat.kernel import Address, Machine, Message, require
from qanat.runtime.driver import Driver
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import Url
from qanat.wire.control import Identity


class Word(Message, frozen=True):
    text: str


class Big(Message, frozen=True):
    batch: Batch


class Send(msgspec.Struct, frozen=True):
    to: str
    text: str
    size_bytes: int = 0
    persist: bool = False
    cast: bool = False


class Speaker(Machine[Word | Big, Send]):
    message_types = (Word, Big)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        self.context.deliver(("start", len(saved)))

    def on_message(self, now_us: int, sender: Address, message: Word | Big) -> None:
        if isinstance(message, Word):
            require(message.text != "die", "told to die")
            if message.text == "liar":
                raise RemoteError("the peer lies")
            self.context.deliver((sender, message.text))
        else:
            self.context.deliver((sender, message.batch.size))

    def on_request(self, now_us: int, request: Send) -> None:
        to = Address(request.to)
        if request.persist:
            self.context.persist(request.text.encode())
        if request.size_bytes:
            self.context.send(to, Big(Batch.build(1, [bytes(request.size_bytes)])))
        elif request.cast:
            self.context.cast(to, Word(request.text))
        else:
            self.context.send(to, Word(request.text))

    def on_link_down(self, now_us: int, peer: Address) -> None:
        self.context.deliver(("down", peer))

    def on_refused(self, now_us: int, peer: Address) -> None:
        self.context.deliver(("refused", peer))


class House:
    """Drivers in one loop that know each other."""

    def __init__(self, folder: Path | None = None, **settings: Any) -> None:
        self.folder = folder
        self.settings = TransportSettings(**{"backoff_ms": 2, "backoff_limit_ms": 20, **settings})
        self.urls: dict[str, Url] = {}
        self.drivers: dict[str, Driver] = {}
        self.heard: dict[tuple[str, int], list[Any]] = {}

    async def add(self, name: str, *channels: int) -> Driver:
        driver = Driver(
            Identity(name, time.time_ns()),
            self.urls.get,
            folder=self.folder / name if self.folder else None,
            settings=self.settings,
            rng=random.Random(name),
        )
        for channel in channels or (20,):
            self.heard[name, channel] = []
            driver.add(channel, f"machine-{channel}", Speaker, self.heard[name, channel].append)
        self.urls[name] = await driver.start("127.0.0.1", 0)
        self.drivers[name] = driver
        return driver

    async def close(self) -> None:
        for driver in self.drivers.values():
            await driver.stop()

"""The demonstration's subscribers: processes that read all streams in a region, count what comes, and record it."""

import asyncio
import time
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from qanat.client import AsyncClient, ClientSettings
from qanat.events.batch import Batch
from qanat.runtime import logs
from qanat.runtime.loop import run
from qanat.studies.demo_store import Roll, heads

_REPORT_S = 0.2
_PATIENCE_S = 60.0
_SETTINGS = ClientSettings(patience_ms=60_000)
_WEIGHT = 0.05
"""Of the newest batch in a latency that is shown."""


class Heard(NamedTuple):
    """What one subscriber was given so far."""

    delivered: int
    from_publish_ms: float
    from_write_ms: float


class Pause(NamedTuple):
    """A time in which nothing came."""

    began_us: int
    ended_us: int


class Counted(NamedTuple):
    """What it was given in the end."""

    delivered: int
    lost: int
    duplicated: int
    out_of_order: int
    pauses: list[Pause]
    """The longest ones."""


class Pauses:
    """The longest times between two deliveries."""

    def __init__(self, most: int = 20) -> None:
        self._most, self._last_us = most, 0
        self.longest: list[Pause] = []

    def take(self, now_us: int) -> None:
        """Something came."""
        if self._last_us:
            found = [*self.longest, Pause(self._last_us, now_us)]
            self.longest = sorted(found, key=lambda one: one.began_us - one.ended_us)[: self._most]
        self._last_us = now_us


def longest_ms(pauses: list[Pause], since_us: int) -> float:
    """The longest of those that had not ended by then, from then on."""
    return max((one.ended_us - max(one.began_us, since_us) for one in pauses), default=0) / 1000


def subscribe(pipe: Pipe, url: str, streams: list[str], name: str, record: str) -> None:
    """Counts what arrives of all streams until it is told how many orders there are and has them, or nothing more comes."""
    logs.set_up("error")  # that connections break is the point, and told by the drill
    run(lambda: _Reader(pipe, streams).work(url, name, record))


class _Reader:
    def __init__(self, pipe: Pipe, streams: list[str]) -> None:
        self._pipe, self._streams = pipe, streams
        self._roll = Roll()
        self._pauses = Pauses()
        self._orders: int | None = None
        self._last_news = time.monotonic()
        self._from_publish_us = self._from_write_us = 0.0
        self._ready = asyncio.Semaphore(0)

    async def work(self, url: str, name: str, record: str) -> None:
        loop = asyncio.get_running_loop()
        pipe, told = self._pipe, 0.0
        async with AsyncClient(url, name=name, settings=_SETTINGS, record=record) as client:
            readers = [asyncio.create_task(self._read(client, stream)) for stream in self._streams]
            for _ in self._streams:
                await self._ready.acquire()
            pipe.send("ready")
            loop.add_reader(pipe.fileno(), self._hear)
            while not self._complete():
                await asyncio.wait(readers, timeout=0.02, return_when=asyncio.FIRST_EXCEPTION)
                for reader in readers:
                    if reader.done():
                        reader.result()
                if time.monotonic() - told > _REPORT_S:
                    told = time.monotonic()
                    pipe.send(
                        Heard(self._roll.delivered, self._from_publish_us / 1000, self._from_write_us / 1000)
                    )
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        roll = self._roll
        lost = roll.lost(self._orders or 0)
        pipe.send(Counted(roll.delivered, lost, roll.duplicated, roll.out_of_order, self._pauses.longest))

    def _hear(self) -> None:
        self._orders, self._last_news = self._pipe.recv(), time.monotonic()
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    def _complete(self) -> bool:
        if self._orders is None:
            return False
        return not self._roll.lost(self._orders) or time.monotonic() - self._last_news > _PATIENCE_S

    async def _read(self, client: AsyncClient, stream: str) -> None:
        subscription = await client.subscribe(stream, start="earliest").confirmed()
        self._ready.release()
        async for batch in subscription.batches():
            self._take(stream, batch)

    def _take(self, stream: str, batch: Batch) -> None:
        now_us = time.time_ns() // 1000
        (values,) = batch.attributes()["value"]
        head = heads(values)
        self._roll.take(stream, head["number"])
        self._pauses.take(now_us)
        self._from_publish_us += _WEIGHT * (now_us - batch.time_us - self._from_publish_us)
        self._from_write_us += _WEIGHT * (now_us - int(head["time_us"][-1]) - self._from_write_us)
        self._last_news = time.monotonic()

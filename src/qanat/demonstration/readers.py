"""The demonstration's subscribers: processes that read all streams in a region, count what comes, and record
it."""

import asyncio
import time
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from qanat.client import AsyncClient, ClientSettings
from qanat.demonstration.store import Roll, heads
from qanat.events.batch import Batch
from qanat.runtime import logs
from qanat.runtime.loop import run

_REPORT_S = 0.2
_PATIENCE_S = 60.0
_SETTINGS = ClientSettings(patience_ms=60_000)
_WEIGHT = 0.05
"""Of the newest batch in a latency that is shown."""


class Heard(NamedTuple):
    """What one subscriber was given so far."""

    orders: int
    from_publish_ms: float
    from_write_ms: float
    sales: int = 0

    @property
    def delivered(self) -> int:
        return self.orders + self.sales


class Pause(NamedTuple):
    """A time in which no orders came."""

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


def subscribe(pipe: Pipe, url: str, streams: list[str], tills: list[str], name: str, record: str) -> None:
    """Counts what arrives of all streams, those of orders and those of tills, until it is told how many
    orders there are, and how many sales at each till, and has them, or nothing more comes."""
    logs.set_up("error")  # that connections break is the point, and told by the drill
    run(lambda: _Reader(pipe, streams, tills).work(url, name, record))


class _Reader:
    def __init__(self, pipe: Pipe, streams: list[str], tills: list[str]) -> None:
        self._pipe, self._streams = pipe, [*streams, *tills]
        self._orders = Roll()
        self._sales = {till: Roll() for till in tills}
        self._rolls = [self._orders, *self._sales.values()]
        self._pauses = Pauses()
        self._totals: list[int] | None = None
        """Of orders, and of each till."""
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
                    pipe.send(self._heard())
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        rolls = self._rolls
        pipe.send(
            Counted(
                sum(roll.delivered for roll in rolls),
                self._lost(),
                sum(roll.duplicated for roll in rolls),
                sum(roll.out_of_order for roll in rolls),
                self._pauses.longest,
            )
        )

    def _heard(self) -> Heard:
        sales = sum(roll.delivered for roll in self._sales.values())
        late = self._from_publish_us / 1000, self._from_write_us / 1000
        return Heard(self._orders.delivered, *late, sales)

    def _hear(self) -> None:
        self._totals, self._last_news = self._pipe.recv(), time.monotonic()
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    def _lost(self) -> int:
        return sum(roll.lost(total) for roll, total in zip(self._rolls, self._totals or (), strict=True))

    def _complete(self) -> bool:
        if self._totals is None:
            return False
        return not self._lost() or time.monotonic() - self._last_news > _PATIENCE_S

    async def _read(self, client: AsyncClient, stream: str) -> None:
        subscription = await client.subscribe(stream, start="earliest").confirmed()
        self._ready.release()
        async for batch in subscription.batches():
            self._take(stream, batch)

    def _take(self, stream: str, batch: Batch) -> None:
        now_us = time.time_ns() // 1000
        till = self._sales.get(stream)
        (values,) = batch.attributes()["value"] if till is None else (batch.payloads(),)
        head = heads(values)
        (till or self._orders).take(stream, head["number"])
        if till is None:  # a region that sells goes on while another has lost its head
            self._pauses.take(now_us)
        self._from_publish_us += _WEIGHT * (now_us - batch.time_us - self._from_publish_us)
        self._from_write_us += _WEIGHT * (now_us - int(head["time_us"][-1]) - self._from_write_us)
        self._last_news = time.monotonic()

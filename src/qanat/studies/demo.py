"""The demonstration: a server, producers and subscribers as processes of their own, counted by the subscribers."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from qanat.client import AsyncClient
from qanat.nodes.processes import Worker, stream_server
from qanat.runtime.loop import run
from qanat.studies.tally import Tally, make

STREAM = "demo"
_WIDTH = 100
_BATCH = 1_000
_PAUSE_S = 0.01
_REPORT_S = 0.2
_PATIENCE_S = 20.0


class Progress(NamedTuple):
    """One look at everything: totals so far."""

    seconds: float
    published: list[int]
    delivered: list[int]
    latency_ms: list[float]
    present: int
    """Subscribers that are there; the last one comes later."""


class Summary(NamedTuple):
    """The end: what was published, and what the subscribers counted."""

    published: int
    subscribers: int
    delivered: int
    lost: int
    duplicated: int
    out_of_order: int

    @property
    def faultless(self) -> bool:
        counted = self.delivered == self.published * self.subscribers
        return counted and not (self.lost or self.duplicated or self.out_of_order)


def produce(pipe: Pipe, url: str, number: int, seconds: float) -> None:
    """Publishes numbered events for a while; says how many it has so far, and at the end that it is done."""

    async def main() -> None:
        async with AsyncClient(url, name=f"producer-{number}") as client:
            pipe.send("ready")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            published, end, told = 0, time.monotonic() + seconds, 0.0
            while time.monotonic() < end:
                await client.send_many(STREAM, make(number, published, _BATCH, _WIDTH))
                published += _BATCH
                if time.monotonic() - told > _REPORT_S:
                    told = time.monotonic()
                    pipe.send(("published", published))
                await asyncio.sleep(_PAUSE_S)
            await client.flush()
            pipe.send(("done", published))

    run(main)


def subscribe(pipe: Pipe, url: str, producers: int, start: str) -> None:
    """Counts what arrives until it is told the totals and has them, or nothing more comes."""

    async def main() -> None:
        tally, latency_us, told = Tally(producers), 0.0, 0.0
        totals: list[int] | None = None
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()

        def hear() -> None:
            nonlocal totals
            totals = pipe.recv()
            loop.remove_reader(pipe.fileno())
            heard.set()

        async with AsyncClient(url) as client:
            subscription = await client.subscribe(STREAM, start=start).confirmed()
            pipe.send("ready")
            loop.add_reader(pipe.fileno(), hear)
            last_news = time.monotonic()
            while totals is None or (tally.lost(totals) and time.monotonic() - last_news < _PATIENCE_S):
                try:
                    batches = await asyncio.wait_for(subscription.take(), _REPORT_S)
                except TimeoutError:
                    batches = []
                for batch in batches:
                    tally.take(batch.payloads())
                    latency_us += 0.2 * (time.time_ns() // 1000 - batch.time_us - latency_us)
                now = time.monotonic()
                if batches:
                    last_news = now
                if now - told > _REPORT_S:
                    told = now
                    pipe.send(("delivered", tally.delivered, latency_us / 1000))
            pipe.send(("counted", tally.delivered, tally.lost(totals), tally.duplicated, tally.out_of_order))

    run(main)


@contextmanager
def _children() -> Iterator[list[Worker]]:
    children: list[Worker] = []
    try:
        yield children
    finally:
        for child in children:
            child.end()


def play(seconds: float, producers: int, subscribers: int, show: Callable[[Progress], None]) -> Summary:
    """Runs it all for `seconds`; the last subscriber comes late, in the middle, and starts from the beginning."""
    with ExitStack() as stack:
        url, _ = stack.enter_context(stream_server("always"))
        children = stack.enter_context(_children())
        sinks = [Worker(subscribe, url, producers, "earliest") for _ in range(subscribers - 1)]
        children += sinks
        sources = [Worker(produce, url, number, seconds) for number in range(producers)]
        children += sources
        for child in children:
            child.wait()
        for source in sources:
            source.tell("go")
        began = time.monotonic()
        published, done = [0] * producers, [False] * producers
        delivered, latency_ms = [0] * subscribers, [0.0] * subscribers
        late: Worker | None = None
        while not all(done):
            time.sleep(_REPORT_S)
            if late is None and time.monotonic() - began > seconds / 2:
                late = Worker(subscribe, url, producers, "earliest")
                children.append(late)
                sinks.append(late)
            for i, source in enumerate(sources):
                while not done[i] and source.pipe.poll():
                    word, published[i] = source.wait()
                    done[i] = word == "done"
            for i, sink in enumerate(sinks):
                while sink.pipe.poll():
                    said = sink.wait()
                    if said != "ready":
                        _, delivered[i], latency_ms[i] = said
            show(Progress(time.monotonic() - began, published, delivered, latency_ms, len(sinks)))
        if len(sinks) < subscribers:
            sinks.append(Worker(subscribe, url, producers, "earliest"))
            children.append(sinks[-1])
        counts = []
        for sink in sinks:
            sink.tell(published)
        for i, sink in enumerate(sinks):
            while (said := sink.wait())[0] != "counted":
                if said != "ready":
                    _, delivered[i], latency_ms[i] = said
            counts.append(said[1:])
            delivered[i] = said[1]
        show(Progress(time.monotonic() - began, published, delivered, latency_ms, len(sinks)))
        totals = [sum(column) for column in zip(*counts, strict=True)]
        return Summary(sum(published), subscribers, totals[0], totals[1], totals[2], totals[3])

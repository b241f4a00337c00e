"""The demonstration: a deployment of three regions, producers and subscribers in each as processes of their own, a link that
is cut and a replica that is killed in the middle; counted by the subscribers."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from qanat.client import AsyncClient, ClientSettings
from qanat.nodes.deployment.control import call
from qanat.nodes.deployment.file import standard
from qanat.nodes.deployment.home import Home
from qanat.nodes.deployment.operate import temporary, wait_until_serving
from qanat.nodes.deployment.overview import look
from qanat.nodes.processes import Worker
from qanat.runtime import logs
from qanat.runtime.loop import run
from qanat.studies.registry import Say
from qanat.studies.tally import Tally, make

_WIDTH = 100
_BATCH = 500
_PAUSE_S = 0.02
_REPORT_S = 0.2
_PATIENCE_S = 30.0
_SETTINGS = ClientSettings(patience_ms=60_000)

CUT, HEALED, KILLED = 0.2, 0.45, 0.6
"""When, as parts of the whole time, a link is cut and heals, and a replica is killed."""
_AWAY_S = 2.5


class Progress(NamedTuple):
    """One look at everything: totals so far, by region."""

    seconds: float
    regions: list[str]
    published: list[int]
    delivered: list[int]
    """By the region's subscribers together."""
    latency_ms: list[float]
    subscribers: int
    """In each region."""


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


def produce(pipe: Pipe, url: str, stream: str, number: int, seconds: float) -> None:
    """Publishes numbered events for a while; says how many it has so far, and at the end that it is done."""

    logs.set_up("error")  # that connections break is the point, and told by the drill

    async def main() -> None:
        async with AsyncClient(url, name=f"producer-{number}", settings=_SETTINGS) as client:
            pipe.send("ready")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            published, end, told = 0, time.monotonic() + seconds, 0.0
            while time.monotonic() < end:
                await client.send_many(stream, make(number, published, _BATCH, _WIDTH))
                published += _BATCH
                if time.monotonic() - told > _REPORT_S:
                    told = time.monotonic()
                    pipe.send(("published", published))
                await asyncio.sleep(_PAUSE_S)
            await client.flush()
            pipe.send(("done", published))

    run(main)


def subscribe(pipe: Pipe, url: str, streams: list[str]) -> None:
    """Counts what arrives of all streams until it is told the totals and has them, or nothing more comes."""

    logs.set_up("error")

    async def main() -> None:
        tally, latency_us, told = Tally(len(streams)), 0.0, 0.0
        totals: list[int] | None = None
        last_news = time.monotonic()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            nonlocal totals, last_news
            totals, last_news = pipe.recv(), time.monotonic()
            loop.remove_reader(pipe.fileno())

        async def read(client: AsyncClient, stream: str) -> None:
            nonlocal latency_us, last_news
            subscription = await client.subscribe(stream, start="earliest").confirmed()
            ready.release()
            async for batch in subscription.batches():
                tally.take(batch.payloads())
                latency_us += 0.05 * (time.time_ns() // 1000 - batch.time_us - latency_us)
                last_news = time.monotonic()

        async with AsyncClient(url, settings=_SETTINGS) as client:
            ready = asyncio.Semaphore(0)
            readers = [asyncio.create_task(read(client, stream)) for stream in streams]
            for _ in streams:
                await ready.acquire()
            pipe.send("ready")
            loop.add_reader(pipe.fileno(), hear)
            while totals is None or (tally.lost(totals) and time.monotonic() - last_news < _PATIENCE_S):
                await asyncio.wait(readers, timeout=0.02, return_when=asyncio.FIRST_EXCEPTION)
                for reader in readers:
                    if reader.done():
                        reader.result()
                if time.monotonic() - told > _REPORT_S:
                    told = time.monotonic()
                    pipe.send(("delivered", tally.delivered, latency_us / 1000))
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            pipe.send(("counted", tally.delivered, tally.lost(totals), tally.duplicated, tally.out_of_order))

    run(main)


class Drill:
    """One link is cut and heals, one replica is killed and comes back, each at its time."""

    def __init__(self, home: Home, regions: list[str], seconds: float, say: Say) -> None:
        self._home, self._say = home, say
        self._ends, self._region = regions[:2], regions[-1]
        self._steps = [
            (CUT * seconds, self._cut),
            (HEALED * seconds, self._heal),
            (KILLED * seconds, self._kill),
        ]
        self._victim = ""

    def at(self, seconds: float) -> None:
        while self._steps and seconds >= self._steps[0][0]:
            self._steps.pop(0)[1]()

    def _cut(self) -> None:
        self._change(cut=True)
        self._say(f"the link {' – '.join(self._ends)} is cut: their events go round by {self._region}")

    def _heal(self) -> None:
        self._change(cut=False)
        self._say(f"the link {' – '.join(self._ends)} is healed")

    def _change(self, *, cut: bool) -> None:
        a, b = self._ends
        call(self._home, "cuts", cut=cut, pairs=[(a, b), (b, a)])

    def _kill(self) -> None:
        self._victim = look(self._home).chain(self._region).head
        call(self._home, "kill", node=self._victim, pause_s=_AWAY_S)
        self._say(
            f"{self._victim}, the head of {self._region}, is killed (kill -9); it comes back after {_AWAY_S:g} s"
        )

    def end(self) -> None:
        """Until the chain is whole again."""
        wait_until_serving(self._home)
        chain = look(self._home).chain(self._region)
        self._say(f"{self._victim} is back; the chain of {self._region} is {' → '.join(chain.replicas)}")


@contextmanager
def _children() -> Iterator[list[Worker]]:
    children: list[Worker] = []
    try:
        yield children
    finally:
        for child in children:
            child.end()


def play(seconds: float, subscribers: int, show: Callable[[Progress], None], say: Say) -> Summary:
    """Runs it all: publishes for `seconds`, with `subscribers` of all streams in each region."""
    deployment = standard("demo", first_port=0)
    regions = list(deployment.regions)
    streams = list(deployment.streams)
    with ExitStack() as stack:
        home = stack.enter_context(temporary(deployment, "qanat-demo-", lambda text: say(f"  {text}")))
        urls = look(home).urls()
        say("every region serves; starting a producer and subscribers in each")
        children = stack.enter_context(_children())
        sources = [
            Worker(produce, urls[region], stream, number, seconds)
            for number, (region, stream) in enumerate(zip(regions, streams, strict=True))
        ]
        children += sources
        sinks = [Worker(subscribe, urls[region], streams) for region in regions for _ in range(subscribers)]
        children += sinks
        for child in children:
            child.wait()
        for source in sources:
            source.tell("go")
        began = time.monotonic()
        published, done = [0] * len(sources), [False] * len(sources)
        delivered, latency_ms = [0] * len(sinks), [0.0] * len(sinks)

        def progress() -> Progress:
            def by_region(values: list[int]) -> list[int]:
                return [sum(values[i : i + subscribers]) for i in range(0, len(values), subscribers)]

            late = [max(latency_ms[i : i + subscribers]) for i in range(0, len(sinks), subscribers)]
            return Progress(
                time.monotonic() - began, regions, list(published), by_region(delivered), late, subscribers
            )

        drill = Drill(home, regions, seconds, say)
        while not all(done):
            time.sleep(_REPORT_S)
            drill.at(time.monotonic() - began)
            for i, source in enumerate(sources):
                while not done[i] and source.pipe.poll():
                    word, published[i] = source.wait()
                    done[i] = word == "done"
            for i, sink in enumerate(sinks):
                while sink.pipe.poll():
                    _, delivered[i], latency_ms[i] = sink.wait()
            show(progress())
        drill.end()
        counts = []
        for sink in sinks:
            sink.tell(published)
        for i, sink in enumerate(sinks):
            while (said := sink.wait())[0] != "counted":
                _, delivered[i], latency_ms[i] = said
            counts.append(said[1:])
            delivered[i] = said[1]
        show(progress())
        totals = [sum(column) for column in zip(*counts, strict=True)]
        return Summary(sum(published), len(sinks), totals[0], totals[1], totals[2], totals[3])

"""Many small publishes to a region: what each batch costs the processes of a chain."""

import asyncio
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

from qanat.bench.figures import cpu_s, medians
from qanat.events.batch import Batch, stream_id
from qanat.operate.processes import workers
from qanat.operate.region_processes import RegionProcesses, region_processes
from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.runtime.loop import run as run_loop
from qanat.runtime.service import STREAMS_CHANNEL, Service
from qanat.wire.control import Identity
from qanat.wire.frame import Frame
from qanat.wire.streams import PUBLISH, STORED, Publish, encode_control

DESCRIPTION = (
    "CPU of each replica per batch of one event of 100 bytes, for a chain of 1 and of 2, from 8 and 64"
    " publishers"
)

_BATCHES = 40_000
_WARM = 4_000
_PAYLOAD = bytes(100)
_WINDOW = 8
"""Publishes that each publisher has under way."""
_PUBLISHERS = (8, 64)


class _Publisher(Service):
    """Keeps its window full of batches, each a publish of its own; for `count` of them."""

    def __init__(self, name: str) -> None:
        self._name, self._position, self._left, self._flying = name, 0, 0, 0
        self._connection: Connection | None = None
        self._done: asyncio.Future[None] | None = None

    def on_connect(self, connection: Connection) -> None:
        self._connection = connection

    def publish(self, count: int) -> "asyncio.Future[None]":
        self._left, self._done = count, asyncio.get_running_loop().create_future()
        for _ in range(min(count, _WINDOW)):
            self._next()
        return self._done

    def _next(self) -> None:
        self._position += 1
        self._left -= 1
        self._flying += 1
        batch = Batch.build(stream_id("s"), [_PAYLOAD], source=self._name, position=self._position)
        if self._connection is not None:
            control = encode_control(Publish(self._position))
            self._connection.send(PUBLISH, STREAMS_CHANNEL, control, [batch.encode()])

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        if frame.type != STORED:
            raise RuntimeError(f"a publish was answered by frame type {frame.type}")
        self._flying -= 1
        if self._left:
            self._next()
        elif not self._flying and self._done is not None:
            self._done.set_result(None)


def publish(pipe: Pipe, url: str, publishers: int) -> None:
    """Told how many batches, publishes them, and says when all are stored; ends at 0."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        all_ = [_Publisher(f"publisher {number}") for number in range(publishers)]
        for number, each in enumerate(all_):
            await dial(url, Identity(name=f"bench {number}", role="client"), {STREAMS_CHANNEL: each})
        pipe.send("ready")
        while count := await loop.run_in_executor(None, pipe.recv):
            await asyncio.gather(*(each.publish(count // publishers) for each in all_))
            pipe.send("stored")

    run_loop(main)


def cpu_us(processes: RegionProcesses, publishers: int) -> dict[str, float]:
    """CPU of each replica per batch, head first."""
    chain = processes.chain("a")
    nodes = [processes[name] for name in chain["replicas"]]
    with workers(1, publish, nodes[0].url, publishers) as (source,):
        source.tell(_WARM)
        source.wait()
        before = [cpu_s([node.pid]) for node in nodes]
        source.tell(_BATCHES)
        source.wait()
        spent = [cpu_s([node.pid]) - begun for node, begun in zip(nodes, before, strict=True)]
        source.tell(0)
    names = ("head", "tail") if len(nodes) > 1 else ("alone",)
    return {name: each * 1e6 / _BATCHES for name, each in zip(names, spent, strict=True)}


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds, in µs. Of CPU time and not of the clock, so that other work on the machine
    counts little."""
    results: list[dict[str, float]] = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        figures: dict[str, float] = {}
        for replicas in (1, 2):
            for publishers in _PUBLISHERS:
                streams = {"s": {"owner": "a", "mode": "interval"}}
                with region_processes({"a": replicas}, streams) as processes:
                    for name, value in cpu_us(processes, publishers).items():
                        figures[f"cpu_us_per_batch_{name}_{publishers}"] = value
                        say(f"  cpu_us_per_batch_{name}_{publishers} {value:,.1f}")
        results.append(figures)
    return medians(results)

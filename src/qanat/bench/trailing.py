"""Twenty subscribers that begin at the same time far behind: served by caravans, and beside it each by reads
of its own."""

import asyncio
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.bench.figures import cpu_s, medians
from qanat.client import AsyncClient, ClientSettings
from qanat.operate.processes import Worker, stream_server, workers
from qanat.runtime.loop import run as run_loop

DESCRIPTION = (
    "20 subscribers far behind on one stream: what the server reads for them, together and each alone"
)

_LAGGARDS = 20
_PROCESSES = 2
_EVENTS, _WIDTH, _CALL = 200_000, 500, 2_000
_FILTER = "parity = 1 and n in 50000.."
"""As a subscriber says that wants a part of a stream; the last event is among them."""


def fill(pipe: Pipe, url: str) -> None:
    """A hundred megabytes, in batches as publishers make them."""

    async def main() -> None:
        data = np.random.default_rng(1).integers(0, 256, _CALL * _WIDTH, np.uint8)
        column = pa.Array.from_buffers(pa.binary(_WIDTH), _CALL, [None, pa.py_buffer(data)])
        async with AsyncClient(url) as client:
            for start in range(0, _EVENTS, _CALL):
                numbers = np.arange(start, start + _CALL)
                attributes = {"n": pa.array(numbers), "parity": pa.array(numbers % 2)}
                await client.publish_many("s", column, attributes=attributes)
            pipe.send("ready")

    run_loop(main)


def catch_up(pipe: Pipe, url: str, alone: bool, where: str) -> None:
    """Some subscribers that are sent what they take, from the first event on; when told. `alone`: as one
    range each, which the server reads for one at a time, as it did for everybody before there were
    caravans."""

    async def one(client: AsyncClient) -> None:
        if alone:
            reading = client.read("s", 1, _EVENTS, where=where)
            while await reading.take():
                pass
            return
        subscription = client.subscribe("s", start="earliest", where=where)
        async for batch in subscription.batches():
            if batch.last >= _EVENTS:
                break

    async def main() -> None:
        settings = ClientSettings(in_place=False)
        clients = [AsyncClient(url, settings=settings) for _ in range(_LAGGARDS // _PROCESSES)]
        for client in clients:
            await client.__aenter__()
        pipe.send("ready")
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        began = time.monotonic()
        await asyncio.gather(*map(one, clients))
        pipe.send((began, time.monotonic()))
        await asyncio.gather(*(client.close() for client in clients))

    run_loop(main)


def status(url: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def main() -> None:
        async with AsyncClient(url) as client:
            found.extend(await client.ask("streams"))

    run_loop(main)
    return next(one for one in found if one["stream"] == "s")


def measured(url: str, server: Worker, alone: bool, where: str) -> dict[str, float]:
    before, cpu_before = status(url), cpu_s([server.pid])
    with workers(_PROCESSES, catch_up, url, alone, where) as sinks:
        for sink in sinks:
            sink.tell("go")
        spans = [sink.wait() for sink in sinks]
    after = status(url)
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)

    def grown(*names: str) -> float:
        return float(sum(after[name] - before[name] for name in names))

    return {
        "reads": grown("caravan_reads", "alone_reads"),
        "read_mb": grown("caravan_read_bytes", "alone_bytes") / 1e6,
        "server_cpu_s": cpu_s([server.pid]) - cpu_before,
        "mb_per_s": _LAGGARDS * _EVENTS * _WIDTH / 1e6 / seconds,
    }


def one_round(number: int, say: Callable[[str], None]) -> dict[str, float]:
    """Who is measured first alternates: the first finds other caches than the second."""
    kinds = (("caravans", False), ("alone", True))
    figures: dict[str, float] = {}
    with stream_server() as (url, server), workers(1, fill, url):
        for kind, where in (("", ""), ("_filtered", _FILTER)):
            for name, alone in kinds if number % 2 else reversed(kinds):
                for figure, value in measured(url, server, alone, where).items():
                    figures[f"{figure}{kind}_{name}"] = value
                    say(f"  {figure}{kind}_{name} {value:,.2f}")
    return figures


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds; every round starts a server of its own."""
    results = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        results.append(one_round(number, say))
    return medians(results)

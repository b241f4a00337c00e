"""How late events are: from the call of `publish` in one process to the event in the hands of another."""

import asyncio
import gc
import time
from multiprocessing.connection import Connection as Pipe

import numpy as np

from qanat.client import AsyncClient
from qanat.operate.processes import workers
from qanat.runtime.loop import run

EVENT_BYTES = 100
_CONNECTIONS_PER_PROCESS = 250


def tick(pipe: Pipe, url: str, stream: str, count: int, every_s: float) -> None:
    """Publishes an event of `EVENT_BYTES` at each tick, its own time in it."""

    async def main() -> None:
        async with AsyncClient(url) as client:
            await client.publish(stream, bytes(EVENT_BYTES))
            pipe.send("ready")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            due = time.monotonic()
            for _ in range(count):
                due += every_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                client.publish(stream, time.monotonic_ns().to_bytes(8, "little") + bytes(EVENT_BYTES - 8))
            await client.flush()
            pipe.send("done")

    run(main)


def watch(pipe: Pipe, url: str, stream: str, connections: int, count: int) -> None:
    """`connections` subscribers with a connection each; says for each event when the last of them had it."""

    async def one(client: AsyncClient, latest_ns: list[int]) -> None:
        subscription = await client.subscribe(stream).confirmed()
        pipe_ready.release()
        seen = 0
        while seen < count:
            for batch in await subscription.take():
                now = time.monotonic_ns()
                for i in range(batch.count):
                    delay = now - int.from_bytes(batch.payload(i)[:8], "little")
                    if delay > latest_ns[seen]:
                        latest_ns[seen] = delay
                    seen += 1

    async def main() -> None:
        clients = [AsyncClient(url) for _ in range(connections)]
        for client in clients:
            await client.ready()
        latest_ns = [0] * count
        tasks = [asyncio.create_task(one(client, latest_ns)) for client in clients]
        for _ in clients:
            await pipe_ready.acquire()
        gc.freeze()  # as a process with very many subscriptions would: what is here now stays
        pipe.send("ready")
        await asyncio.gather(*tasks)
        pipe.send(np.array(latest_ns))

    pipe_ready = asyncio.Semaphore(0)
    run(main)


def latency_ms(url: str, stream: str, count: int) -> tuple[float, float]:
    """(p50, p99) in ms of one event per ms to one consumer."""
    with (
        workers(1, tick, url, stream, count, 0.001) as (source,),
        workers(1, watch, url, stream, 1, count) as (sink,),
    ):
        source.tell("go")
        delays_ms = sink.wait() / 1e6
    return float(np.percentile(delays_ms, 50)), float(np.percentile(delays_ms, 99))


def latency_all_ms(url: str, stream: str, subscribers: int, count: int) -> float:
    """Median over `count` events, at 10 a second, of the time in ms until all of `subscribers` have it."""
    processes = -(-subscribers // _CONNECTIONS_PER_PROCESS)
    with (
        workers(1, tick, url, stream, count, 0.1) as (source,),
        workers(processes, watch, url, stream, subscribers // processes, count) as sinks,
    ):
        source.tell("go")
        delays_ms = np.max([sink.wait() for sink in sinks], axis=0) / 1e6
    return float(np.median(delays_ms))

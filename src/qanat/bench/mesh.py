"""Real clients of one server, fed by it alone or by way of the mesh: what the server sends, and how late
events are."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

import numpy as np

from qanat.bench.figures import cpu_s, medians
from qanat.bench.mesh_speed import WARM_UP_S, measure, region_places, region_world
from qanat.checks.mesh import Feed, MeshStudyConfig
from qanat.client import AsyncClient, Client
from qanat.client.ways import Via
from qanat.events.batch import Batch
from qanat.operate.processes import stream_server, workers
from qanat.runtime.loop import run as run_loop
from qanat.sim import SimNode, World

DESCRIPTION = "copies that a server sends to 40 clients, directly and by way of the mesh; the mesh simulated"

PROCESSES, CLIENTS = 4, 10
"""Processes, and clients in each: on two cores their own work is most of what is measured."""
BATCHES, EVENTS, BYTES = 100, 100, 100
EVERY_S = 0.05


def read(pipe: Pipe, url: str, via: Via) -> None:
    """Clients that read the stream; says when all get it by that way, then how late each had each batch."""

    async def one(client: AsyncClient, delays_ns: list[int], ready: asyncio.Semaphore) -> None:
        subscription = await client.subscribe("s", via=via).confirmed()
        counted = waiting = False
        while len(delays_ns) < BATCHES:
            for batch in await subscription.take():
                sent_ns = int.from_bytes(batch.payload(batch.count - 1)[:8], "little")
                if sent_ns:
                    delays_ns.append(time.monotonic_ns() - sent_ns)
                elif not counted:
                    waiting = True
            if waiting and subscription.way in (via, "mesh"):
                counted, waiting = True, False
                ready.release()

    async def main() -> None:
        clients = [await AsyncClient(url).ready() for _ in range(CLIENTS)]
        delays_ns: list[list[int]] = [[] for _ in clients]
        ready = asyncio.Semaphore(0)
        tasks = [
            asyncio.create_task(one(client, delays, ready))
            for client, delays in zip(clients, delays_ns, strict=True)
        ]
        pipe.send("begun")
        for _ in clients:
            await ready.acquire()
        pipe.send("ready")
        await asyncio.gather(*tasks)
        pipe.send(np.array(delays_ns))

    run_loop(main)


def _round(via: Via) -> dict[str, float]:
    with stream_server() as (url, server), Client(url) as client:
        with workers(PROCESSES, read, url, via) as readers:
            # Little by little, until everyone is fed by that way; these batches carry no time.
            while not all(reader.pipe.poll() for reader in readers):
                client.publish("s", bytes(BYTES))
                time.sleep(0.05)
            for reader in readers:
                reader.wait()
            sent, cpu = client.ask("status")["sent_bytes"], cpu_s([server.pid])
            due = time.monotonic()
            for _ in range(BATCHES):
                due += EVERY_S
                time.sleep(max(0.0, due - time.monotonic()))
                payload = time.monotonic_ns().to_bytes(8, "little") + bytes(BYTES - 8)
                client.publish_many("s", [payload] * EVENTS)
            delays_ms = np.concatenate([reader.wait() for reader in readers]) / 1e6
            sent, cpu = client.ask("status")["sent_bytes"] - sent, cpu_s([server.pid]) - cpu
    return {
        f"copies_{via}": sent / (BATCHES * EVENTS * BYTES),
        f"server_cpu_percent_{via}": 100 * cpu / (BATCHES * EVERY_S),
        f"latency_{via}_ms_p50": float(np.percentile(delays_ms, 50)),
        f"latency_{via}_ms_p99": float(np.percentile(delays_ms, 99)),
    }


def _simulated(clients: int) -> dict[str, float]:
    """The same load over links of 1 ms, with processors that take no time."""
    world = region_world(region_places(clients), MeshStudyConfig())
    delays_us: list[int] = []
    warm_us = round(WARM_UP_S * 1e6)

    def note(world: World, node: SimNode, item: Batch) -> None:
        delays_us.append(world.now - item.time_us)

    world.deliver_hooks.append(note)
    world.start()
    world.run(warm_us)
    Feed(every_ms=EVERY_S * 1000, batch_events=EVENTS, payload_bytes=BYTES, until_s=BATCHES * EVERY_S).start(
        world
    )
    world.run(warm_us + round((BATCHES * EVERY_S + 2.0) * 1e6))
    delays_ms = np.array(delays_us) / 1000
    return {
        "sim_latency_ms_p50": float(np.percentile(delays_ms, 50)),
        "sim_latency_ms_p99": float(np.percentile(delays_ms, 99)),
    }


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    results: list[dict[str, float]] = []
    for number in range(1, rounds + 1):
        figures: dict[str, float] = {"clients": PROCESSES * CLIENTS}
        ways: tuple[Via, Via] = ("server", "mesh") if number % 2 else ("mesh", "server")
        for via in ways:
            figures |= _round(via)
            say(
                f"round {number}, by {via}: {figures[f'copies_{via}']:.1f} copies, p50"
                f" {figures[f'latency_{via}_ms_p50']:.1f} ms"
            )
        results.append(figures)
    say("the same, simulated; then 1,000 simulated clients at 100,000 events/s for a second")
    simulated = [measure() for _ in range(min(rounds, 2))]
    lag = [(one["published"] - one["mean_delivered"]) / 100_000 for one in simulated]
    return (
        medians(results)
        | _simulated(PROCESSES * CLIENTS)
        | {
            "sim_messages_per_s": statistics.median(one["messages_per_wall_s"] for one in simulated),
            "sim_mean_lag_ms": 1000 * statistics.median(lag),
        }
    )

"""How long publishers wait when the head of a region's chain is killed: alone, and together with the region's
coordinator."""

import asyncio
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

import numpy as np

from qanat.client import AsyncClient
from qanat.operate.processes import Worker, workers
from qanat.operate.region_processes import NodeProcess, RegionProcesses, region_processes
from qanat.runtime.loop import run as run_loop

DESCRIPTION = (
    "longest wait for the answer to a publish when a chain's head is killed, alone and with the coordinator"
)

_PARTS = ("lone_head", "head_with_coordinator")
_EVERY_S = 0.005
"""Between two publishes."""
_BACK_S = 0.5
"""After so long a killed coordinator is started again, as by whoever runs it; the killed head, once publishes
are answered again."""
_PATIENCE_S = 90.0
_REGION, _STREAM = "a", "s"


class _Waits:
    """Of publishes, since they were last asked for."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.newest_s = 0.0
        """When the newest of the answered publishes was made."""

    async def publish(self, client: AsyncClient, stream: str) -> None:
        sent_s = time.monotonic()
        await client.publish(stream, bytes(100))
        self.longest_s = max(self.longest_s, time.monotonic() - sent_s)
        self.newest_s = max(self.newest_s, sent_s)


def publish(pipe: Pipe, url: str, stream: str) -> None:
    """Publishes an event now and then, whatever became of those before; told a time, says what the longest
    wait was once an event from after it is stored."""

    async def main() -> None:
        loop, waits = asyncio.get_running_loop(), _Waits()
        async with AsyncClient(url, patience=_PATIENCE_S) as client, asyncio.TaskGroup() as publishes:
            await waits.publish(client, stream)
            pipe.send("ready")
            asked = loop.run_in_executor(None, pipe.recv)
            while True:
                publishes.create_task(waits.publish(client, stream))
                if asked.done() and waits.newest_s > asked.result():
                    pipe.send(waits.longest_s)
                    waits.longest_s = 0.0
                    asked = loop.run_in_executor(None, pipe.recv)
                await asyncio.sleep(_EVERY_S)

    run_loop(main)


def _one(processes: RegionProcesses, publisher: Worker, victims: list[NodeProcess]) -> float:
    """Kills them at once; the longest wait in ms. At the end all is as it was before."""
    publisher.tell(time.monotonic())
    publisher.wait()  # what was before counts no more
    began = time.monotonic()
    for victim in victims:
        victim.kill()
    for victim in victims[1:]:
        time.sleep(max(0.0, began + _BACK_S - time.monotonic()))
        victim.begin()
    publisher.tell(time.monotonic())
    waited_s: float = publisher.wait()
    for victim in victims[1:]:
        victim.wait_ready()
    victims[0].start()
    processes.wait_chain(_REGION, 2)
    return waited_s * 1000


def _measure(parts: tuple[str, ...], rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    figures: dict[str, float] = {}
    with (
        region_processes({_REGION: 2}, {_STREAM: {"owner": _REGION}}) as processes,
        workers(1, publish, processes.url(_REGION), _STREAM) as (publisher,),
    ):
        for part in parts:
            waits: list[float] = []
            for number in range(rounds):
                head = processes[processes.chain(_REGION)["head"]]
                others = [processes[f"{_REGION}/coordinator"]] if part == "head_with_coordinator" else []
                waits.append(_one(processes, publisher, [head, *others]))
                say(f"{part}, round {number + 1} of {rounds}: {waits[-1]:,.0f} ms")
            for percent in (50, 99):
                figures[f"{part}_ms_p{percent}"] = float(np.percentile(waits, percent))
            figures[f"{part}_ms_most"] = max(waits)
    return figures


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Percentiles over the rounds, each of which kills once in each way."""
    return _measure(_PARTS, rounds, say)


def run_only(part: str, rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    return _measure((part,), rounds, say)

"""Clients made to be killed: a publisher that goes on where its name stopped, a subscriber that goes on where
its journal ends, a member of the mesh that does the same. `python -m qanat_workshop.drill_clients
publish|subscribe|member …`; a publisher finishes when there is a file `….stop` beside the one that it counts
in."""

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from qanat.client import AsyncClient, ClientSettings, Receipts
from qanat.client.errors import PublishRefused
from qanat.client.ways import Via
from qanat.runtime import logs
from qanat.runtime.lean import do_without_pandas
from qanat.runtime.loop import run
from qanat.runtime.settings import TransportSettings
from qanat.studies.tally import heads, make

SETTINGS = ClientSettings(patience_ms=150_000)
TRANSPORT = TransportSettings(backoff_limit_ms=300, heartbeat_ms=500, heartbeat_misses=4)
WIDTH, BATCH, PAUSE_S, IN_FLIGHT = 64, 200, 0.02, 8
FULL_S = 0.2
"""After a refusal for want of room, until the next attempt."""
DELIVERIES = "deliveries"
ENTRY = struct.Struct("<6Q")
"""Of a journal: stream, first and last sequence number, events, first counter, whether the counters follow
each other."""


@asynccontextmanager
async def _patient(url: str, name: str = "", record: Path | None = None) -> AsyncIterator[AsyncClient]:
    """A client that does not mind if nobody answers at first: all replicas may have been killed just now."""
    client = await AsyncClient(url, name=name, record=record, settings=SETTINGS, transport=TRANSPORT).start()
    try:
        yield client
    finally:
        await client.close()


async def publish(url: str, stream: str, number: int, acknowledged_file: str) -> None:
    """Writes how many events were acknowledged into the file as it goes. Where the disk is full it goes on
    where the stream ends, when there is room."""
    while True:
        try:
            return await _publish(url, stream, number, acknowledged_file)
        except PublishRefused as error:
            if error.code != "disk_full":
                raise
        await asyncio.sleep(FULL_S)


async def _publish(url: str, stream: str, number: int, acknowledged_file: str) -> None:
    stop = Path(f"{acknowledged_file}.stop")
    descriptor = os.open(acknowledged_file, os.O_WRONLY | os.O_CREAT)
    flying: asyncio.Queue[tuple[int, Receipts]] = asyncio.Queue(IN_FLIGHT)

    async def acknowledge() -> None:
        while True:
            upto, receipts = await flying.get()
            await receipts
            os.pwrite(descriptor, struct.pack("<Q", upto), 0)
            flying.task_done()

    async with _patient(url, name=f"producer-{number}") as client:
        acknowledging = asyncio.create_task(acknowledge())
        published = await client.stored(stream)
        os.pwrite(descriptor, struct.pack("<Q", published), 0)  # the head has just said so
        while not stop.exists() and not acknowledging.done():
            receipts = await client.send_many(stream, make(number, published, BATCH, WIDTH))
            published += BATCH
            await flying.put((published, receipts))
            await asyncio.sleep(PAUSE_S)
        await asyncio.wait(
            [acknowledging, asyncio.create_task(flying.join())], return_when=asyncio.FIRST_COMPLETED
        )
        if acknowledging.done():
            acknowledging.result()
        acknowledging.cancel()


async def subscribe(url: str, streams: list[str], journal: str, via: Via) -> None:
    """Appends an entry for each batch; begins after the last entry of each stream. What it is given is
    recorded for audits, too, in the folder `deliveries` beside its journal."""
    begin = {number: last + 1 for number, _, last, *_ in read_journal(Path(journal))}
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def read(client: AsyncClient, number: int) -> None:
        start = begin.get(number, 1)
        async for batch in client.subscribe(streams[number], start=start, via=via).batches():
            counters = heads(batch.payloads())["counter"]
            follow = bool((np.diff(counters) == 1).all())
            entry = (number, batch.first, batch.last, len(counters), int(counters[0]), follow)
            os.write(descriptor, ENTRY.pack(*entry))

    async with _patient(url, Path(journal).stem, Path(journal).with_name(DELIVERIES)) as client:
        await asyncio.gather(*(read(client, number) for number in range(len(streams))))


def read_journal(path: Path) -> list[tuple[int, ...]]:
    """All whole entries; a last one that a kill cut short is cut off."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = len(data) - len(data) % ENTRY.size
    if whole < len(data):
        os.truncate(path, whole)
    return list(ENTRY.iter_unpack(data[:whole]))


if __name__ == "__main__":
    do_without_pandas()
    logs.set_up("error")
    role, url, *rest = sys.argv[1:]
    if role == "publish":
        run(lambda: publish(url, rest[0], int(rest[1]), rest[2]))
    else:
        run(lambda: subscribe(url, rest[1:], rest[0], "mesh" if role == "member" else "server"))

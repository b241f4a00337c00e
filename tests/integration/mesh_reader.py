"""A process with several clients that read one stream by way of the mesh; the last of them is a visitor.

Arguments: URL, stream, number of clients. Prints a JSON line whenever something changed, as seldom as every
20 ms: the last number that each client has, where it gets its events from, and its name as a member. Ends at
a gap, saying so.
"""

from __future__ import annotations

import asyncio
import json
import sys

from qanat.client import AsyncClient, ClientSettings, MeshSettings
from qanat.protocols.mesh import MeshConfig
from qanat.protocols.views import ViewsConfig
from qanat.runtime.loop import run

MESH, VIEWS = (
    MeshConfig(idle_ms=300, answer_ms=500),
    ViewsConfig(gossip_ms=50, proxy_rounds=5, forget_rounds=20),
)


async def main() -> None:
    url, stream, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    last, gap = [0] * count, [""]

    async def read(number: int, client: AsyncClient) -> None:
        async for batch in client.subscribe(stream, start=1, via="mesh").batches():
            if batch.first != last[number] + 1:
                gap[0] = f"client {number} had {last[number]} and got {batch.first}..{batch.last}"
            last[number] = batch.last

    clients = []
    for number in range(count):
        mesh = MeshSettings(listen=number < count - 1, mesh=MESH, views=VIEWS, probe_ms=1000)
        clients.append(await AsyncClient(url, mesh=mesh, settings=ClientSettings(patience_ms=60_000)).ready())
    tasks = [asyncio.create_task(read(number, client)) for number, client in enumerate(clients)]
    said = ""
    while not gap[0]:
        for task in tasks:
            if task.done():
                task.result()
        ways = [subscription.way for client in clients for subscription in client._subscriptions]
        names = [client.member.name if client.member is not None else "" for client in clients]
        line = json.dumps({"last": last, "ways": ways, "names": names})
        if line != said:
            print(line, flush=True)
            said = line
        await asyncio.sleep(0.02)  # the pace of the reports
    print(json.dumps({"gap": gap[0]}), flush=True)


if __name__ == "__main__":
    run(main)

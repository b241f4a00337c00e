"""Whatever a stranger says to a server, a region's replica or its coordinator: no machine stops, others are
served, and /healthz is well."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.hostile_frames import Fuzzer
from tests.servers.stream_server import ServerProcess
from tests.waiting import until, wait_until

from qanat.client import AsyncClient
from qanat.operate.region_processes import region_processes


async def _serves(url: str, stream: str, name: str) -> None:
    """What is published comes."""
    async with AsyncClient(url, name=name) as client:
        taken: list[bytes] = []

        async def read() -> None:
            async for event in client.subscribe(stream, start="latest"):
                taken.append(event.payload)

        reading = asyncio.create_task(read())
        told = 0

        async def came() -> bool:
            nonlocal told
            told += 1
            await client.publish(stream, b"%d" % told)
            return bool(taken)

        while not await came():
            await asyncio.sleep(0.01)
        await until(lambda: taken[-1] == b"%d" % told)
        reading.cancel()


def _attack_a_server(tmp_path: Path, seed: int, rounds: int) -> int:
    async def main() -> int:
        fuzzer = Fuzzer(seed, "shared", "other")
        for stream in ("calm", "shared", "other"):
            await _serves(server.url, stream, "neighbour")
        for _ in range(rounds):
            await fuzzer.connection(server.url, (1, 1, 1, 16, 17, 5, 60_000))
            await fuzzer.connection(server.url, (1,))
            await fuzzer.connection(server.url, (17,))
            fuzzer.datagrams(server.url, 10)
            await fuzzer.handshake(server.url)
            await fuzzer.request(server.admin)
        await _serves(server.url, "calm", "neighbour")
        return fuzzer.said

    server = ServerProcess(tmp_path / str(seed)).start("--set", "streams.max_streams=40")
    try:
        said = asyncio.run(main())
        assert server.health() == "ok"
        machines = server.status()["machines"]
        assert {name: (each["failure"], each["restarts"]) for name, each in machines.items()} == {
            "mesh": (None, 0)
        }
        return said
    finally:
        server.end()


def test_a_server_stays_well_whatever_is_said_to_it(tmp_path: Path) -> None:
    assert _attack_a_server(tmp_path, 1, 40) > 1_500


@pytest.mark.soak
def test_a_server_stays_well_whatever_is_said_to_it_for_long(tmp_path: Path) -> None:
    for seed in range(100, 110):
        _attack_a_server(tmp_path, seed, 300)


def _attack_a_region(seed: int, rounds: int) -> int:
    async def main() -> int:
        members = tuple(process.name for process in regions.replicas("eu"))
        fuzzer = Fuzzer(seed, "prices", names=("x/proxy-9",))
        for _ in range(rounds):
            for process in regions.replicas("eu"):
                await fuzzer.connection(process.url, (16,))
                await fuzzer.connection(process.url, (1, 16, 17))
                fuzzer.datagrams(process.url, 10)
                await fuzzer.handshake(process.url)
            await fuzzer.connection(regions["eu/coordinator"].url, (16,))
        assert len(members) == 2
        await _serves(regions.url("eu"), "prices", "neighbour")
        return fuzzer.said

    with region_processes({"eu": 2}, {"prices": {"owner": "eu"}}) as regions:
        regions.wait_chain("eu", members=2)
        said = asyncio.run(main())
        for process in [*regions.replicas("eu"), regions["eu/coordinator"]]:
            assert process.running, process.name
            wait_until(lambda: process.get("/healthz") == b"ok\n", say=lambda: process.get("/healthz"))  # noqa: B023
            for machine, each in process.status()["machines"].items():
                assert each == {"failure": None, "restarts": 0}, (process.name, machine)
        return said


def test_a_region_stays_well_whatever_is_said_to_its_processes(tmp_path: Path) -> None:
    assert _attack_a_region(1, 12) > 500


@pytest.mark.soak
def test_a_region_stays_well_whatever_is_said_to_its_processes_for_long(tmp_path: Path) -> None:
    for seed in range(200, 206):
        _attack_a_region(seed, 200)


def test_operators_get_in_however_many_ask_without_an_end(tmp_path: Path) -> None:
    async def main() -> None:
        host, _, port = server.admin.removeprefix("http://").rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        for _, writer in silent:
            writer.write(b"GET /healthz HTT")
        assert await asyncio.to_thread(server.health) == "ok"
        for _, writer in silent:
            writer.transport.abort()

    server = ServerProcess(tmp_path).start()
    try:
        asyncio.run(main())
    finally:
        server.end()

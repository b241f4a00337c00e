"""`qanat serve` on a disk that is full: it says so, goes on reading, and takes events again when there is
room."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.streaming import take
from tests.servers.small_disk import fill, small_disk
from tests.servers.stream_server import ServerProcess
from tests.waiting import run

from qanat.client import AsyncClient, PublishRefused


@pytest.mark.paper("S11")
def test_a_server_on_a_full_disk_refuses_reads_on_and_recovers(tmp_path: Path) -> None:
    async def refused(client: AsyncClient, stream: str) -> None:
        with pytest.raises(PublishRefused) as caught:
            await client.publish(stream, bytes(20_000))
        assert (caught.value.code, caught.value.definite) == ("disk_full", True)

    async def tried(client: AsyncClient, stream: str) -> int:
        while True:
            with suppress(PublishRefused):  # said once more by the first publish after one that was refused
                return await client.publish(stream, b"made")

    async def work(server: ServerProcess, ballast: Path) -> None:
        async with AsyncClient(server.url) as client, AsyncClient(server.url) as other:
            stored = [await client.publish("s", b"first")]
            fill(ballast)
            with pytest.raises(PublishRefused):
                while True:  # what the file had room for
                    stored.append(await client.publish("s", bytes(20_000)))
            await refused(client, "s")
            await refused(client, "new")
            await refused(other, "another")
            assert len(await take(client.subscribe("s", start=1), len(stored))) == len(stored)
            assert [each["stream"] for each in await other.ask("streams")] == ["s"]
            shutil.rmtree(ballast)
            assert await client.publish("s", b"again") == len(stored) + 1
            assert await tried(client, "new") == await tried(other, "another") == 1

    with small_disk(tmp_path / "small", "2m,nr_inodes=64") as disk:
        server = ServerProcess(disk / "data")
        try:
            server.start()
            run(work(server, disk / "ballast"))
            assert server.stop() == 0
        finally:
            server.end()


def test_a_server_starts_on_a_full_disk_after_a_stream_could_not_be_made(tmp_path: Path) -> None:
    async def before(server: ServerProcess, ballast: Path) -> None:
        async with AsyncClient(server.url) as client:
            await client.publish("s", b"first")
            fill(ballast)
            for pages in range(1, 6):  # room for some of its files, not for all
                with (ballast / "bytes").open("ab", buffering=0) as out:
                    out.truncate(out.tell() - 4096)
                for name in list(ballast.glob("name-*"))[: 2 * pages]:
                    name.unlink()
                try:
                    await client.publish(f"new {pages}", b"")
                except PublishRefused as error:
                    assert error.code == "disk_full"
                fill(ballast)

    async def after(server: ServerProcess) -> None:
        async with AsyncClient(server.url) as client:
            assert (await take(client.subscribe("s", start=1), 1))[0].payload == b"first"

    with small_disk(tmp_path / "small", "2m,nr_inodes=64") as disk:
        server = ServerProcess(disk / "data")
        try:
            server.start()
            run(before(server, disk / "ballast"))
            server.kill()
            server.start()
            run(after(server))
        finally:
            server.end()

"""The process of links: what is cut passes nothing, what is cut one way passes the other, and a restart
remembers."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.waiting import until

from qanat.operate.cuts import Cuts
from qanat.operate.links import LinksNode, LinksSettings
from qanat.operate.toml_writer import to_toml
from qanat.runtime.config import load
from qanat.runtime.loop import run

EU_US = frozenset({("eu", "us"), ("us", "eu")})


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def links(file: Path) -> AsyncIterator[LinksNode]:
    node = LinksNode(partial(load, LinksSettings, file=file))
    ready = asyncio.Event()
    serving = asyncio.create_task(node.serve(ready.set))
    await asyncio.wait_for(ready.wait(), 10)
    try:
        yield node
    finally:
        node.stop()
        await serving


def free_port() -> int:
    from qanat.operate.ports import assign

    return assign({}, ["x"], 0)[0]["x"]


def write(file: Path, cuts: Path, **ways: tuple[str, str, int, int]) -> None:
    table = {
        name: {"dialling": a, "remote": b, "listen": f"127.0.0.1:{port}", "target": f"127.0.0.1:{target}"}
        for name, (a, b, port, target) in ways.items()
    }
    file.write_text(to_toml({"admin": {"enabled": False}, "cuts": str(cuts), "links": table}))


async def arrives(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, word: bytes) -> bool:
    writer.write(word)
    try:
        return await asyncio.wait_for(reader.readexactly(len(word)), 0.3) == word
    except TimeoutError:
        return False


def state(node: LinksNode, name: str) -> str:
    shown = node.status()["links"]
    assert isinstance(shown, dict)
    return str(shown.get(name, {}).get("state", ""))


@pytest.mark.parametrize("cut", [frozenset({("eu", "us")}), frozenset({("us", "eu")}), EU_US])
def test_a_cut_link_passes_nothing_until_it_heals(tmp_path: Path, cut: frozenset[tuple[str, str]]) -> None:
    file, cuts, port = tmp_path / "links.toml", tmp_path / "cuts.json", free_port()

    async def main() -> None:
        async with echo() as target:
            write(file, cuts, a=("eu", "us", port, target))
            async with links(file) as node:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                assert await arrives(reader, writer, b"one")
                Cuts(cut).save(cuts)
                signal.raise_signal(signal.SIGHUP)
                await until(lambda: state(node, "a") != "up")
                assert state(node, "a") == ("cut" if len(cut) == 2 else "cut one way")
                assert not await arrives(reader, writer, b"two")
                Cuts().save(cuts)
                signal.raise_signal(signal.SIGHUP)
                assert await asyncio.wait_for(reader.readexactly(3), 20) == b"two"
                writer.close()

    run(main)


def test_a_cut_survives_a_restart_and_links_come_and_go(tmp_path: Path) -> None:
    file, cuts, port, other = tmp_path / "links.toml", tmp_path / "cuts.json", free_port(), free_port()

    async def main() -> None:
        async with echo() as target:
            Cuts(EU_US).save(cuts)
            write(file, cuts, a=("eu", "us", port, target))
            async with links(file) as node:
                assert state(node, "a") == "cut"
                write(file, cuts, b=("eu", "asia", other, target))
                signal.raise_signal(signal.SIGHUP)
                await until(lambda: state(node, "b") == "up" and state(node, "a") == "")
                reader, writer = await asyncio.open_connection("127.0.0.1", other)
                assert await arrives(reader, writer, b"one")
                writer.close()

    run(main)

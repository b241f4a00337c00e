"""Loops, stream servers and logs for tests: a server inside the test's own loop, or as a process that can be
killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.publishing import KEPT, Nursery, nursery
from tests.servers.rocksdb import RocksProcess, rocks_process
from tests.servers.stream_server import ServerProcess

from qanat.runtime.config import load
from qanat.runtime.loop import run
from qanat.serving.server import StreamServer
from qanat.serving.settings import StreamServerSettings

Go = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def go(request: pytest.FixtureRequest) -> Go:
    """Runs a coroutine function on each of the two loops."""
    return lambda main: run(main, uvloop=request.param)


Serving = Callable[..., AbstractAsyncContextManager[StreamServer]]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """`async with serving("log.mode=interval") as server:`; the data stay for a second one in the same
    test."""

    @asynccontextmanager
    async def serve(*flags: str, file: Path | None = None) -> AsyncIterator[StreamServer]:
        named = ("node.listen=127.0.0.1:0", f"node.data={tmp_path / 'data'}", "admin.enabled=false", *flags)
        server = StreamServer(partial(load, StreamServerSettings, flags=named, file=file))
        await server.on_start()
        try:
            yield server
        finally:
            await server.on_stop()

    return serve


@pytest.fixture
def server_process(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data")
    try:
        yield process
    finally:
        process.end()


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksProcess]:
    """A RocksDB in a process of its own, which keeps its log."""
    with rocks_process(tmp_path / "shop", **KEPT) as process:
        yield process


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Nursery]:
    with nursery(tmp_path) as found:
        yield found

"""Loops and stream servers for tests: a server inside the test's own loop, or as a process that can be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qanat.nodes.server import StreamServer
from qanat.nodes.settings import StreamServerSettings
from qanat.runtime.config import load
from qanat.runtime.loop import run

Go = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def go(request: pytest.FixtureRequest) -> Go:
    """Runs a coroutine function on each of the two loops."""
    return lambda main: run(main, uvloop=request.param)


Serving = Callable[..., AbstractAsyncContextManager[StreamServer]]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    """`async with serving("log.mode=interval") as server:`; the data stay for a second one in the same test."""

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


class ServerProcess:
    """`qanat serve` as a user runs it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"qanat://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *flags: str) -> None:
        """On the port it had before, if it ran before."""
        command = [sys.executable, "-m", "qanat", "serve", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--data", str(self.data), "--admin-port", "0", "--set", "logging.level=error", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"qanat://127\.0\.0\.1:(\d+)", line)
        assert found, f"the server said {line!r}"
        self.port = int(found.group(1))

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(20)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code

    def end(self) -> None:
        if self._process is not None:
            self.kill()


@pytest.fixture
def server_process(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data")
    try:
        yield process
    finally:
        process.end()

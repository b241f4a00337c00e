"""Child processes: a server, producers, consumers, each on its own as users run them; for demonstrations and
benchmarks."""

import asyncio
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from qanat.events.errors import LocalError
from qanat.events.interrupts import put_off
from qanat.runtime.config import load
from qanat.runtime.loop import run
from qanat.serving.server import StreamServer
from qanat.serving.settings import StreamServerSettings

_CONTEXT = multiprocessing.get_context("spawn")
_PATIENCE_S = 120.0


_alive: set["Worker"] = set()


def end_processes() -> None:
    """Kills all workers of this process, and what they started, at once; for who does not want to wait."""
    for worker in list(_alive):
        worker.kill()


class Worker:
    """A child process that talks over a pipe; its first word is `ready` or what it offers."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        self.pipe, child = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_child, args=(target, child, *args), daemon=True)
        self._name = getattr(target, "__name__", "a worker")
        with put_off():
            self._process.start()
            child.close()
            _alive.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def wait(self) -> Any:
        """The child's next word; an error if it ended without one."""
        if not self.pipe.poll(_PATIENCE_S):
            raise LocalError(f"{self._name} said nothing for {_PATIENCE_S:g} s")
        try:
            return self.pipe.recv()
        except EOFError:
            raise LocalError(f"{self._name} ended early; see its error above") from None

    def tell(self, word: Any) -> None:
        self.pipe.send(word)

    def kill(self) -> None:
        """And its own children: a Java that is left alone while it starts finds nobody to tell, and stays."""
        pids = [self.pid]
        for pid in pids:
            with suppress(OSError, ValueError):
                pids += [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self, patience_s: float = 10.0) -> None:
        _alive.discard(self)
        self._process.terminate()
        self._process.join(patience_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _child(target: Callable[..., None], pipe: Pipe, *args: Any) -> None:
    """Ctrl-C goes to the whole group; the parent decides what it means, and ends its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError, EOFError, ConnectionResetError):
        target(pipe, *args)


@contextmanager
def workers(count: int, target: Callable[..., None], *args: Any, **options: Any) -> Iterator[list[Worker]]:
    """`count` children, each ready, all ended at the end."""
    children = [Worker(partial(target, **options) if options else target, *args) for _ in range(count)]
    try:
        for child in children:
            child.wait()
        yield children
    finally:
        for child in children:
            child.end()


def serve(pipe: Pipe, data: str, mode: str) -> None:
    """A stream server on any free port; says its URL, ends when told."""

    async def main() -> None:
        flags = (
            "node.listen=127.0.0.1:0",
            f"node.data={data}",
            f"log.mode={mode}",
            "admin.enabled=false",
            "logging.level=error",
        )
        server = StreamServer(partial(load, StreamServerSettings, environment=os.environ, flags=flags))
        loop = asyncio.get_running_loop()

        def leave() -> None:  # the parent told us, or is gone
            loop.remove_reader(pipe.fileno())
            server.stop()

        loop.add_reader(pipe.fileno(), leave)
        await server.serve(lambda: pipe.send(server.url))

    run(main)


@contextmanager
def stream_server(mode: str = "interval") -> Iterator[tuple[str, Worker]]:
    """A server with its log in a folder of its own; (url, process)."""
    with tempfile.TemporaryDirectory(prefix="qanat-bench-") as data:
        child = Worker(serve, data, mode)
        try:
            yield child.wait(), child
        finally:
            child.end()

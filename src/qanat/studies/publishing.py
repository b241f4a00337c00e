"""Processes for experiments with publishers: a RocksDB that is written to, a publisher of its log, and
applications that count.

An application runs one errand after the other, so that twenty of them are started once and serve many
measurements.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import msgspec

from qanat.applications import Callbacks, DataLoss, Delivery, Instance, InstanceSettings
from qanat.events.errors import RemoteError
from qanat.operate.processes import Worker
from qanat.publisher.changes import Changes
from qanat.publisher.node import PublisherNode
from qanat.publisher.settings import PublisherSettings
from qanat.runtime.config import load
from qanat.runtime.loop import run

_WRITER = """
import random, sys, time
from rocksdict import Options, Rdict, WriteBatch
size, *folders = sys.argv[1:]
size = int(size)
databases = []
for folder in folders:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_wal_ttl_seconds(36000)
    options.set_write_buffer_size(1 << 30)
    databases.append(Rdict(folder, options))
rng = random.Random(1)
text = bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz0123456789 ", k=1 << 17))
row = 0
def write(rows):
    global row
    for first in range(0, rows, 100):
        count = min(100, rows - first)
        batches = [WriteBatch(raw_mode=True) for _ in databases]
        for _ in range(count):
            at = rng.randrange(len(text) - size)
            for batch in batches:
                batch.put(b"%016d" % row, text[at : at + size])
            row += 1
        for database, batch in zip(databases, batches):
            database.write(batch)
print("ready", flush=True)
for line in sys.stdin:
    rows, per_s = map(float, line.split())
    began, done = time.monotonic(), 0
    while done < rows:
        part = int(rows) if not per_s else min(int(rows), int((time.monotonic() - began) * per_s) + 1) - done
        if part > 0:
            write(part)
            done += part
        if per_s:
            time.sleep(0.005)
    print("written", flush=True)
"""


class RocksWriter:
    """A process that writes the same rows to one RocksDB, or to several that are copies of each other."""

    def __init__(self, *folders: Path, value_bytes: int) -> None:
        self.urls = [f"rocksdb://{folder}?dataset=shop" for folder in folders]
        words = [sys.executable, "-c", _WRITER, str(value_bytes), *map(str, folders)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._heard("ready")

    def write(self, rows: int) -> None:
        self.begin(rows, 0)
        self.end()

    def begin(self, rows: int, per_s: float) -> None:
        """So many rows, so many a second; 0: as fast as it can."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rows} {per_s}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Returns when what was begun is written."""
        self._heard("written")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _heard(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            raise RemoteError("the process that writes to a RocksDB broke off; is rocksdict installed?")


@contextmanager
def rocks_writer(*folders: Path, value_bytes: int) -> Iterator[RocksWriter]:
    writer = RocksWriter(*folders, value_bytes=value_bytes)
    try:
        yield writer
    finally:
        writer.close()


# Publishers


class Counters(msgspec.Struct, frozen=True):
    """What a publisher has done so far."""

    at: float
    """On the clock that all processes of a machine share."""
    read_bytes: int
    sent_bytes: int
    sent_updates: int
    caravans: int
    subscribers: int = 0


def publisher_text(log: str, applications: Sequence[str], **limits: float | str) -> str:
    """A configuration; `applications` are names, and further lines of each."""
    lines = ["[log]", f'url = "{log}"', 'sharding = "hash:16"', "[publisher]"]
    lines += [f"{name} = {value!r}".replace("'", '"') for name, value in limits.items()]
    for application in applications:
        name, _, more = application.partition("\n")
        lines += [f"[applications.{name}]", more or 'start = "earliest"']
    return "\n".join(lines) + "\n"


def publish(
    pipe: Pipe, folder: str, text: str, listen: str = "127.0.0.1:0", name: str = "publisher",
    make: Callable[..., PublisherNode] = PublisherNode,
) -> None:  # fmt: skip
    """A publisher; says its URL, and its counters whenever it is asked by `counters`. A table changes its
    limits; any other word ends it."""

    async def main() -> None:
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        config = place / "publisher.toml"
        head = f'[node]\nname = "{name}"\nlisten = "{listen}"\ndata = "{place / "data"}"\n'
        config.write_text(
            f'{head}[admin]\nenabled = false\n[logging]\nlevel = "error"\n{text}', encoding="utf-8"
        )
        node = make(partial(load, PublisherSettings, file=config, environment=os.environ))
        loop = asyncio.get_running_loop()

        def heard() -> None:
            try:
                word = pipe.recv()
            except EOFError:
                word = "end"
            if word == "counters":
                pipe.send(_counters(node))
            elif isinstance(word, dict):
                node.change(Changes(publisher=word))
            else:
                loop.remove_reader(pipe.fileno())
                node.stop()

        loop.add_reader(pipe.fileno(), heard)
        await node.serve(lambda: pipe.send(node.url))

    run(main)


def _counters(node: PublisherNode) -> Counters:
    machine = node.machine
    if machine is None:
        return Counters(time.monotonic(), 0, 0, 0, 0)
    sent = sum(served.sent_bytes for served in machine.served.values())
    updates = sum(served.sent_updates for served in machine.served.values())
    return Counters(
        time.monotonic(), machine.read_bytes, sent, updates, len(machine.caravans.all), len(machine.links)
    )


@contextmanager
def publisher(
    folder: Path, text: str, make: Callable[..., PublisherNode] = PublisherNode
) -> Iterator[tuple[str, Worker]]:
    """(url, process)"""
    child = Worker(partial(publish, make=make), str(folder), text)
    try:
        yield child.wait(), child
    finally:
        child.end()


# Applications


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What one application is to do now."""

    application: str
    urls: tuple[str, ...]
    updates: int = 0
    """It is done when it had so many; 0: when it is told."""
    stays: bool = False
    """It is there until it is told, also when it had them."""
    stalls: bool = False
    """It never returns from its first callback with updates."""
    stall_after_s: float = 0.0
    stall_s: float = 0.0
    """Or it is held up once, so long after its first updates."""
    positions: bool = False
    """Whether to remember which updates came; then it is done when it had so many different ones."""


class Came(msgspec.Struct, frozen=True):
    """What an application was given: when (on the clock that all processes of a machine share), by whom, how
    many."""

    noticed: float
    """When it was first told of a shard."""
    deliveries: list[tuple[float, str, int]]
    distinct: int = 0
    """Different updates, if positions were remembered."""
    lost: int = 0
    """Losses that it was told of."""

    @property
    def ended(self) -> float:
        return self.deliveries[-1][0]

    def since(self, begin: float) -> int:
        """Updates that came after a moment."""
        return sum(count for at, _, count in self.deliveries if at > begin)


class Counting(Callbacks):
    def __init__(self, errand: Errand, enough: Callable[[], object]) -> None:
        self._errand, self._enough = errand, enough
        self._seen = self._lost = 0
        self._noticed = 0.0
        self._deliveries: list[tuple[float, str, int]] = []
        self._places: set[tuple[int, int]] = set()
        self._stall_at = float("inf")

    def on_shard_notice(self, shard: str) -> None:
        self._noticed = self._noticed or time.monotonic()

    def on_updates(self, delivery: Delivery) -> None:
        if self._errand.stalls:
            threading.Event().wait()
        now = time.monotonic()
        if not self._deliveries and self._errand.stall_s:
            self._stall_at = now + self._errand.stall_after_s
        self._deliveries.append((now, delivery.publisher, len(delivery)))
        self._seen += len(delivery)
        if self._errand.positions and (places := delivery.batch.positions()) is not None:
            self._places.update(zip(places[0].tolist(), places[1].tolist(), strict=True))
            self._seen = len(self._places)
        if self._seen >= self._errand.updates > 0:
            self._enough()
        if now >= self._stall_at:
            self._stall_at = float("inf")
            time.sleep(self._errand.stall_s)

    def on_data_loss(self, loss: DataLoss) -> None:
        self._lost += 1

    def came(self) -> Came:
        return Came(self._noticed, list(self._deliveries), len(self._places), self._lost)


def apply(pipe: Pipe) -> None:
    """Runs the errands that it is told, and answers each by `Came`."""
    pipe.send("ready")
    while True:
        errand: Errand = pipe.recv()
        run(lambda errand=errand: _go(pipe, errand))  # type: ignore[misc]


async def _go(pipe: Pipe, errand: Errand) -> None:
    loop, enough = asyncio.get_running_loop(), asyncio.Event()
    counting = Counting(errand, lambda: loop.call_soon_threadsafe(enough.set))
    instance = Instance(counting, errand.application, errand.urls, InstanceSettings())
    await instance.start()

    word = asyncio.Event()

    def told() -> None:
        pipe.recv()
        loop.remove_reader(pipe.fileno())
        os.set_blocking(pipe.fileno(), True)  # a loop's reader leaves it otherwise
        word.set()

    if errand.stays or not errand.updates:
        loop.add_reader(pipe.fileno(), told)
    ended = asyncio.ensure_future(instance.wait())
    await _first(ended, enough.wait() if errand.updates else word.wait())
    pipe.send(counting.came())
    if errand.stays:
        await _first(ended, word.wait())
    instance.stop()
    await ended


async def _first(ended: asyncio.Future[None], event: Coroutine[Any, Any, Any]) -> None:
    waited = asyncio.ensure_future(event)
    await asyncio.wait((ended, waited), return_when=asyncio.FIRST_COMPLETED)
    waited.cancel()

"""So many applications replay one log on one caravan (Wormhole, Fig. 4); beside plain sockets."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import msgspec
import numpy as np

from qanat.operate.processes import Worker, workers
from qanat.studies.publishing import (
    Came,
    Counters,
    Errand,
    RocksWriter,
    apply,
    publisher,
    publisher_text,
    rocks_writer,
)

UPDATE_BYTES = 1_000
"""Of one update, as an application is given it: a line of JSON (docs/updates.md)."""
VALUE_BYTES = 591
"""The row's value that makes it so long."""
PIECE = 1 << 20
"""What a plain socket is given at once: with it plain sockets are fastest, with 4 MiB, as a publisher's
batches have, they are a quarter slower."""
_MEMORY = 128 * PIECE


class Replayed(msgspec.Struct, frozen=True):
    applications: int
    seconds: float
    """While all of them were served, until the last had all."""
    mb_per_s: float
    """To all applications together in that time; payloads alone are counted."""
    wire_mb_per_s: float
    """The same with all that came: batches have attributes and positions beside the payloads."""
    read_mb: float
    sent_mb: float

    @property
    def updates_per_s(self) -> float:
        """To all applications together."""
        return self.mb_per_s * 1e6 / UPDATE_BYTES


@contextmanager
def stored(rows: int, value_bytes: int = VALUE_BYTES) -> Iterator[RocksWriter]:
    """A RocksDB that has so many rows in its log."""
    with (
        tempfile.TemporaryDirectory(prefix="qanat-w15-") as folder,
        rocks_writer(Path(folder, "shop"), value_bytes=value_bytes) as writer,
    ):
        writer.write(rows)
        yield writer


def replay(log: str, rows: int, sinks: Sequence[Worker], stalled: int = 0) -> Replayed:
    """Each sink is one application; so many more applications never return from their first callback."""
    names = [f"a{number}" for number in range(len(sinks) + stalled)]
    with (
        tempfile.TemporaryDirectory(prefix="qanat-w15-") as folder,
        publisher(Path(folder), publisher_text(log, names, caravans_max=1)) as (url, process),
        workers(stalled, apply) as held_up,
    ):
        for name, sink in zip(names, held_up, strict=False):
            sink.tell(Errand(application=name, urls=(url,), stalls=True))
        for name, sink in zip(names[stalled:], sinks, strict=True):
            sink.tell(Errand(application=name, urls=(url,), updates=rows))
        came: list[Came] = [sink.wait() for sink in sinks]
        process.tell("counters")
        counters: Counters = process.wait()
    began, ended = max(one.noticed for one in came), max(one.ended for one in came)
    updates = sum(one.since(began) for one in came)
    rate = updates / (ended - began)
    wire_bytes = counters.sent_bytes / counters.sent_updates
    read_mb, sent_mb = counters.read_bytes / 1e6, rows * len(sinks) * wire_bytes / 1e6
    return Replayed(
        len(sinks), ended - began, rate * UPDATE_BYTES / 1e6, rate * wire_bytes / 1e6, read_mb, sent_mb
    )


# Plain sockets


def fan_out(pipe: Pipe, consumers: int, total: int) -> None:
    """When it is told, the same bytes to each, from memory, which is larger than any cache; says when it
    began."""
    data = memoryview(np.random.default_rng(1).bytes(min(total, _MEMORY)))
    with socket.create_server(("127.0.0.1", 0)) as server:
        pipe.send(server.getsockname()[1])
        outs = [server.accept()[0] for _ in range(consumers)]
        while pipe.recv():
            pipe.send(time.monotonic())
            for at in range(0, total, PIECE):
                start = at % len(data)
                piece = data[start : start + min(PIECE, total - at)]
                for out in outs:
                    out.sendall(piece)


def drain(pipe: Pipe, port: int) -> None:
    """Told how many bytes to expect, reads them from a plain socket and says when it had them."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        pipe.send("ready")
        buffer = bytearray(PIECE)
        while left := pipe.recv():
            while left:
                left -= sock.recv_into(buffer, min(left, PIECE))
            pipe.send(time.monotonic())


@contextmanager
def plain_fan_out(consumers: int, total: int) -> Iterator[Callable[[], float]]:
    """Gives what measures once: MB/s of one process that sends `total` bytes to each of so many others, all
    together."""
    server = Worker(fan_out, consumers, total)
    try:
        port = server.wait()
        with workers(consumers, drain, port) as sinks:

            def measure() -> float:
                for sink in sinks:
                    sink.tell(total)
                server.tell("go")
                began: float = server.wait()
                ends: list[float] = [sink.wait() for sink in sinks]
                return total * consumers / (max(ends) - began) / 1e6

            yield measure
    finally:
        server.end()

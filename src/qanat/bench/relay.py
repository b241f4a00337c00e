"""Plain sockets through one relay process: the ceiling that the stream server is compared with."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe

import pyarrow as pa

from qanat.bench.broadcast_roles import CALL_EVENTS, payloads
from qanat.client import ClientSettings
from qanat.operate.processes import Worker, workers

_PIECE = ClientSettings().batch_bytes


def relay(pipe: Pipe, consumers: int) -> None:
    """What one connection sends is sent to `consumers` others."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pipe.send(server.getsockname()[1])
        outs = [server.accept()[0] for _ in range(consumers)]
        source, _ = server.accept()
        buffer = bytearray(1 << 20)
        view = memoryview(buffer)
        while size := source.recv_into(buffer):
            for out in outs:
                out.sendall(view[:size])
        for out in outs:
            out.close()


def drain(pipe: Pipe, port: int) -> None:
    """Told how many more bytes to expect, reads them from a plain socket and says when it had them."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        pipe.send("ready")
        buffer = bytearray(1 << 20)
        while left := pipe.recv():
            while left:
                left -= sock.recv_into(buffer, min(left, len(buffer)))
            pipe.send(time.monotonic())


def pour(pipe: Pipe, port: int, most: int, width: int) -> None:
    """Told how many, writes so many bytes to a plain socket and says when it began: the very payloads that
    the server's producer publishes, in pieces as large."""
    column = payloads(min(most // width, CALL_EVENTS), width, "arrow")
    assert isinstance(column, pa.Array)
    data = memoryview(column.buffers()[1])
    with socket.create_connection(("127.0.0.1", port)) as sock:
        pipe.send("ready")
        at = 0
        while left := pipe.recv():
            began = time.monotonic()
            while left:
                piece = data[at : at + min(_PIECE, left)]
                sock.sendall(piece)
                left -= len(piece)
                at = (at + len(piece)) % len(data)
            pipe.send(began)


@contextmanager
def relaying(consumers: int, total: int, width: int) -> Iterator[Callable[[], float]]:
    """Gives what measures once: bytes per second that one relay process carries to each of `consumers`, until
    the last has `total`."""
    server = Worker(relay, consumers)
    try:
        port = server.wait()
        with workers(consumers, drain, port) as sinks, workers(1, pour, port, total, width) as (source,):

            def measure() -> float:
                os.sync()  # as for the server beside which it is measured
                for one in (*sinks, source):
                    one.tell(total)
                began: float = source.wait()
                ends: list[float] = [sink.wait() for sink in sinks]
                return total / (max(ends) - began)

            yield measure
    finally:
        server.end()

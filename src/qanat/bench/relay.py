"""Plain sockets through one relay process: the ceiling that the stream server is compared with."""

import os
import socket
import time
from multiprocessing.connection import Connection as Pipe

import pyarrow as pa

from qanat.bench.broadcast_roles import CALL_EVENTS, payloads
from qanat.client import ClientSettings
from qanat.nodes.processes import Worker, workers

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
    """Reads a plain socket to its end."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        pipe.send("ready")
        buffer = bytearray(1 << 20)
        while sock.recv_into(buffer):
            pass
        pipe.send(time.monotonic())


def pour(pipe: Pipe, port: int, total: int, width: int) -> None:
    """Writes `total` bytes to a plain socket: the very payloads that the server's producer publishes, in pieces as large."""
    column = payloads(min(total // width, CALL_EVENTS), width, "arrow")
    assert isinstance(column, pa.Array)
    data = memoryview(column.buffers()[1])
    with socket.create_connection(("127.0.0.1", port)) as sock:
        pipe.send("ready")
        pipe.recv()
        began = time.monotonic()
        at, left = 0, total
        while left:
            piece = data[at : at + min(_PIECE, left)]
            sock.sendall(piece)
            left -= len(piece)
            at = (at + len(piece)) % len(data)
    pipe.send(began)


def bytes_per_s(consumers: int, total: int, width: int) -> float:
    """Bytes per second that one relay process carries to each of `consumers`, until the last has all."""
    server = Worker(relay, consumers)
    try:
        port = server.wait()
        with workers(consumers, drain, port) as sinks, workers(1, pour, port, total, width) as (source,):
            os.sync()  # as for the server beside which it is measured
            source.tell("go")
            began: float = source.wait()
            ends: list[float] = [sink.wait() for sink in sinks]
            return total / (max(ends) - began)
    finally:
        server.end()

"""Plain sockets through one relay process: the ceiling that the stream server is compared with."""

import os
import socket
import time
from multiprocessing.connection import Connection as Pipe

from qanat.nodes.processes import Worker, workers

_PIECE = 256 * 1024


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


def pour(pipe: Pipe, port: int, total: int) -> None:
    """Writes `total` bytes to a plain socket."""
    piece = bytes(_PIECE)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        pipe.send("ready")
        pipe.recv()
        began = time.monotonic()
        for _ in range(total // len(piece)):
            sock.sendall(piece)
    pipe.send(began)


def bytes_per_s(consumers: int, total: int) -> float:
    """Bytes per second that one relay process carries to each of `consumers`, until the last has all."""
    server = Worker(relay, consumers)
    try:
        port = server.wait()
        with workers(consumers, drain, port) as sinks, workers(1, pour, port, total) as (source,):
            os.sync()  # as for the server beside which it is measured
            source.tell("go")
            began: float = source.wait()
            ends: list[float] = [sink.wait() for sink in sinks]
            return total / (max(ends) - began)
    finally:
        server.end()

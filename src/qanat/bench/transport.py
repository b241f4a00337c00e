"""Framed connections between two processes: round trips of 100 bytes and frames of several sizes one way, beside plain sockets."""

import asyncio
import socket
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

from qanat.bench.figures import medians
from qanat.nodes.processes import Worker
from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.runtime.listener import listen
from qanat.runtime.loop import run as run_loop
from qanat.runtime.service import Service
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.frame import Bytes, Frame, encode

DESCRIPTION = "round trips and MB/s of frames between two processes, beside plain sockets"

_CHANNEL = 1
_ECHO, _COUNT, _REPORT = 32, 33, 34
_TRIPS = 10_000
_SIZES_KIB = (1, 16, 100, 256)
_TOTAL = 1 << 29


class _Peer(Service):
    """Answers echoes, swallows counted frames, reports how many bytes they had."""

    def __init__(self) -> None:
        self.received_bytes = 0

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        if frame.type == _COUNT:
            self.received_bytes += frame.attachment.nbytes
        elif frame.type == _ECHO:
            connection.send(_ECHO, _CHANNEL, frame.control, [frame.attachment])
        else:
            connection.send(_REPORT, _CHANNEL, self.received_bytes.to_bytes(8, "little"))
            self.received_bytes = 0


class _Probe(Service):
    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.reported_bytes = 0
        self.left = 0
        self.payload = bytes(100)
        self.started = 0.0
        self.trips_us: list[float] = []
        self.frame: list[Bytes] = []

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        if frame.type == _REPORT:
            self.reported_bytes = int.from_bytes(frame.control, "little")
            self.answered.set()
            return
        now = time.perf_counter()
        self.trips_us.append((now - self.started) * 1e6)
        self.left -= 1
        if self.left:
            self.echo(connection)
        else:
            self.answered.set()

    def on_writable(self, connection: Connection) -> None:
        while connection.writable and self.left:
            self.left -= 1
            connection.send_parts(self.frame)
            if not self.left:
                connection.send(_REPORT, _CHANNEL)

    def echo(self, connection: Connection) -> None:
        self.started = time.perf_counter()
        connection.send(_ECHO, _CHANNEL, b"", [self.payload])


def _serve(pipe: Pipe) -> None:
    """Two listeners: a framed one, and a plain socket that reads and echoes."""

    async def main() -> None:
        listener = await listen("127.0.0.1", 0, Identity("measured"), {_CHANNEL: _Peer()})
        pipe.send(listener.port)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await listener.close()

    run_loop(main)


def _plain_sink(pipe: Pipe) -> None:
    """Answers the first 100 bytes of each round trip, then reads a run of bytes to its end and says when it had them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pipe.send(server.getsockname()[1])
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            for _ in range(_TRIPS):
                connection.sendall(connection.recv(100))
            buffer = bytearray(1 << 20)
            while connection.recv_into(buffer):
                pass
            pipe.send(time.monotonic())


async def _framed(port: int) -> dict[str, float]:
    probe = _Probe()
    connection = await dial(Url("127.0.0.1", port), Identity("probe"), {_CHANNEL: probe})
    probe.left = _TRIPS
    probe.echo(connection)
    await probe.answered.wait()
    trips = sorted(probe.trips_us[_TRIPS // 10 :])
    figures = {
        "round_trip_us_p50": trips[len(trips) // 2],
        "round_trip_us_p99": trips[len(trips) * 99 // 100],
    }
    for kib in _SIZES_KIB:
        probe.frame = encode(_COUNT, _CHANNEL, b"control", [bytes(kib * 1024)])
        probe.answered.clear()
        probe.left = min(_TOTAL, kib * 1024 * 200_000) // (kib * 1024)
        started = time.perf_counter()
        probe.on_writable(connection)
        await probe.answered.wait()
        figures[f"mb_per_s_{kib}k"] = probe.reported_bytes / (time.perf_counter() - started) / 1e6
    connection.close()
    await connection.wait_closed()
    return figures


def _plain(port: int, sink: Worker) -> dict[str, float]:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips_us = []
        for _ in range(_TRIPS):
            started = time.perf_counter()
            sock.sendall(bytes(100))
            sock.recv(100)
            trips_us.append((time.perf_counter() - started) * 1e6)
        piece = bytes(256 * 1024)
        began = time.monotonic()
        for _ in range(_TOTAL // len(piece)):
            sock.sendall(piece)
        sock.shutdown(socket.SHUT_WR)
        seconds = sink.wait() - began
    return {
        "plain_round_trip_us_p50": statistics.median(trips_us),
        "plain_mb_per_s_256k": _TOTAL / seconds / 1e6,
    }


def _one_round() -> dict[str, float]:
    figures: dict[str, float] = {}
    server = Worker(_serve)
    try:
        port = server.wait()
        figures |= run_loop(lambda: _framed(port))
    finally:
        server.end()
    sink = Worker(_plain_sink)
    try:
        figures |= _plain(sink.wait(), sink)
    finally:
        sink.end()
    figures["socket_ratio_256k"] = figures["mb_per_s_256k"] / figures["plain_mb_per_s_256k"]
    return figures


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds."""
    results = []
    for number in range(rounds):
        results.append(_one_round())
        say(f"round {number + 1} of {rounds}: {results[-1]['mb_per_s_256k']:,.0f} MB/s of 256-KiB frames")
    return medians(results)

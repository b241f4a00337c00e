"""Framed connections between two processes: round trips of 100 bytes and frames of several sizes one way,
beside plain sockets."""

import asyncio
import socket
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

from qanat.bench.figures import medians
from qanat.operate.processes import Worker
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
_SLICES = 8
"""In so many slices of each side are round trips and bytes measured, in turns with the other side."""


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
    """Told to echo, answers so many round trips of 100 bytes; else reads so many bytes and says when it had
    them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pipe.send(server.getsockname()[1])
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            buffer = bytearray(1 << 20)
            while True:
                what, count = pipe.recv()
                if what == "echo":
                    for _ in range(count):
                        connection.sendall(connection.recv(100))
                    continue
                while count:
                    count -= connection.recv_into(buffer, min(count, len(buffer)))
                pipe.send(time.monotonic())


class _Framed:
    def __init__(self, connection: Connection, probe: _Probe) -> None:
        self.connection, self._probe = connection, probe
        self.trips_us: list[float] = []

    async def trips(self, count: int) -> float:
        """Median of so many round trips, in microseconds."""
        probe = self._probe
        probe.trips_us.clear()
        probe.answered.clear()
        probe.left = count
        probe.echo(self.connection)
        await probe.answered.wait()
        self.trips_us += probe.trips_us
        return statistics.median(probe.trips_us)

    async def mb_per_s(self, kib: int, total: int) -> float:
        probe = self._probe
        probe.frame = encode(_COUNT, _CHANNEL, b"control", [bytes(kib * 1024)])
        probe.answered.clear()
        probe.left = min(total // 1024, kib * 200_000) // kib
        started = time.perf_counter()
        probe.on_writable(self.connection)
        await probe.answered.wait()
        return probe.reported_bytes / (time.perf_counter() - started) / 1e6


class _Plain:
    def __init__(self, port: int, sink: Worker) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sink = sink

    def trips(self, count: int) -> float:
        trips_us = []
        self._sink.tell(("echo", count))
        for _ in range(count):
            started = time.perf_counter()
            self._sock.sendall(bytes(100))
            self._sock.recv(100)
            trips_us.append((time.perf_counter() - started) * 1e6)
        return statistics.median(trips_us)

    def mb_per_s(self, total: int) -> float:
        piece = bytes(256 * 1024)
        self._sink.tell(("read", total))
        began = time.monotonic()
        for _ in range(total // len(piece)):
            self._sock.sendall(piece)
        return float(total / (self._sink.wait() - began) / 1e6)


async def _measure(port: int, plain: _Plain, number: int) -> dict[str, float]:
    """The plain side blocks the loop while it is its turn; nothing else is to be done then."""
    probe = _Probe()
    connection = await dial(Url("127.0.0.1", port), Identity("probe"), {_CHANNEL: probe})
    framed = _Framed(connection, probe)
    pairs: dict[str, list[tuple[float, float]]] = {"trips": [], "mb": []}
    for turn in range(number, number + _SLICES + 1):
        trips = mb = plain_trips = plain_mb = 0.0
        for framed_turn in (False, True) if turn % 2 else (True, False):
            if framed_turn:
                trips = await framed.trips(_TRIPS // _SLICES)
                mb = await framed.mb_per_s(256, _TOTAL // _SLICES)
            else:
                plain_trips, plain_mb = plain.trips(_TRIPS // _SLICES), plain.mb_per_s(_TOTAL // _SLICES)
        if turn > number:  # the first of each is thrown away
            pairs["trips"].append((trips, plain_trips))
            pairs["mb"].append((mb, plain_mb))
        else:
            framed.trips_us.clear()
    figures = {
        "round_trip_us_p50": statistics.median(our for our, _ in pairs["trips"]),
        "round_trip_us_p99": sorted(framed.trips_us)[len(framed.trips_us) * 99 // 100],
        "plain_round_trip_us_p50": statistics.median(their for _, their in pairs["trips"]),
        "round_trip_ratio": statistics.median(our / their for our, their in pairs["trips"]),
    }
    for kib in _SIZES_KIB[:-1]:
        figures[f"mb_per_s_{kib}k"] = await framed.mb_per_s(kib, _TOTAL)
    figures["mb_per_s_256k"] = statistics.median(our for our, _ in pairs["mb"])
    figures["plain_mb_per_s_256k"] = statistics.median(their for _, their in pairs["mb"])
    figures["socket_ratio_256k"] = statistics.median(our / their for our, their in pairs["mb"])
    connection.close()
    await connection.wait_closed()
    return figures


def _one_round(number: int) -> dict[str, float]:
    server, sink = Worker(_serve), Worker(_plain_sink)
    try:
        port = server.wait()
        plain = _Plain(sink.wait(), sink)
        figures: dict[str, float] = {}

        async def main() -> None:
            figures.update(await _measure(port, plain, number))

        run_loop(main)
        return figures
    finally:
        sink.end()
        server.end()


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds."""
    results = []
    for number in range(rounds):
        results.append(_one_round(number))
        say(f"round {number + 1} of {rounds}: {results[-1]['mb_per_s_256k']:,.0f} MB/s of 256-KiB frames")
    return medians(results)

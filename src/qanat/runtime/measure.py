"""What the transport does on this machine: `python -m qanat.runtime.measure`.

Two processes over loopback: round trips of a 100-byte frame, and frames of several sizes one way.
"""

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import statistics
import time

from qanat.runtime.connection import Connection
from qanat.runtime.dialer import dial
from qanat.runtime.listener import listen
from qanat.runtime.loop import run
from qanat.runtime.service import Service
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.frame import Bytes, Frame, encode

_CHANNEL = 1
_ECHO, _COUNT, _REPORT = 32, 33, 34


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


def _serve(pipe: multiprocessing.connection.Connection, plain: bool) -> None:
    async def main() -> None:
        listener = await listen("127.0.0.1", 0, Identity("measured"), {_CHANNEL: _Peer()})
        pipe.send(listener.port)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await listener.close()

    run(main, uvloop=not plain)


async def _measure(port: int, rounds: int) -> dict[str, float]:
    probe = _Probe()
    connection = await dial(Url("127.0.0.1", port), Identity("probe"), {_CHANNEL: probe})
    probe.left = 20_000
    probe.echo(connection)
    await probe.answered.wait()
    trips = sorted(probe.trips_us[2_000:])
    figures = {
        "round_trip_us_p50": trips[len(trips) // 2],
        "round_trip_us_p99": trips[len(trips) * 99 // 100],
    }
    for kib in (1, 16, 100, 256):
        attachment = bytes(kib * 1024)
        probe.frame = encode(_COUNT, _CHANNEL, b"control", [attachment])
        total = min(1 << 30, kib * 1024 * 200_000)
        rates = []
        for _ in range(rounds):
            probe.answered.clear()
            probe.left = total // (kib * 1024)
            started = time.perf_counter()
            probe.on_writable(connection)
            await probe.answered.wait()
            rates.append(probe.reported_bytes / (time.perf_counter() - started) / 1e6)
        figures[f"mb_per_s_{kib}k"] = statistics.median(rates)
    connection.close()
    await connection.wait_closed()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--asyncio", action="store_true", help="the standard event loop, not uvloop")
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, arguments.asyncio))
    server.start()
    figures = run(lambda: _measure(ours.recv(), arguments.rounds), uvloop=not arguments.asyncio)
    ours.send(None)
    server.join()
    for name, value in figures.items():
        print(f"{name:24} {value:10.1f}")


if __name__ == "__main__":
    main()

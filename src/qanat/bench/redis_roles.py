"""The producers and consumers of a Redis stream, each a process of its own."""

import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.bench.broadcast_roles import payloads
from qanat.bench.resp import Redis, connect, encode

STREAM, FIELD = b"s", b"f"
_PIECE_BYTES = 256 << 10
_DIFFERENT = 50_000
_READ_BYTES = 1 << 20
"""What an `XREAD` asks for."""


def _commands(count: int, width: int) -> tuple[memoryview, int]:
    """So many `XADD`s one after the other, made before anything is measured; and the bytes of one."""
    column = payloads(count, width, "arrow")
    assert isinstance(column, pa.Array)
    data = memoryview(column.buffers()[1])
    each = [
        encode(b"XADD", STREAM, b"*", FIELD, bytes(data[i : i + width]))
        for i in range(0, count * width, width)
    ]
    return memoryview(b"".join(each)), len(each[0])


def produce(pipe: Pipe, port: int, width: int) -> None:
    """Told how many, adds so many entries in a pipeline, and says when it began and when all were
    acknowledged; 0 ends it."""
    commands, size = _commands(_DIFFERENT, width)
    piece = max(1, _PIECE_BYTES // size)
    with connect(port) as redis:
        pipe.send("ready")
        while left := pipe.recv():
            pipe.send(time.monotonic())
            at = waiting = 0
            while left:
                count = min(piece, left, _DIFFERENT - at)
                redis.sock.sendall(commands[at * size : (at + count) * size])
                redis.skip_ids(waiting)  # one piece is under way while the next is sent
                waiting, left, at = count, left - count, (at + count) % _DIFFERENT
            redis.skip_ids(waiting)
            pipe.send(time.monotonic())


def consume(pipe: Pipe, port: int, width: int) -> None:
    """Told how many entries to expect, says when it had them all, again and again; 0 ends it."""
    most = b"%d" % max(1, _READ_BYTES // (width + 60))
    with connect(port) as redis:
        last = _end(redis)
        pipe.send("ready")
        while left := pipe.recv():
            while left > 0:
                redis.sock.sendall(encode(b"XREAD", b"COUNT", most, b"BLOCK", b"0", b"STREAMS", STREAM, last))
                count, last = redis.entries(FIELD, width)
                left -= count
            pipe.send(time.monotonic())


def tick(pipe: Pipe, port: int, width: int, every_s: float) -> None:
    """Told how many, adds an entry at each tick, its own time in it, without waiting for the answers until
    the last."""
    with connect(port) as redis:
        pipe.send("ready")
        while count := pipe.recv():
            due = time.monotonic()
            for _ in range(count):
                due += every_s
                time.sleep(max(0.0, due - time.monotonic()))
                payload = time.monotonic_ns().to_bytes(8, "little") + bytes(width - 8)
                redis.sock.sendall(encode(b"XADD", STREAM, b"*", FIELD, payload))
            redis.skip_ids(count)
            pipe.send("done")


def watch(pipe: Pipe, port: int) -> None:
    """Told how many entries to expect, says how late each of them was, in ns; 0 ends it."""
    with connect(port) as redis:
        last = _end(redis)
        pipe.send("ready")
        while count := pipe.recv():
            delays: list[int] = []
            while len(delays) < count:
                answer: Any = redis.ask(b"XREAD", b"BLOCK", b"0", b"STREAMS", STREAM, last)
                now = time.monotonic_ns()
                [[_, entries]] = answer
                delays += [now - int.from_bytes(payload[:8], "little") for _, (_, payload) in entries]
                last = entries[-1][0]
            pipe.send(np.array(delays))


def _end(redis: Redis) -> bytes:
    """The ID of the last entry that was ever there; `$` would mean another one at each read."""
    match redis.ask(b"XREVRANGE", STREAM, b"+", b"-", b"COUNT", b"1"):
        case [[bytes(last), _]]:
            return last
    return b"0-0"

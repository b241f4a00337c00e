"""Record files that are written, rotated and cut while readers are killed and come back."""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from subprocess import PIPE, Popen
from threading import Event, Thread
from typing import Any

import pytest
from tests.waiting import wait_until

from qanat.capture import Lost, Start
from qanat.capture.url import open_reader
from qanat.events.position import Position

KILLS = 17
"""Of each format; there are three."""
SCHEMA = (
    b'{"type":"record","name":"Row","fields":[{"name":"n","type":"long"},{"name":"text","type":"string"}]}'
)
SYNC = b"sixteen byte end"
FOLLOWER = Path(__file__).with_name("files_follower.py")


def _long(value: int) -> bytes:
    plain, out = value << 1, bytearray()
    while plain > 0x7F:
        out.append(plain & 0x7F | 0x80)
        plain >>= 7
    return bytes([*out, plain])


def json_records(first: int, rng: Random) -> tuple[bytes, int]:
    return json.dumps({"n": first, "text": "x" * rng.randrange(60)}).encode() + b"\n", 1


def prefixed_records(first: int, rng: Random) -> tuple[bytes, int]:
    body = b"%d " % first + b"x" * rng.choice([20, 20, 20, 50])
    return struct.pack(">I", len(body)) + body, 1


def avro_records(first: int, rng: Random) -> tuple[bytes, int]:
    count = rng.randrange(1, 20)
    rows = b"".join(_long(first + at) + _long(3) + b"abc" for at in range(count))
    return _long(count) + _long(len(rows)) + rows + SYNC, count


AVRO_HEAD = b"Obj\x01" + _long(1) + _long(11) + b"avro.schema" + _long(len(SCHEMA)) + SCHEMA + b"\x00" + SYNC
FORMATS: dict[str, tuple[bytes, Callable[[int, Random], tuple[bytes, int]]]] = {
    "jsonl": (b"", json_records),
    "u32be": (b"", prefixed_records),
    "avro": (AVRO_HEAD, avro_records),
}


class Writer(Thread):
    """Appends records in pieces that end anywhere, and begins a new file now and then."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        super().__init__()
        self.folder, self.rng = folder, Random(seed)
        self.head, self.make = FORMATS[name]
        self.written = 0
        self.done = Event()

    def run(self) -> None:
        number = 0
        while not self.done.is_set():
            number += 1
            with (self.folder / f"part-{number:05}").open("ab", buffering=0) as file:
                waiting = self.head
                for _ in range(self.rng.randrange(5, 300)):
                    data, count = self.make(self.written, self.rng)
                    self.written += count
                    waiting += data
                    cut = self.rng.randrange(len(waiting) + 1)
                    file.write(waiting[:cut])
                    waiting = waiting[cut:]
                    if self.rng.random() < 0.3:
                        time.sleep(0.002)  # not so fast that readers never come to the end
                file.write(waiting)


def rows(url: str, name: str, start: Start, limit: int, wait_s: float) -> Iterator[bytes]:
    log = open_reader(url, format=name, settle_s=0.05)
    log.seek(start)
    while True:
        answer = log.read(limit, wait_s)
        if isinstance(answer, Lost):
            yield f"lost {answer}\n".encode()
            return
        if not answer:
            log.close()
            return
        yield b"".join(f"{update.position} {number(update.after)}\n".encode() for update in answer.rows())


def number(after: dict[str, Any] | None) -> int:
    assert after is not None
    return int(after["n"]) if "n" in after else int(after["value"].split()[0])


@pytest.mark.paper("W1")
@pytest.mark.parametrize("name", list(FORMATS))
def test_a_reader_that_is_killed_and_resumed_has_every_record_once(tmp_path: Path, name: str) -> None:
    files, out = tmp_path / "files", tmp_path / "out"
    files.mkdir()
    out.write_bytes(b"")
    url, rng = f"file://{files}/part-*", Random(name)
    writer = Writer(files, name, rng.randrange(1000))
    writer.start()
    with Popen([sys.executable, FOLLOWER], stdin=PIPE, stdout=PIPE, text=True) as follower:
        try:
            for _ in range(KILLS):
                start, limit = resume(out), rng.choice([1, 7, 5000])
                child = begin(follower, url, name, "" if start == "earliest" else str(start), str(out), limit)
                enough = out.stat().st_size + rng.randrange(1, 800)
                wait_until(lambda size=enough: out.stat().st_size >= size, every_s=0.001)  # type: ignore[misc]
                os.kill(child, signal.SIGKILL)
                wait_until(lambda child=child: not is_alive(child), every_s=0.001)  # type: ignore[misc]
        finally:
            writer.done.set()
            writer.join()
            follower.kill()
    with out.open("ab") as more:
        start = resume(out)
        more.writelines(rows(url, name, start, 1000, 1))
    read = [line.split() for line in out.read_text().splitlines()]
    assert [int(one) for _, one in read] == list(range(writer.written))
    positions = [Position.parse(one) for one, _ in read]
    assert all(one < other for one, other in pairwise(positions))


def begin(follower: Popen[str], *words: object) -> int:
    assert follower.stdin is not None
    assert follower.stdout is not None
    follower.stdin.write(json.dumps(words) + "\n")
    follower.stdin.flush()
    return int(follower.stdout.readline())


def is_alive(child: int) -> bool:
    try:
        os.kill(child, 0)
    except ProcessLookupError:
        return False
    return True


def resume(out: Path) -> Start:
    """The last position that was written as a whole line; half a line is cut off."""
    data = out.read_bytes()
    whole = data.rfind(b"\n") + 1
    os.truncate(out, whole)
    lines = data[:whole].splitlines()
    return Position.parse(lines[-1].split()[0].decode()) if lines else "earliest"


@pytest.mark.paper("W13")
def test_a_slow_reader_of_files_that_are_removed_has_every_record_or_is_told(tmp_path: Path) -> None:
    """Retention removes the oldest files; what is read and what is lost covers every position once."""
    rng = Random(7)
    pattern = f"file://{tmp_path}/part-*"
    keeper = open_reader(pattern, format="jsonl", settle_s=0)  # somebody must see files to number them
    log = open_reader(pattern, format="jsonl", settle_s=0)
    log.seek("earliest")
    got: list[int] = []
    lost: list[Lost] = []
    position: Start = "earliest"
    written = 0
    for at in range(60):
        with (tmp_path / f"part-{at:03}").open("w") as file:
            for _ in range(10):
                file.write(json.dumps({"n": written}) + "\n")
                written += 1
        keeper.oldest()
        if at >= 5 and rng.random() < 0.8:
            min(tmp_path.glob("part-*")).unlink()
        for _ in range(rng.choice([0, 0, 1, 3])):
            if rng.random() < 0.3:
                log.seek(position)
            answer = log.read(rng.choice([3, 40]))
            if isinstance(answer, Lost):
                assert answer.after == position or position == "earliest"
                lost.append(answer)
                position = answer.upto
            elif answer.upto is not None:
                got += [number(update.after) for update in answer.rows()]
                position = answer.upto
    assert lost
    assert got == sorted(set(got))
    gaps = sum(1 for one, other in pairwise(got) if other != one + 1)
    assert 0 < gaps <= len(lost)

"""What tests of publishers have in common: a dataset that is written to, processes around it, and what
applications were told."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.rocksdb import RocksProcess
from tests.waiting import wait_until

from qanat.events.position import Position

KEPT = {"wal_ttl_seconds": 3600}
NURSERY = Path(__file__).with_name("publishing_nursery.py")
QUICK = """
[publisher]
marker_ms = 300.0
lease_ms = 600.0
settle_ms = 50.0
plan_ms = 50.0
announce_ms = 200.0
return_ms = 500.0
read_rows = 200
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _is_stopped(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"


class Told(NamedTuple):
    """One update, as an application was told."""

    shard: str
    position: Position
    op: str
    key: bytes
    value: bytes


class Child:
    """One process of the nursery's."""

    def __init__(self, nursery: Nursery, *line: object) -> None:
        self._nursery, self._line = nursery, line
        self.pid = 0
        self.start()

    def start(self) -> None:
        self.pid = self._nursery.fork(*self._line)

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stand_still(self) -> None:
        """Returns when none of its threads runs any more: a signal stops the one that takes it, and then the
        others."""
        self.send(signal.SIGSTOP)
        wait_until(lambda: all(_is_stopped(each) for each in Path(f"/proc/{self.pid}/task").iterdir()))

    def runs(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self, number: int = signal.SIGKILL) -> None:
        self.send(number)
        wait_until(lambda: not self.runs())

    def again(self) -> None:
        """Killed, and started anew."""
        self.end()
        self.start()


class NodeChild(Child):
    """One that listens, and has a status."""

    def __init__(self, nursery: Nursery, kind: str, folder: Path, text: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.config, self._ready = folder / "node.toml", folder / "ready"
        self.port = free_port()
        self.name = f"test/{folder.name}"
        self._head = (
            f'[node]\nname = "{self.name}"\nlisten = "127.0.0.1:{self.port}"\ndata = "{folder / "data"}"\n'
            '[admin]\nport = 0\n[logging]\nlevel = "error"\n'
        )
        self.write(text)
        super().__init__(nursery, kind, str(self.config), str(self._ready))

    def write(self, text: str) -> None:
        """Its configuration, which it reads when it starts and on SIGHUP."""
        self.config.write_text(self._head + text, encoding="utf-8")

    @property
    def url(self) -> str:
        return f"qanat://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        super().start()

    def wait(self) -> None:
        wait_until(lambda: self._ready.exists() or not self.runs())
        assert self._ready.exists(), f"{self.name} ended"

    def status(self) -> dict[str, Any]:
        """Empty while it does not answer."""
        try:
            port = json.loads(self._ready.read_text(encoding="utf-8"))["admin"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=20) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def metric(self, name: str) -> float:
        """0 while it does not answer."""
        try:
            port = json.loads(self._ready.read_text(encoding="utf-8"))["admin"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"qanat_{name}"))

    def application(self, name: str) -> dict[str, Any]:
        return next((one for one in self.status().get("applications", []) if one["name"] == name), {})


class Nursery:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, str(NURSERY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._children: list[Child] = []

    def fork(self, *line: object) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(line), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def node(self, kind: str, name: str, text: str) -> NodeChild:
        child = NodeChild(self, kind, self.folder / name, text)
        self._children.append(child)
        return child

    def subscriber(self, application: str, publishers: list[str], name: str = "") -> Child:
        child = Child(self, "subscriber", str(self.folder), application, publishers, name)
        self._children.append(child)
        return child

    def script(self, path: Path, *arguments: str) -> Child:
        child = Child(self, "script", str(path), *arguments)
        self._children.append(child)
        return child

    def told(self, application: str) -> list[list[list[str]]]:
        """What each instance wrote down, line by line and word by word; not a line that it is about to
        write."""
        return [
            [line.split(" ") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
            for path in sorted(self.folder.glob(f"{application}.[0-9]*.[0-9]*"))
        ]

    def updates(self, application: str) -> list[Told]:
        return [
            Told(
                words[1], Position.parse(words[2]), words[3], bytes.fromhex(words[4]), bytes.fromhex(words[5])
            )
            for lines in self.told(application)
            for words in lines
            if words[0] == "update"
        ]

    def table(self, application: str) -> dict[bytes, bytes]:
        """The rows as they are after all updates, whoever was told them."""
        rows: dict[bytes, bytes] = {}
        for update in sorted(self.updates(application), key=lambda each: each.position):
            if update.op == "DELETE":
                rows.pop(update.key, None)
            else:
                rows[update.key] = update.value
        return rows

    def check_order(self, application: str) -> None:
        """Each shard in order, to each instance, from each notice on."""
        for lines in self.told(application):
            last: dict[str, Position] = {}
            for words in lines:
                if words[0] == "notice":
                    last[words[1]] = Position(0, 0)
                elif words[0] == "update":
                    assert words[1] in last, f"shard {words[1]!r} came without a notice"
                    position = Position.parse(words[2])
                    assert position > last[words[1]], f"{position} after {last[words[1]]}"
                    last[words[1]] = position

    def end(self) -> None:
        for child in self._children:
            child.send(signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    found = Nursery(folder)
    try:
        yield found
    finally:
        found.end()


class Writer:
    """Transactions on a dataset of which there may be copies: each gets the same, so that positions are the
    same."""

    def __init__(self, *copies: RocksProcess, seed: int = 1, sizes: tuple[int, ...] = (3, 20, 200)) -> None:
        self._copies, self._rng, self._sizes = copies, random.Random(seed), sizes
        self.count = 0

    def write(self, transactions: int) -> None:
        batches = [
            [self._operation() for _ in range(self._rng.choice((1, 1, 2, 5)))] for _ in range(transactions)
        ]
        self.count += sum(map(len, batches))
        for copy in self._copies:
            copy.do("write", batches)

    def _operation(self) -> tuple[Any, ...]:
        key = b"%04d" % self._rng.randrange(400)
        if self._rng.random() < 0.15:
            return ("delete", "default", key)
        return ("put", "default", key, self._rng.randbytes(self._rng.choice(self._sizes)))

    def rows(self) -> dict[bytes, bytes]:
        return {key: value for (_, key), value in self._copies[0].do("rows").items()}

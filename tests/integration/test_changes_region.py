"""Logs fed into a stream of a region as real processes, while the head of its chain and the feed itself are
killed again and again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec
import numpy as np
import pytest
from tests.integration.feeding import PATIENT, fed, next_of
from tests.servers.rocksdb import RocksProcess, rocks_process
from tests.waiting import wait_until

from qanat.capture.updates import Update
from qanat.client import Client
from qanat.events.position import Position
from qanat.operate.region_processes import RegionProcesses, region_processes

pytestmark = [pytest.mark.paper("W2", "W13")]
KILLS = int(os.environ.get("QANAT_TEST_KILLS", "12"))
SEED = int(os.environ.get("QANAT_TEST_SEED", "7"))
QUICK = {
    "session": {"timeout_ms": 700.0, "retry_ms": 50.0},
    "chain": {"ack_ms": 100.0, "failure_ms": 1500.0, "hello_ms": 50.0},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    streams = {name: {"owner": "eu"} for name in ("files", "rocks", "ahead")}
    with region_processes({"eu": 2}, streams, folder=tmp_path_factory.mktemp("region"), **QUICK) as processes:
        yield processes


@pytest.fixture
def region(shared: RegionProcesses) -> RegionProcesses:
    shared.start()
    shared.wait_chain("eu", 2)
    return shared


class Datastore(Protocol):
    url: str

    def write(self, rng: random.Random) -> None:
        """A little, at once."""


class Writer(threading.Thread):
    """Writes until it is told to stop."""

    def __init__(self, store: Datastore) -> None:
        super().__init__()
        self._store, self._rng, self._stopping = store, random.Random(SEED), threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.005):
            self._store.write(self._rng)

    def finish(self) -> None:
        self._stopping.set()
        self.join()


class Feeder:
    """`qanat changes URL --into STREAM`, started again whenever it was killed."""

    def __init__(self, url: str, stream: str, region: str, log: IO[bytes]) -> None:
        self._command = [sys.executable, "-m", "qanat", "changes", url, "--into", stream, "--url", region]
        self._log = log
        self._process = self._start()

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._command, *words], stderr=self._log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self._process = self._start()

    def check(self) -> None:
        assert self._process.poll() is None, f"the feed ended by itself with {self._process.poll()}"

    def finish(self) -> int:
        """Up to what is the end of the log now."""
        self._process = self._start("--until-end")
        return self._process.wait(120)


def grown(client: Client, stream: str, beyond: int) -> int:
    """The stream's next number, as soon as it is more."""
    wait_until(lambda: next_of(client, stream) > beyond, every_s=0.02, say=lambda: f"still {beyond}")
    return next_of(client, stream)


def drilled(region: RegionProcesses, store: Datastore, stream: str, tmp_path: Path) -> list[Update]:
    """What the stream has in the end."""
    rng = random.Random(SEED)
    story: list[str] = []
    writer = Writer(store)
    with (tmp_path / "feeder.log").open("wb") as log, Client(region.url("eu"), settings=PATIENT) as client:
        reached = 1
        feeder = Feeder(store.url, stream, region.url("eu"), log)
        writer.start()
        try:
            for number in range(KILLS):
                reached = grown(client, stream, reached)
                time.sleep(rng.uniform(0.0, 0.5))  # the time between failures, not a wait for a condition
                feeder.check()
                # The first kills find a chain that is whole; others come as they come, so that failures
                # overlap.
                chain = region.wait_chain("eu", 2) if number < 3 else region.chain("eu")
                head = region[chain["head"]] if chain else None
                both = rng.random() < 0.3
                if number % 2 == 0 and head is not None and head.running:
                    story.append(
                        f"kill {head.name}, head of epoch {chain['epoch']}" + (", and the feed" * both)
                    )
                    head.kill()
                    if both:
                        feeder.restart()
                    time.sleep(rng.choice((0.0, 0.3, 2.0)))
                    head.start()
                else:
                    story.append("kill the feed")
                    feeder.restart()
        finally:
            writer.finish()
            feeder.kill()
            print(*story, sep="\n")
        region.start()
        code = feeder.finish()
    assert code == 0, (tmp_path / "feeder.log").read_text()[-2000:]
    assert sum(words.startswith("kill eu") for words in story) >= KILLS // 3
    return fed(region.url("eu"), stream)


class Files:
    """Lines are written in pieces, and now and then into a new file."""

    def __init__(self, folder: Path) -> None:
        self.url = f"file://{folder}/*.jsonl?settle_s=0.1"
        self._folder = folder
        self._file: IO[bytes] | None = None
        self.count = 0

    def write(self, rng: random.Random) -> None:
        if self._file is None or rng.random() < 0.02:
            if self._file is not None:
                self._file.close()
            self._file = (self._folder / f"{self.count:09d}.jsonl").open("ab", buffering=0)
        text = b"".join(
            json.dumps({"n": self.count + at}).encode() + b"\n" for at in range(rng.randrange(1, 40))
        )
        self.count += text.count(b"\n")
        cut = rng.randrange(len(text))
        self._file.write(text[:cut])
        self._file.write(text[cut:])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def test_files_are_in_the_stream_once_and_in_order(region: RegionProcesses, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with closing(Files(tmp_path / "logs")) as store:
        found = drilled(region, store, "files", tmp_path)
    assert [update.after and update.after["n"] for update in found] == list(range(store.count))
    assert store.count > 1000


class Rocks:
    """Batches of several entries: a feed may be killed in the middle of one."""

    def __init__(self, process: RocksProcess) -> None:
        self.url = process.url
        self._process = process
        self.history: list[tuple[str, bytes, bytes | None]] = []

    def write(self, rng: random.Random) -> None:
        operations: list[tuple[Any, ...]] = []
        for _ in range(rng.randrange(1, 30)):
            key = b"%d" % rng.randrange(200)
            if rng.random() < 0.2:
                operations.append(("delete", "default", key))
                self.history.append(("delete", key, None))
            else:
                value = b"%d" % len(self.history)
                operations.append(("put", "default", key, value))
                self.history.append(("put", key, value))
        self._process.do("write", [operations])
        if rng.random() < 0.01:
            self._process.do("flush")


def test_batches_of_rocksdb_are_in_the_stream_once_and_in_order(
    region: RegionProcesses, tmp_path: Path
) -> None:
    with rocks_process(tmp_path / "shop", wal_ttl_seconds=3600) as process:
        store = Rocks(process)
        found = drilled(region, store, "rocks", tmp_path)
    told = [
        (
            update.op.name.lower(),
            (update.after or update.before or {})["key"],
            (update.after or {}).get("value"),
        )
        for update in found
    ]
    assert told == store.history
    assert len(told) > 1000
    positions = [update.position for update in found]
    assert positions == sorted(set(positions))


def test_batches_under_way_to_a_head_that_dies_are_stored_once_and_in_order(region: RegionProcesses) -> None:
    """Each says behind which position it comes; positions have gaps, so that nothing else would tell that one
    is missing."""
    few = msgspec.structs.replace(PATIENT, batch_bytes=64)
    count, each = 30, 100
    with Client(region.url("eu"), name="log", settings=few) as client:

        def publish(number: int) -> None:
            places = np.arange(number * each, (number + 1) * each, dtype=np.uint64) * 7 + 1
            payloads = [b"%d" % place for place in places]
            client.publish_at("ahead", payloads, (places, np.zeros(each, np.uint32)))

        for number in range(count):
            if number not in (10, 20):
                publish(number)
                continue
            head = region[region.wait_chain("eu", 2)["head"]]
            killing = threading.Timer(0.005, head.kill)  # in the midst of them, on most machines
            killing.start()
            publish(number)
            killing.join()
            head.start()
        assert client.position("ahead") == Position((count * each - 1) * 7 + 1)
        subscription = client.read("ahead", 1, next_of(client, "ahead") - 1)
        found: list[bytes] = []
        while batches := subscription.take():
            found += [payload for batch in batches for payload in batch.payloads().to_pylist()]
    assert found == [b"%d" % (number * 7 + 1) for number in range(count * each)]

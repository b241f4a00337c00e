"""A real process that is killed while it appends, syncs and collects; what it said was synced is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qanat.events.batch import stream_id
from qanat.log import Chunk, LogConfig, OsDisk, Policy, StreamLog
from qanat.log.checker import Event, check_history, rows_of

STREAM = stream_id("kill")
POLICY = Policy(by_key=True)
CONFIG = LogConfig(policy=POLICY, segment_bytes=64 * 1024)

WRITER = """
import sys, threading
from qanat.events.batch import Batch
from qanat.log import LogConfig, OsDisk, Policy, StreamLog
config = LogConfig(policy=Policy(by_key=True), segment_bytes=64 * 1024)
log = StreamLog.open(OsDisk(), sys.argv[1], int(sys.argv[2]), config)
def collect():
    while True:
        log.collect(everything=True)
threading.Thread(target=collect, daemon=True).start()
n = log.next - 1
while True:
    rows = range(n, n + 20)
    log.append(Batch.build(log.stream, [b"%d" % i + bytes(200) for i in rows], keys=[b"k%d" % (i % 37) for i in rows],
                           source="writer", position=n + 1))
    n += 20
    print(log.sync(), flush=True)
"""  # noqa: E501


@pytest.mark.paper("S11")
def test_kill_9_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    rng = random.Random(5)
    acknowledged = 0
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, folder, str(STREAM)], stdout=subprocess.PIPE, env=dict(os.environ)
        )
        assert writer.stdout is not None
        said = writer.stdout.readline()
        time.sleep(rng.random() / 4)  # how far it gets, not a condition
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.read()
        writer.stdout.close()
        writer.wait(30)
        lines = [line for line in said.splitlines(keepends=True) if line.endswith(b"\n")]
        acknowledged = max(acknowledged, int(lines[-1]) if lines else 0)
        log = StreamLog.open(OsDisk(), folder, STREAM, CONFIG)
        assert log.next - 1 >= acknowledged
        assert log.positions()["writer"] == (log.next - 1, 0)
        published = [Event(i + 1, b"%d" % i + bytes(200), b"k%d" % (i % 37)) for i in range(log.next - 1)]
        batches = []
        start = 1
        while start < log.next:
            chunk = log.read(start, 1 << 20)
            assert isinstance(chunk, Chunk)
            batches += list(chunk.batches())
            start = chunk.last + 1
        check_history(published, rows_of(batches), POLICY)
        log.close()
    assert acknowledged > 100

"""A job that is killed, and whose tasks fail when all is laid down: every row is there once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.servers.stream_server import ServerProcess
from tests.waiting import wait_until

from qanat.client import Client

CHECKOUT = Path(__file__).resolve().parents[2]


def start(url: str, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    program = str(CHECKOUT / "tests/spark/copying_job.py")
    command = [sys.executable, program, url, "from", "to", str(folder), *words]
    with open(folder / "words", "ab") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
            start_new_session=True,
        )


def readable(client: Client, stream: str) -> int:
    return next((told["next"] - 1 for told in client.ask("streams") if told["stream"] == stream), 0)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.paper("D1")
def test_nothing_is_lost_or_doubled_by_kills_and_failures(
    server_process: ServerProcess, tmp_path: Path
) -> None:
    url = server_process.start().url
    rows = [b"%06d" % i + bytes(20) for i in range(80_000)]
    with Client(url) as client:
        client.publish_many("from", rows)
        job = start(url, tmp_path)
        try:
            wait_until(lambda: readable(client, "to") or job.poll() is not None, 200)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    server_process.kill()
    server_process.start()
    assert list(tmp_path.glob("failed-*")), (tmp_path / "words").read_text()[-3000:]
    job = start(url, tmp_path, "--once")
    try:
        assert job.wait(200) == 0, (tmp_path / "words").read_text()[-3000:]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    with Client(url) as client:
        found: list[bytes] = []
        subscription = client.read("to", 1, client.look("to").readable)
        while batches := subscription.take():
            found += [payload for batch in batches for payload in batch.payloads().to_pylist()]
    assert found == rows

"""A job that is killed, and whose tasks fail when all is laid down: every row is there once, in order, and
was delivered once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from tests.integration.archiving import QUICK, archive_all
from tests.servers.stream_server import ServerProcess
from tests.spark.delivering import LONG_S, audited, proven, recorded
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
@pytest.mark.paper("D1", "D7")
def test_nothing_is_lost_or_doubled_by_kills_and_failures(
    server_process: ServerProcess, tmp_path: Path
) -> None:
    """Micro-batches are so large that they wait in files, of which a log takes some over as they are."""
    url, records, archive = server_process.start(*LAZY).url, tmp_path / "records", tmp_path / "archive"
    rows = [b"%06d" % i + bytes(994) for i in range(40_000)]
    seen = begin_and_kill(server_process, rows, tmp_path)
    server_process.start(*LAZY)
    with Client(url) as client:
        (mode,) = (one["durability"] for one in client.ask("streams") if one["stream"] == "to")
        kept = readable(client, "to")
        assert mode == "always" and kept >= seen > 0
        with recorded(url, "to", records) as ends:
            finish(url, tmp_path)
            ends.append(len(rows) + 1)
        assert stored(client, "to") == rows
    archive_all(url, archive, "to", structs.replace(QUICK, range_rows=20_000, file_bytes=32 << 20))
    assert proven(audited(records, archive)) == {"to": (1, len(rows))}


LAZY = ("--durability", "interval")
"""What others make is kept less safely than what this job makes: all that anybody has seen of that is there
after a kill."""


def begin_and_kill(server_process: ServerProcess, rows: list[bytes], tmp_path: Path) -> int:
    """The job and the server are killed as soon as the target has something; how much it had."""
    url = server_process.url
    with Client(url, durability="always") as client:
        client.publish_many("from", rows)
        job = start(url, tmp_path)
        try:
            wait_until(lambda: readable(client, "to") or job.poll() is not None, LONG_S)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        seen = readable(client, "to")
    server_process.kill()
    assert list(tmp_path.glob("failed-*")), (tmp_path / "words").read_text()[-3000:]
    return seen


def finish(url: str, tmp_path: Path) -> None:
    """Another job goes on, up to the end."""
    job = start(url, tmp_path, "--once")
    try:
        assert job.wait(LONG_S) == 0, (tmp_path / "words").read_text()[-3000:]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)


def stored(client: Client, stream: str) -> list[bytes]:
    found: list[bytes] = []
    subscription = client.read(stream, 1, client.look(stream).readable)
    while batches := subscription.take():
        found += [payload for batch in batches for payload in batch.payloads().to_pylist()]
    return found

"""`archive run` without names: all streams that there are, and those that come to be while it runs."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.stream_server import ServerProcess
from tests.spark.archives import fill, history_of
from tests.waiting import wait_until

from qanat.cli.main import main
from qanat.client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.paper("D4")


def test_streams_that_come_later_are_archived_too(
    spark: SparkSession, server_process: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, archive = server_process.start("--set", "log.mode=memory").url, tmp_path / "archive"
    before = signal.signal(signal.SIGTERM, lambda *_: None)

    def come_late() -> None:
        try:
            with Client(url) as client:
                wait_until(lambda: history_of(archive, "early").newest().next == 31)
                fill(client, "late", 20)
                wait_until(lambda: history_of(archive, "late").newest().next == 21)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with Client(url) as client:
        fill(client, "early", 30)
    coming = threading.Thread(target=come_late)
    coming.start()
    try:
        assert main(["archive", "run", str(archive), "--url", url, "--set", "archive.batch_ms=0"]) == 0
    finally:
        coming.join()
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr().out
    assert "early: 1..30 in" in said
    assert history_of(archive, "late").newest().complete() == ((1, 20),)

"""One Spark session for all tests of a process, and stream servers as processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qanat.pipeline.session import SparkSettings, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
"""Compiled once and simply: what lives for seconds does not earn back more."""


def quick_settings(folder: Path, **settings: str) -> SparkSettings:
    """Settings of a small, short-lived Spark; for tests that need one of their own in a process of its own."""
    return SparkSettings(
        master="local[2]",
        memory="768m",
        java_options=QUICK_JAVA,
        folder=str(folder),
        settings={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.python.worker.reuse": "true",
            **settings,
        },
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores and the format `qanat`; it is shared, so a test sets back what it sets."""
    folder = Path(tempfile.mkdtemp(prefix="qanat-spark-"))
    session = open_session(quick_settings(folder), "tests")
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


class ServerProcess:
    """`qanat serve` as a user runs it, on a port of its own; started again, it is at the same place."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"qanat://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *flags: str) -> ServerProcess:
        command = [sys.executable, "-m", "qanat", "serve", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--data", str(self.data), "--admin-port", "0", "--set", "logging.level=error", *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"qanat://127\.0\.0\.1:(\d+)", line)
        assert found, f"the server said {line!r}"
        self.port = int(found.group(1))
        return self

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code

    def end(self) -> None:
        if self._process is not None:
            self.kill()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ServerProcess]:
    """A stream server for tests that do not kill it; each test takes streams of names of its own."""
    folder = Path(tempfile.mkdtemp(prefix="qanat-server-"))
    process = ServerProcess(folder / "data")
    try:
        yield process.start()
    finally:
        process.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server_process(tmp_path: Path) -> Iterator[ServerProcess]:
    """A stream server of a test's own, not yet started: `server_process.start()`."""
    process = ServerProcess(tmp_path / "data")
    try:
        yield process
    finally:
        process.end()

"""One Spark session for all tests of a process, and stream servers as processes of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.stream_server import ServerProcess
from tests.spark import class_archive
from tests.spark.class_archive import quick_java

from qanat.pipeline.session import SparkSettings, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 20
"""So many tests of Spark earn back what it costs to prepare for them."""


_making: list[subprocess.Popen[bytes]] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test: Spark's classes are prepared beside the tests, by one process of them."""
    mine = [item for item in session.items if Path(__file__).parent in item.path.parents]
    first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if first and len(mine) >= MANY and not session.config.option.collectonly:
        command = [sys.executable, class_archive.__file__]
        _making.append(
            subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        )


def pytest_sessionfinish() -> None:
    for process in _making:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def quick_settings(folder: Path, **settings: str) -> SparkSettings:
    """Settings of a small, short-lived Spark; for tests that need one of their own in a process of its
    own."""
    return SparkSettings(
        master="local[2]",
        memory="768m",
        java_options=quick_java(),
        folder=str(folder),
        settings={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.python.worker.reuse": "true",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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

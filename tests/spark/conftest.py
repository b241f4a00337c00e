"""One Spark session for all tests of a process, and stream servers as processes of their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.stream_server import ServerProcess

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

"""Pipelines in tests: a file, a run in a thread of its own, and what is in the streams afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.waiting import wait_until

from qanat.capture import Lost
from qanat.capture.rebuild import updates_of
from qanat.capture.updates import Update
from qanat.capture.url import open_reader
from qanat.client import Client
from qanat.pipeline.pipeline_file import PipelineFile, read
from qanat.pipeline.running import Run
from qanat.pipeline.session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_S = 300
"""Far more than a micro-batch takes while others use the machine."""


def pipeline(folder: Path, text: str) -> PipelineFile:
    file = folder / "pipeline.toml"
    file.write_text(text)
    return read(file)


def run_once(spark: SparkSession, file: PipelineFile, **options: Any) -> dict[str, Any]:
    """Until all that the logs have is published; what the source `log` then says of itself."""
    status = Run(file, SparkSettings(), once=True, session=spark, **options).run()
    assert status["state"] == "done"
    told: dict[str, Any] = status["sources"]["log"]
    return told


class Running:
    """A pipeline that runs in a thread."""

    def __init__(self, spark: SparkSession, file: PipelineFile, **options: Any) -> None:
        self.stopping = threading.Event()
        self._run = Run(file, SparkSettings(), stopping=self.stopping, session=spark, **options)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._run.run()
        except BaseException as error:
            self.error = error

    def status(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return self._run.status()

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """What the source `log` says of itself once that holds."""
        told: dict[str, Any] = {}

        def holds() -> bool:
            nonlocal told
            told = self.status()["sources"].get("log", {})
            return bool(told and condition(told))

        wait_until(holds, LONG_S, say=lambda: told)
        return told

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()


@contextmanager
def running(spark: SparkSession, file: PipelineFile, **options: Any) -> Iterator[Running]:
    made = Running(spark, file, **options)
    try:
        yield made
    finally:
        made.stop()


def in_stream(url: str, stream: str) -> list[Update]:
    """All that was published."""
    found: list[Update] = []
    with Client(url) as client, client.subscribe(stream, start="earliest") as reading:
        while reading.next < reading.end:
            for batch in reading.take():
                found += updates_of(batch).rows()
    return found


def in_log(url: str) -> list[Update]:
    """All that a log has."""
    reader = open_reader(url)
    found: list[Update] = []
    try:
        reader.seek("earliest")
        end = reader.latest()
        upto = reader.oldest()
        while upto < end:
            item = reader.read(10_000, 1.0)
            assert not isinstance(item, Lost), item
            found += item.rows()
            upto = max(upto, item.upto or upto)
    finally:
        reader.close()
    return found

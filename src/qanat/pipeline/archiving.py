"""The archive of a pipeline's streams, which grows beside it: an archiver and a thread for each stream."""

import threading
from typing import TYPE_CHECKING, Any

from qanat.pipeline.archive.archiver import Archiver
from qanat.pipeline.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Archiving:
    """`add` streams as they come to be known; `check` raises what went wrong."""

    def __init__(self, spark: "SparkSession", url: str, path: str, settings: ArchiveSettings) -> None:
        self._spark, self._url, self._path, self._settings = spark, url, path, settings
        self._stop = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._done: dict[str, dict[str, int]] = {}
        self._failed: BaseException | None = None

    def add(self, streams: set[str]) -> None:
        for stream in sorted(streams - self._threads.keys()):
            thread = threading.Thread(
                target=self._run, args=(stream, False), name=f"archive {stream}", daemon=True
            )
            self._threads[stream] = thread
            thread.start()

    def finish(self, streams: set[str]) -> None:
        """Archives what the streams have now."""
        self._end()
        for stream in sorted(streams):
            self._run(stream, True)
        self.check()

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def status(self) -> dict[str, Any]:
        return {stream: dict(one) for stream, one in self._done.items()}

    def stop(self) -> None:
        self._end()

    def _end(self) -> None:
        self._stop.set()
        for thread in self._threads.values():
            thread.join()
        self._threads.clear()
        self._stop = threading.Event()

    def _run(self, stream: str, until_end: bool) -> None:
        told = self._done.setdefault(stream, {"rows": 0, "upto": 0, "behind": 0})
        stop = self._stop
        try:
            with Archiver(self._spark, self._url, self._path, stream, settings=self._settings) as archiver:
                for archived in archiver.run(stop, until_end=until_end):
                    told["rows"] += archived.rows
                    told["upto"], told["behind"] = archived.last, archived.behind
        except BaseException as error:
            self._failed = self._failed or error

"""A pipeline that runs: one query per source, the archive beside them, and what is told of them."""

import fnmatch
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from qanat.capture.url import parse_log_url, split_warning, with_password
from qanat.client.client import DEFAULT_URL
from qanat.events.errors import QanatError
from qanat.pipeline.archiving import Archiving
from qanat.pipeline.ingest.agreement import Asked
from qanat.pipeline.ingest.job import SourceJob, SparkGone
from qanat.pipeline.ingest.routes import Routes, Way
from qanat.pipeline.ingest.state import State
from qanat.pipeline.pipeline_file import PipelineFile
from qanat.pipeline.preparing import prepare
from qanat.pipeline.session import SparkSettings, open_session
from qanat.pipeline.telling import Telling
from qanat.runtime.folder_lock import lock_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("qanat.pipeline")

_STEP_S = 0.1
_TELL_S = 1.0


class Run:
    """`run` returns when `stopping` is set, or with `once` when everything that was there is published."""

    def __init__(
        self,
        file: PipelineFile,
        spark: SparkSettings,
        *,
        once: bool = False,
        accept: bool = False,
        begin: str = "",
        stopping: threading.Event | None = None,
        session: "SparkSession | None" = None,
    ) -> None:
        """With a `session`, that is used, and `spark` is not."""
        self._file, self._spark, self._once, self._session = file, spark, once, session
        self._accept, self._begin = accept, begin
        self._stopping = stopping or threading.Event()
        self._state = State(file.state)
        self._began = time.time()
        self._jobs: list[SourceJob] = []
        self._outcome = "starting"
        self._doing = ""
        """Before it runs: what is looked at, or waited for."""
        self._port = 0
        self._archiving: Archiving | None = None

    def run(self) -> dict[str, Any]:
        """The last status. Raises what ended the pipeline, after it was written down."""
        lock = lock_folder(
            self._file.state,
            f"is in use: {self._file.path} runs already, or another pipeline with that state folder",
        )
        try:
            with Telling(self._file.pipeline.admin, self.status) as telling:
                self._port = telling.port
                try:
                    self._state.tell(self.status())
                    self._go()
                except BaseException as error:
                    self._outcome = "failed" if isinstance(error, QanatError) else "interrupted"
                    self._state.tell(self.status() | {"error": str(error)})
                    raise
                self._outcome = "done" if self._once and not self._stopping.is_set() else "stopped"
                status = self.status()
                self._state.tell(status)
                return status
        finally:
            os.close(lock)

    def status(self) -> dict[str, Any]:
        return {
            "pipeline": self._file.name,
            "file": str(self._file.path.absolute()),
            "state": self._outcome,
            "doing": self._doing,
            "pid": os.getpid(),
            "admin": f"http://127.0.0.1:{self._port}" if self._port else "",
            "since": self._began,
            "told": time.time(),
            "sources": {job.name: job.status() for job in self._jobs},
            **({"archive": self._archiving.status()} if self._archiving is not None else {}),
        }

    # --- the work ---------------------------------------------------------------------------------------

    def _go(self) -> None:
        pipeline = self._file.pipeline
        asked = [self._asked(name) for name in pipeline.sources]
        for one in asked:
            if warning := split_warning(one.log, one.routes.sharding):
                log.warning("source %s: %s", one.name, warning)
        spark = self._session or self._started(asked)
        self._doing = ""
        if spark is None:
            return
        self._jobs = [
            SourceJob(
                spark,
                one,
                self._state,
                pipeline.ingest,
                publish_losses=pipeline.sources[one.name].lost == "publish",
                once=self._once,
            )
            for one in asked
        ]
        if self._file.archive:
            self._archiving = Archiving(spark, self._url, self._file.archive, pipeline.archive)
        self._outcome = "running"
        gone = False
        try:
            self._watch()
            if self._archiving is not None and self._once and not self._stopping.is_set():
                self._archiving.finish(self._archived())
        except SparkGone:
            gone = True
            raise
        finally:
            for job in self._jobs:
                if not gone:
                    job.stop()
            if self._archiving is not None and not gone:
                self._archiving.stop()

    def _started(self, asked: list[Asked]) -> "SparkSession | None":
        """None if it was stopped while somebody was waited for."""

        def doing(what: str) -> None:
            self._doing = what

        patience_s = self._file.pipeline.ingest.patience_s
        prepare({one.name: one.log for one in asked}, self._url, patience_s, self._stopping, doing)
        if self._stopping.is_set():
            return None
        self._doing = f"starting Spark with master {self._spark.master}"
        return open_session(self._spark, f"qanat pipeline {self._file.name}")

    @property
    def _url(self) -> str:
        return self._file.pipeline.url or os.environ.get("QANAT_URL") or DEFAULT_URL

    def _archived(self) -> set[str]:
        """Streams that were published to, by this run or an earlier one, and that are to be archived."""
        patterns = self._file.pipeline.archive.streams
        known = {stream for job in self._jobs for stream in job.streams()}
        return {
            one for one in known if not patterns or any(fnmatch.fnmatchcase(one, each) for each in patterns)
        }

    def _watch(self) -> None:
        told = 0.0
        while not self._stopping.is_set() and not all(job.done for job in self._jobs):
            for job in self._jobs:
                job.step()
            now = time.monotonic()
            if now - told > _TELL_S:
                told = now
                self._state.tell(self.status())
            if self._archiving is not None and not self._once:
                self._archiving.add(self._archived())
                self._archiving.check()
            self._stopping.wait(_STEP_S)

    def _asked(self, name: str) -> Asked:
        pipeline = self._file.pipeline
        source = pipeline.sources[name]
        return Asked(
            name,
            patient_log(with_password(self._file.log_of(source))),
            self._url,
            routes_of(self._file, name),
            source.start,
            self._begin,
            self._accept,
        )


def routes_of(file: PipelineFile, name: str) -> Routes:
    """What decides where updates of a source go."""
    pipeline = file.pipeline
    source = pipeline.sources[name]
    ways = tuple(
        Way(route.stream, route.tables, pipeline.filter_of(route)) for route in pipeline.routes_of(name)
    )
    ingest = pipeline.ingest
    return Routes(
        ways,
        source.tables,
        pipeline.filter_of(source),
        source.shards,
        ingest.unrouted,
        ingest.largest_event_bytes,
    )


def patient_log(url: str) -> str:
    """A PostgreSQL is asked how far it is more often than a reader does that waits for nothing else: a range
    ends where its log does."""
    if parse_log_url(url).scheme not in ("postgresql", "postgres") or "heartbeat_s=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}heartbeat_s=0.5"

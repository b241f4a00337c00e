"""One source's query over its life: started, watched, started again after what passes, ended by what does
not."""

import json
import random
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from qanat.events.errors import QanatError, RemoteError
from qanat.events.position import Position
from qanat.pipeline.ingest.agreement import Agreed, Asked, look
from qanat.pipeline.ingest.dead_letters import folder_of
from qanat.pipeline.ingest.failures import Disagreement, GivenUp, SparkFailed, as_ours, heard
from qanat.pipeline.ingest.live import Live
from qanat.pipeline.ingest.query import let_go, report_of, runs, start_query
from qanat.pipeline.ingest.snapshot import SNAPSHOT, Snapshot
from qanat.pipeline.ingest.state import State
from qanat.pipeline.ingest.task import Plan
from qanat.pipeline.ingest.trouble import forget, troubles
from qanat.pipeline.progress import SourceProgress
from qanat.runtime.backoff import Backoff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from qanat.pipeline.pipeline_file import IngestSettings

_WELL_S = 10.0
"""A query that runs for this long without a word has nothing to do, and is well."""
_SPARK_TRIES = 12
"""What Spark fails of again and again, without any progress, is no accident."""


class SourceJob:
    """`step` is called again and again by the one thread that runs the pipeline."""

    def __init__(
        self,
        spark: "SparkSession",
        asked: Asked,
        state: State,
        settings: "IngestSettings",
        *,
        publish_losses: bool,
        once: bool,
    ) -> None:
        self.name, self._spark, self._asked, self._state = asked.name, spark, asked, state
        self._settings, self._publish_losses = settings, publish_losses
        self._once = once
        self.progress = SourceProgress()
        self.trouble: QanatError | None = None
        self._since = 0.0
        """When trouble began, on the monotonic clock."""
        self._tries = 0
        self._next_try = 0.0
        self._backoff = Backoff(500, 5_000, random.Random())
        self._query: StreamingQuery | None = None
        self._started = 0.0
        self._compared = False
        self._streams: set[str] = set()
        self._until: Position | None = None
        self._at: Position | None = None
        """Where the query goes on, or begins."""
        self._snapshot: Snapshot | None = None
        if asked.start == SNAPSHOT and not asked.begin:
            letters = folder_of(state.folder, self.name)
            self._snapshot = Snapshot(asked, state.snapshot(self.name), letters, settings.snapshot_rows_per_s)
        self.done = False

    def step(self) -> None:
        """Raises what the pipeline must end with."""
        if self.done:
            return
        try:
            if self._snapshot is not None and self._snapshot.runs:
                return
            if self._query is None:
                if time.monotonic() >= self._next_try:
                    self._start()
            elif runs(self._query):
                self._watch(self._query)
            else:
                raise self._why_ended(self._query)
        except QanatError as error:
            self._failed(as_ours(error))

    def stop(self) -> None:
        if self._snapshot is not None:
            self._snapshot.stop()
        query, self._query = self._query, None
        if query is not None:
            with suppress(Exception):  # Spark may have gone before
                query.stop()
            let_go(self._spark, query)

    def status(self) -> dict[str, Any]:
        told = troubles(self._state.troubles(self.name)) if self._query is not None else {}
        if self.trouble is not None:
            told = {"trouble": str(self.trouble), "since": time.time() - (time.monotonic() - self._since)}
        live = Live.load(self._state.live(self.name)) if self._query is not None else None
        status = self.progress.status(bool(told), live)
        if told:
            status["trouble"], status["trouble_s"] = told["trouble"], round(time.time() - told["since"], 1)
        if not status["position"] and self._at is not None:
            status["position"] = str(self._at)
        status["state"] = "done" if self.done else "waiting" if told else "running"
        if self._snapshot is not None and not self.done:
            status["snapshot"] = self._snapshot.status()
        return status

    # --- the query --------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._snapshot is not None and (error := self._snapshot.error) is not None:
            self._snapshot.error = None
            raise error
        agreed = look(self._asked, self._state, compare=not self._compared)
        self._compared = True
        remembered = agreed.remembered
        self._streams |= set(agreed.streams)
        self._state.remember(self._state.remembered() | {self.name: remembered})
        offset = self._state.offset(self.name)
        start = agreed.start
        if self._snapshot is not None:
            if offset is None and not self._snapshot.is_done:
                self._take_snapshot(self._snapshot, agreed)
                return
            if self._snapshot.progress is not None:
                start = self._snapshot.progress.position
        self._at = start if offset is None else offset.position
        if self._once and self._until is None:
            # Spark may have planned more than was done, or more than the log has now; what was planned is
            # done again.
            self._until = max(agreed.latest, self._at)
            if self._until == self._at and self._state.has_done(self.name):
                self.done = True  # it would run no micro-batch at all, and tell nothing
                return
        troubled = self._state.troubles(self.name)
        if self.trouble is None:
            forget(troubled)
            self._state.live(self.name).unlink(missing_ok=True)
        plan = Plan(
            self.name,
            self._asked.log,
            remembered.source,
            self._asked.url,
            self._asked.routes,
            str(folder_of(self._state.folder, self.name)),
            str(self._state.published(self.name)),
            str(troubled / "task.json"),
            str(self._state.live(self.name)),
            self._settings.patience_s,
            self._settings.read_updates,
            self._publish_losses,
            uuid.uuid4().hex,
        )
        try:
            self._query = start_query(
                self._spark,
                plan,
                self._state.checkpoint(self.name),
                troubled / "planner.json",
                start=start,
                until=self._until,
                batch_updates=self._settings.batch_updates,
                checkpoint_ms=self._settings.checkpoint_ms,
            )
        except Exception as error:
            raise self._said(error) from error
        self._started = time.monotonic()

    def _take_snapshot(self, taking: Snapshot, agreed: Agreed) -> None:
        if taking.progress is None and agreed.streams:
            stream, position = max(agreed.streams.items(), key=lambda pair: pair[1])
            raise Disagreement(
                f"stream {stream!r} has {agreed.remembered.source!r} up to {position}, and a snapshot of"
                f" [sources.{self.name}] goes into streams that have nothing of it: route it into new"
                f" streams; or go on behind what they have, by --from {position}"
            )
        taking.start()

    def _watch(self, query: "StreamingQuery") -> None:
        text = report_of(query)
        if (text and self.progress.take(json.loads(text))) or self._is_idle():
            self._is_well()
        if self._until is not None and (self.progress.upto or Position(0, 0)) >= self._until:
            self.stop()
            self.done = True

    def _is_idle(self) -> bool:
        """Whether a query that was started again has nothing to do; one that waits for something is not well
        by that."""
        if self.trouble is None or time.monotonic() - self._started <= _WELL_S:
            return False
        return not troubles(self._state.troubles(self.name))

    def streams(self) -> set[str]:
        """Those that are known to have something of this source."""
        taken = set() if self._snapshot is None else set(self._snapshot.streams)
        return self._streams | set(self.progress.streams) | taken

    # --- trouble ----------------------------------------------------------------------------------------

    def _why_ended(self, query: "StreamingQuery") -> QanatError:
        error = query.exception()
        self.stop()
        return SparkFailed("Spark ended the query without a reason") if error is None else self._said(error)

    def _said(self, error: Exception) -> QanatError:
        from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

        if isinstance(error, QanatError):
            return error
        if isinstance(error, Py4JNetworkError | ConnectionError):
            return SparkGone(
                "Spark's Java process has ended: start the pipeline again, it goes on from its checkpoint"
            )
        return heard(str(error))

    def _is_well(self) -> None:
        self.trouble, self._tries = None, 0
        self._backoff.reset()

    def _failed(self, error: QanatError) -> None:
        now = time.monotonic()
        if not isinstance(error, RemoteError) or isinstance(error, SparkGone | GivenUp):
            self.trouble = error
            raise error
        if self.trouble is None:
            self._since, self._tries = now, 0
        self.trouble = error
        self._tries += 1
        if isinstance(error, SparkFailed) and self._tries > _SPARK_TRIES:
            raise error
        if now - self._since > self._settings.patience_s:
            raise GivenUp(f"{error} (waited for it for {now - self._since:.0f} s)")
        self._next_try = now + self._backoff.next_ms() / 1000


class SparkGone(SparkFailed):
    """There is no Spark in this process any more."""


__all__ = ["Disagreement", "SourceJob", "SparkGone"]

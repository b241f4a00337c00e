"""One source's Structured Streaming query: ranges of its log in, reports out, and everything else happens in
its one task.

Spark's progress is tracked beside the micro-batches, not between them (`asyncProgressTracking`): what Spark
has not written down when it is killed is read again, and the streams drop it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.events.position import Position
from qanat.pipeline.ingest.ranges import FORMAT, RangesSource
from qanat.pipeline.ingest.task import Plan, make_ready, run_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_OBSERVED = "ingest"
_PIN = "QANAT_INGEST"


def start_query(
    spark: "SparkSession",
    plan: Plan,
    checkpoint: Path,
    trouble: Path,
    *,
    start: Position,
    until: Position | None,
    batch_updates: int,
    checkpoint_ms: int,
) -> "StreamingQuery":
    """`start` counts only without a checkpoint; the query reads nothing behind `until`, and does not end
    there by itself."""
    from pyspark.sql import functions as F

    spark.dataSource.register(RangesSource)
    unready = trouble.with_name("unready")
    if (
        not checkpoint.exists()
    ):  # with one, Spark may begin with a batch that it had planned before, and asks nobody
        _start_worker(spark, plan, unready)
    options = {
        "log": plan.log,
        "source": plan.source,
        "start": str(start),
        "until": "" if until is None else str(until),
        "rows": str(batch_updates),
        "trouble": str(trouble),
        "patience_s": str(plan.patience_s),
        "unready": str(unready),
    }
    ranges = spark.readStream.format(FORMAT).options(**options).load()
    with _pinned(spark, plan.letters):
        reports = ranges.mapInArrow(partial(run_ranges, plan), "report string")
    observed = reports.observe(_OBSERVED, F.max("report").alias("report"))
    writing = observed.writeStream.format("noop")
    tracking = {
        "checkpointLocation": checkpoint.as_uri(),
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": str(checkpoint_ms),
    }
    return writing.options(**tracking).start()


def _start_worker(spark: "SparkSession", plan: Plan, unready: Path) -> None:
    """Has the process of the source's tasks started, and its log and streams opened, while Spark starts the
    one that plans.

    Until that is done there is a file `unready`, for which the first range waits: a task that came before
    would get a process of its own, and of two idle ones Spark takes either.
    """
    with _pinned(spark, plan.letters):
        made = spark.range(0, 1, 1, 1).mapInArrow(partial(make_ready, plan), "report string")
    unready.parent.mkdir(parents=True, exist_ok=True)
    unready.touch()

    def work() -> None:
        try:
            with suppress(Exception):  # the first task meets the same, and tells of it
                made.collect()
        finally:
            unready.unlink(missing_ok=True)

    threading.Thread(target=work, name=f"qanat-worker-{plan.name}", daemon=True).start()


def report_of(query: "StreamingQuery") -> str:
    """The last micro-batch's report, as JSON; empty if there is none."""
    progress = query.lastProgress
    if progress is None:
        return ""
    observed: Any = progress.observedMetrics.get(_OBSERVED)
    return (observed["report"] if observed is not None else None) or ""


def runs(query: "StreamingQuery") -> bool:
    """Whether somebody still works on it; Spark itself may say so of a query whose thread has died (see
    `let_go`)."""
    return bool(query.isActive and query._jsq.streamingQuery().queryExecutionThread().isAlive())


def let_go(spark: "SparkSession", query: "StreamingQuery") -> None:
    """After a query has ended: its checkpoint can be used again.

    Where progress is tracked asynchronously, Spark's query commits to its sources once more when it has
    stopped them. That fails where the source is a Python process, and the query's last steps are left out: it
    stays on the list of those that run.
    """
    ended, session = query._jsq, spark._jsparkSession
    with suppress(Exception):
        session.streams().notifyQueryTermination(ended.streamingQuery())
    with suppress(Exception):
        session.sharedState().activeStreamingQueries().remove(ended.id(), ended.streamingQuery())


@contextmanager
def _pinned(spark: "SparkSession", name: str) -> Iterator[None]:
    """Functions that are made meanwhile run in worker processes of their own.

    Spark keeps idle workers by their environment. With one of its own, all tasks of a source, of which there
    is one at a time, come to the same process, where its log is still open.
    """
    environment = spark.sparkContext.environment
    environment[_PIN] = name
    try:
        yield
    finally:
        environment.pop(_PIN, None)

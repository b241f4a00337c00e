"""A streaming job whose tasks fail: from one stream into another. Started by a test, as a process that can be
killed.

`python copying_job.py URL FROM TO FOLDER [--once]`
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from msgspec import structs
from tests.spark.conftest import quick_settings

from qanat.pipeline.columns import DDL
from qanat.pipeline.session import open_session


def main() -> None:
    url, origin, target, folder, *words = sys.argv[1:]
    home = Path(folder)
    settings = structs.replace(quick_settings(home), master="local[2,4]")
    spark = open_session(settings, "copying")
    options = {"url": url, "stream": origin, "maxRowsPerTrigger": "20000", "partitions": "2"}
    copied = spark.readStream.format("qanat").options(**options).load().mapInArrow(_troubled(home), DDL)
    options = {
        "url": url,
        "stream": target,
        "checkpointLocation": str(home / "checkpoint"),
        "durability": "always",
    }
    sink = copied.writeStream.format("qanat").options(**options)
    once = "--once" in words
    running = (sink.trigger(availableNow=True) if once else sink.trigger(processingTime="0 seconds")).start()
    running.awaitTermination()
    spark.stop()


def _troubled(home: Path):  # type: ignore[no-untyped-def]
    """Of each micro-batch one task fails when all its rows are laid down."""
    place = str(home)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch, part, attempt = (
            context.getLocalProperty("streaming.sql.batchId"),
            context.partitionId(),
            context.attemptNumber(),
        )
        yield from batches
        if part == 0 and attempt == 0:
            Path(place, f"failed-{batch}").touch()
            raise RuntimeError("a task that fails at its end")

    return work


if __name__ == "__main__":
    main()

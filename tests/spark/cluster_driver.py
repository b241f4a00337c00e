"""A driver that runs commands of ours one after another on one Spark session, as one line of JSON each tells
it.

`{"words": […], "out": path, "err": path}` in, `{"code": 0}` out. A driver of its own for each command would
cost more than all that the commands do. There is also a job that only users have: a query from one stream
into another.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow as pa

from qanat.cli.main import main
from qanat.pipeline.columns import DDL
from qanat.pipeline.session import SparkSettings, open_session


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        words = asked["words"]
        with Path(asked["out"]).open("w") as out, Path(asked["err"]).open("w") as err:
            with redirect_stdout(out), redirect_stderr(err):
                code = copy(*words[1:]) if words[0] == "copy" else main(words)
        print(json.dumps({"code": code}), flush=True)


def copy(master: str, url: str, source: str, target: str, checkpoint: str, twice: str) -> int:
    """From stream to stream, in small micro-batches, up to where the source is now. The first task hangs
    until Spark runs it twice."""
    spark = open_session(SparkSettings(master=master, settings=json.loads(sys.argv[1])))
    events = spark.readStream.format("qanat").options(
        url=url, stream=source, maxRowsPerTrigger="400", partitions="2"
    )
    rows = events.load().mapInArrow(hanging(twice), DDL)
    query = rows.writeStream.format("qanat").options(url=url, stream=target, checkpointLocation=checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return 0


def hanging(path: str):  # type: ignore[no-untyped-def]
    """A task of the first micro-batch that lays down all its rows, and ends when another run of it has done
    so."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context is None or context.getLocalProperty("streaming.sql.batchId") != "0":
            return
        if context.attemptNumber():
            Path(path).touch()
        deadline = time.monotonic() + 60
        while not Path(path).exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    return work


if __name__ == "__main__":
    serve()

"""The measurements of S14 as Spark jobs, for streams that are too long for one process.

A job of its own counts what each chunk adds, a second one makes the lines of new keys, which every task then
has at hand; the third one names the keys of each span and counts them. Nothing depends on how the work is
spread: chunks are drawn from their numbers, and a key that several spans saw counts where it was seen first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from qanat.studies.registry import Say
from qanat.studies.s14.curves import (
    Ages,
    Curve,
    ages_of,
    agree,
    arrivals_in,
    chunk_for,
    logged,
    points,
    tell,
)
from qanat.studies.s14.popularity import Ints
from qanat.studies.s14.spans import (
    SPAN_CHUNKS,
    Line,
    Span,
    Total,
    Workload,
    ages,
    arrivals_for,
    chunks_for,
    distinct,
    line_of,
    spans,
    total,
)
from qanat.studies.s14.workload import Model, chunk_size
from qanat.studies.spark_progress import Job, watched

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

_ROWS = 1 << 20
"""Rows of an Arrow batch on its way to Java: 12 MB."""
_EVENTS_PER_PARTITION = 8_000_000
"""Events for one partition of the count, which are at most some 2 million keys: they fit into a task's
memory."""
_CHUNKS_PER_TASK = 16
_FIRST_SPANS = 4
"""Of a fixed set of keys so many are counted first, 130 million events: perhaps all keys occur in them."""


class OnSpark:
    """Measures as `s14_curves` does, and comes to the same numbers."""

    def __init__(
        self, spark: SparkSession, *, chunk: int | None = None, span_chunks: int = SPAN_CHUNKS
    ) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._chunk = chunk
        self._span_chunks = span_chunks

    def storage(self, model: Model, seed: int, *, upto: int, log_upto: int, say: Say) -> Curve:
        """A curve of Fig. 10. Up to `log_upto` events the log is asked, too, by one task."""
        at = points(upto)
        work = Workload(model, seed, chunk_size(self._chunk or chunk_for(upto)))
        with self._asking_log(work, at[at <= log_upto]) as asked:
            stored = self._stored(work, at, say)
            for reached in range(1, len(at) + 1):
                tell(say, at, stored[:reached].tolist())
            while asked.runs():
                pass
            return Curve(model, at, stored, _agreed(asked.result(), at[at <= log_upto], stored))

    def _stored(self, work: Workload, at: Ints, say: Say) -> Ints:
        """What is left at each point."""
        upto, model = int(at[-1]), work.model
        totals = self._totals(work, chunks_for(work, arrivals_for(model, upto)), timed=False, say=say)
        parts = spans(work, totals, upto=upto, chunks=self._span_chunks)
        if model.keys is not None and not model.new_rate and len(parts) > _FIRST_SPANS:
            stored = self._count(work, parts[:_FIRST_SPANS], [], at, say).cumsum()
            if stored[-1] == model.keys:  # all of them were seen: nothing can be added
                return stored
        lines = self._lines(work, parts, timed=False, say=say)
        try:
            return self._count(work, parts, lines, at, say).cumsum()
        finally:
            _forget(lines)

    def ages(self, model: Model, seed: int, *, ticks: int, age_max: int, say: Say) -> Ages:
        """A line of Fig. 9."""
        arrivals = arrivals_in(model, ticks)
        work = Workload(model, seed, chunk_size(self._chunk or chunk_for(arrivals)))
        totals = self._totals(work, chunks_for(work, arrivals), timed=True, say=say)
        parts = spans(work, totals, ticks=ticks, chunks=self._span_chunks)
        lines = self._lines(work, parts, timed=True, say=say)

        def counted(part: int) -> Ints:
            earlier = [line.value for line in lines[:part]]
            return ages(work, parts[part], ticks=ticks, age_max=age_max, lines=earlier)

        try:
            tasks = self._context.parallelize(range(len(parts)), len(parts)).map(counted)
            by_age = watched(self._context, lambda: tasks.reduce(np.add), say, "ages")
        finally:
            _forget(lines)
        return ages_of(model, by_age, age_max)

    def _totals(self, work: Workload, chunks: int, *, timed: bool, say: Say) -> list[Total]:
        if not timed and not work.model.new_rate:
            return [Total(0, 0.0)] * chunks
        tasks = self._context.parallelize(range(chunks), -(-chunks // _CHUNKS_PER_TASK))
        numbers = tasks.map(lambda number: total(work, number, timed=timed))
        return watched(self._context, numbers.collect, say, "arrivals")

    def _lines(self, work: Workload, parts: list[Span], *, timed: bool, say: Say) -> list[Broadcast[Line]]:
        """The line of each span but the last, for all tasks."""
        if not work.model.new_rate or len(parts) == 1:
            return []
        tasks = self._context.parallelize(parts[:-1], len(parts) - 1)
        made = tasks.map(lambda span: line_of(work, span, timed=timed))
        lines: list[Broadcast[Line]] = []

        def gather() -> None:
            for line in made.toLocalIterator(prefetchPartitions=True):  # all at once would be a gigabyte
                lines.append(self._context.broadcast(line))

        try:
            watched(self._context, gather, say, "lines")
        except BaseException:
            _forget(lines)
            raise
        return lines

    def _count(
        self, work: Workload, parts: list[Span], lines: list[Broadcast[Line]], at: Ints, say: Say
    ) -> Ints:
        """Keys that were first seen before each point and after the one before."""
        from pyspark.sql import functions as F

        def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for part in batch.column(0).to_pylist():  # one
                    earlier = [line.value for line in lines[:part]]
                    for point, keys in distinct(work, parts[part], at, earlier):
                        yield from _batches(point, keys)

        partitions = max(self._context.defaultParallelism, -(-int(at[-1]) // _EVENTS_PER_PARTITION))
        rows = self._spark.range(0, len(parts), 1, len(parts)).mapInArrow(seen, "key long, point int")
        # A span's keys are distinct already: to group them before they travel would be in vain.
        by_key = rows.repartition(partitions, "key").groupBy("key").agg(F.min("point").alias("point"))
        found = watched(self._context, by_key.groupBy("point").count().collect, say, "keys")
        first_seen = np.zeros(len(at), np.int64)
        for row in found:
            first_seen[row["point"]] = row["count"]
        return first_seen

    def _asking_log(self, work: Workload, at: Ints) -> Job[tuple[list[int], int]]:
        """What the log keeps at these points, and what a new reader gets: one task, beside the others."""
        if not len(at):
            return Job(self._context, "log", lambda: ([], 0))
        task = self._context.parallelize([work], 1).map(
            lambda one: logged(one.model, one.seed, at, chunk=one.chunk)
        )
        return Job(self._context, "log", lambda: task.collect()[0])


def _agreed(logged: tuple[list[int], int], at: Ints, stored: Ints) -> int:
    """Compares what was counted with what the log keeps at these points, and with what a new reader gets;
    says up to where."""
    if not len(at):
        return 0
    kept, read_back = logged
    for generated, counted, kept_there in zip(at.tolist(), stored.tolist(), kept, strict=False):
        agree(generated, counted, kept_there)
    agree(int(at[-1]), int(stored[len(at) - 1]), read_back)
    return int(at[-1])


def _batches(point: int, keys: Ints) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), _ROWS):
        piece = keys[start : start + _ROWS]
        columns = [pa.array(piece), pa.array(np.full(len(piece), point, np.int32))]
        yield pa.RecordBatch.from_arrays(columns, ["key", "point"])


def _forget(lines: list[Broadcast[Line]]) -> None:
    for line in lines:
        line.destroy()

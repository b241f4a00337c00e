"""How late updates are that go through Spark: from the call that writes one to a RocksDB until its event is
in the hands of a subscriber.

| figure | is the time |
|---|---|
| `latency_ms_p50`, `latency_ms_p99` | from the write to the subscriber, in processes of their own |
| `latency_capture_ms` | of that, until the pipeline has planned the micro-batch that the update is in: most of it is the micro-batch before, which is under way |
| `latency_batch_ms` | then, until the task has read it and hands its event to the stream |
| `latency_publish_ms` | then, until the subscriber has it |
| `latency_micro_batch_ms` | that a micro-batch takes as a whole, by Spark's own account; the median |

The parts are means, and add up to the mean. Updates come one by one at a steady rate, the way few things do:
a load without pauses to catch up in. Writer, Spark with its Python processes, server and subscriber share the
machine.
"""  # noqa: E501

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.bench.figures import medians
from qanat.events.errors import RemoteError
from qanat.events.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qanat.pipeline.running import Run

DESCRIPTION = (
    "from a write to a RocksDB, through Spark, to a subscriber of the stream: p50 and p99, and where the time"
    " goes"
)
RATE = 200
"""Writes per second."""
WARM_UP_S = float(os.environ.get("QANAT_BENCH_LATENCY_WARM_UP_S", "20"))
"""Java compiles what it runs often; this is how long it takes until micro-batches are as short as they
get."""
ROUND_S = 8.0
_STREAM = "updates"
_DIGITS = 19

Array = np.ndarray[Any, Any]


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, which follow each other without a pause."""
    from qanat.operate.processes import stream_server, workers
    from qanat.pipeline.session import SparkSettings, open_session

    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    count = int((WARM_UP_S + rounds * ROUND_S) * RATE)
    settings = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}
    spark = open_session(
        SparkSettings(memory="1g", folder=str(folder / "spark"), settings=settings), "bench latency"
    )
    try:
        with (
            stream_server("always") as (url, _),
            workers(1, write, str(folder / "store"), count, 1 / RATE) as (writer,),
            workers(1, watch, url, _STREAM, count) as (subscriber,),
            _pipeline(spark, folder, url) as ended,
        ):
            say(f"{RATE} writes/s; the first {WARM_UP_S:g} s are not counted")
            writer.tell("go")
            writer.wait()
            columns = subscriber.wait()
            planned, micro_batches = _micro_batches(spark)
            ended()
        measured = []
        for number in range(rounds):
            first = int((WARM_UP_S + number * ROUND_S) * RATE)
            rows = slice(first, first + int(ROUND_S * RATE))
            measured.append(stages({name: column[rows] for name, column in columns.items()}, planned))
            told = ", ".join(f"{name} {value:.3g}" for name, value in measured[-1].items())
            say(f"round {number + 1} of {rounds}: {told}")
        began_us = int(columns["written_us"][int(WARM_UP_S * RATE)])
        took = [ms for seen_us, ms in micro_batches if seen_us >= began_us]
        return medians(measured) | {"latency_micro_batch_ms": float(np.median(took))}
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def write(pipe: Pipe, folder: str, count: int, every_s: float) -> None:
    """Puts one row at each tick, under its own time as key."""
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_wal_ttl_seconds(36000)
    database = Rdict(folder, options)
    database[b"begin"] = b""
    pipe.send("ready")
    pipe.recv()
    due = time.monotonic()
    for _ in range(count):
        due += every_s
        time.sleep(max(0.0, due - time.monotonic()))
        database[b"%0*d" % (_DIGITS, time.time_ns())] = bytes(100)
    pipe.send("done")
    pipe.recv()


def watch(pipe: Pipe, url: str, stream: str, count: int) -> None:
    """When each event was written, published and had, and its place in the log; in the order of the
    stream."""
    from qanat.client import Client

    parts: list[dict[str, Array]] = []
    with Client(url) as client:
        subscription = client.subscribe(stream, start="earliest")
        pipe.send("ready")
        seen = 0
        while seen < count:
            for batch in subscription.take():
                had = columns_of(batch, time.time_ns() // 1000)
                parts.append(had)
                seen += len(had["written_us"])
    pipe.send({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def columns_of(batch: Any, now_us: int) -> dict[str, Array]:
    """Without the row that was there when the pipeline began."""
    words = pc.binary_slice(batch.keys(), -2 * _DIGITS).cast(
        pa.string()
    )  # binary keys are told in hexadecimal digits
    rows = np.flatnonzero(
        pc.match_substring_regex(words, rf"^(3[0-9]){{{_DIGITS}}}$").to_numpy(zero_copy_only=False)
    )
    digits = bytes.fromhex("".join(words.take(pa.array(rows)).to_pylist()))
    sequences, indexes = batch.positions()
    return {
        "written_us": np.frombuffer(digits, f"S{_DIGITS}").astype(np.int64) // 1000,
        "published_us": batch.times()[rows].astype(np.int64),
        "had_us": np.full(len(rows), now_us),
        "place": (sequences.astype(np.int64) + indexes.astype(np.int64))[rows],
    }


@contextmanager
def _pipeline(spark: SparkSession, folder: Path, url: str) -> Iterator[Callable[[], None]]:
    """What `qanat pipeline run` does, in a thread of this process, where Spark's own account can be had.
    Gives what ends it."""
    from qanat.pipeline.pipeline_file import read
    from qanat.pipeline.running import Run
    from qanat.pipeline.session import SparkSettings

    file = folder / "pipeline.toml"
    file.write_text(
        f'url = "{url}"\nstate = "{folder / "state"}"\n[sources.store]\nlog ='
        f' "rocksdb://{folder / "store"}"\n[[routes]]\nstream = "{_STREAM}"\n'
    )
    stopping = threading.Event()
    job = Run(read(file), SparkSettings(), stopping=stopping, session=spark)
    thread = threading.Thread(target=_run, args=(job, stopping), name="bench-pipeline")
    thread.start()

    def end() -> None:
        stopping.set()
        thread.join()

    try:
        while not spark.streams.active and thread.is_alive():
            time.sleep(0.05)
        if not thread.is_alive():
            raise RemoteError("the pipeline broke off")
        yield end
    finally:
        end()


def _run(job: Run, stopping: threading.Event) -> None:
    try:
        job.run()
    finally:
        stopping.set()


def _micro_batches(spark: SparkSession) -> tuple[tuple[Array, Array], list[tuple[int, int]]]:
    """How far each micro-batch went and when it was planned, as columns; and that with what Spark says it
    took, in ms."""
    uptos, seen, took = [], [], []
    for progress in spark.streams.active[0].recentProgress:
        observed: Any = progress.observedMetrics.get("ingest")
        if observed is None or not observed["report"]:
            continue
        report = msgspec.json.decode(observed["report"])
        upto = Position.parse(report["upto"])
        uptos.append(upto.sequence + upto.index)
        seen.append(report["seen_us"])
        took.append((report["seen_us"], progress.durationMs["triggerExecution"]))
    return (np.array(uptos), np.array(seen)), took


def stages(columns: dict[str, Array], planned: tuple[Array, Array]) -> dict[str, float]:
    """Percentiles, and the mean of each part. `planned` is how far each micro-batch went, and when it was
    planned."""
    written_us, published_us, had_us = columns["written_us"], columns["published_us"], columns["had_us"]
    uptos, seen_us = planned
    seen = seen_us[np.minimum(np.searchsorted(uptos, columns["place"]), len(seen_us) - 1)]
    late_ms = (had_us - written_us) / 1000
    return {
        "latency_ms_p50": float(np.percentile(late_ms, 50)),
        "latency_ms_p99": float(np.percentile(late_ms, 99)),
        "latency_capture_ms": float(np.mean(seen - written_us)) / 1000,
        "latency_batch_ms": float(np.mean(published_us - seen)) / 1000,
        "latency_publish_ms": float(np.mean(had_us - published_us)) / 1000,
    }

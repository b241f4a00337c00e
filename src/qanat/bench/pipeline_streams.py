"""A stream read and written by Spark, beside the least that a Python data source can do.

| figure | is |
|---|---|
| `source_rows_per_s` | rows of a stream that Spark reads and drops |
| `source_ratio` | that, to rows/s of a Python source that yields the same record batches ready-made |
| `sink_rows_per_s` | rows of Parquet files, payloads alone, that Spark writes into a stream until they are stored |
| `sink_ratio` | that, to rows/s of an Arrow sink that drops them |
| `keyed_sink_rows_per_s`, `keyed_sink_ratio` | the same for rows with keys, nearly all different: the server keeps an index of them |

A row has a payload of 200 bytes, a key of 8, and in the stream the position of its source. Streams are
durable as by default. The server, Spark and its Python workers share the machine.
"""  # noqa: E501

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qanat.bench.figures import medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DESCRIPTION = (
    "a stream as Spark's source and sink in rows/s, beside a source of ready-made batches and a sink that"
    " drops them"
)
ROWS = int(os.environ.get("QANAT_BENCH_STREAMS_ROWS", "2000000"))
KEY_BYTES, PAYLOAD_BYTES = 8, 200
CORES = 2
WARMING = 2
"""Rounds that are not counted: Java compiles what it runs often, and Python's processes start."""


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds."""
    from qanat.pipeline.session import SparkSettings, open_session

    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    settings = SparkSettings(cores=CORES, memory="2g", folder=str(folder / "spark"))
    spark = open_session(settings, "bench streams")
    try:
        with serving(folder / "data") as url:
            _prepare(spark, url, folder)
            say(f"{ROWS:,} rows of {KEY_BYTES + PAYLOAD_BYTES} bytes, {CORES} cores")
            measured = []
            for i in range(1 - WARMING, rounds + 1):
                measured.append(_round(spark, url, folder, i))
                told = ", ".join(f"{name} {value:.3g}" for name, value in measured[-1].items())
                say(f"round {i} of {rounds}: {told}")
            return medians(measured[WARMING:])
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """A stream server as a user starts it; its URL."""
    command = [sys.executable, "-m", "qanat", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    command += ["--admin-port", "0", "--set", "logging.level=error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            found = re.search(r"qanat://127\.0\.0\.1:\d+", line)
            if found is None:
                raise RuntimeError(f"the server said {line!r}")
            yield found.group(0)
        finally:
            process.terminate()


def _rows(first: int, count: int) -> pa.Table:
    rng = np.random.Generator(np.random.PCG64(first))
    keys = rng.integers(0, 256, count * KEY_BYTES, np.uint8).tobytes()
    payloads = rng.integers(0, 256, count * PAYLOAD_BYTES, np.uint8).tobytes()
    return pa.table({"key": _column(keys, KEY_BYTES), "payload": _column(payloads, PAYLOAD_BYTES)})


def _column(data: bytes, width: int) -> pa.Array:
    fixed = pa.Array.from_buffers(pa.binary(width), len(data) // width, [None, pa.py_buffer(data)])
    return fixed.cast(pa.binary())


def _prepare(spark: SparkSession, url: str, folder: Path) -> None:
    """The same rows as a stream, as Parquet files, and as the record batches that reading the stream
    makes."""
    from qanat.client import Client
    from qanat.pipeline.columns import arrow_of

    spark.dataSource.register(_ready_source())
    spark.dataSource.register(_dropping_sink())
    (folder / "parquet").mkdir()
    step = ROWS // 8
    with Client(url, name="bench") as client:
        for part in range(8):
            rows = _rows(part, step)
            pq.write_table(rows, folder / "parquet" / f"{part}.parquet", compression="none")
            client.publish_many("rows", rows["payload"], keys=rows["key"])
        for part in range(CORES):
            first, last = part * ROWS // CORES + 1, (part + 1) * ROWS // CORES
            subscription = client.read("rows", first, last)
            with pa.OSFile(str(folder / f"ready-{part}.arrow"), "wb") as file:
                writer = None
                while batches := subscription.take():
                    for batch in batches:
                        made = arrow_of("rows", batch)
                        if writer is None:
                            writer = pa.ipc.new_file(file, made.schema)
                        writer.write_batch(made)
                if writer is not None:
                    writer.close()


def _round(spark: SparkSession, url: str, folder: Path, number: int) -> dict[str, float]:
    """What is compared is measured one after the other, in turns first."""
    rows = spark.read.parquet(str(folder / "parquet"))
    plain = rows.select("payload")
    reading: dict[str, Callable[[], None]] = {
        "source": lambda: _read(spark, url),
        "ready": lambda: _read_ready(spark, folder),
    }
    writing: dict[str, Callable[[], None]] = {
        "sink": lambda: _write(plain, url, f"plain{number}"),
        "dropping": lambda: _drop(plain),
    }
    keyed: dict[str, Callable[[], None]] = {
        "keyed_sink": lambda: _write(rows, url, f"keyed{number}"),
        "keyed_dropping": lambda: _drop(rows),
    }
    took: dict[str, float] = {}
    for pair in (reading, writing, keyed):
        for name, work in list(pair.items())[:: -1 if number % 2 else 1]:
            os.sync()
            began = time.monotonic()
            work()
            took[name] = time.monotonic() - began
    return {
        "source_rows_per_s": ROWS / took["source"],
        "source_ratio": took["ready"] / took["source"],
        "sink_rows_per_s": ROWS / took["sink"],
        "sink_ratio": took["dropping"] / took["sink"],
        "keyed_sink_rows_per_s": ROWS / took["keyed_sink"],
        "keyed_sink_ratio": took["keyed_dropping"] / took["keyed_sink"],
        "ready_rows_per_s": ROWS / took["ready"],
        "dropping_rows_per_s": ROWS / took["dropping"],
    }


def _read(spark: SparkSession, url: str) -> None:
    options = {"url": url, "stream": "rows", "partitions": str(CORES)}
    spark.read.format("qanat").options(**options).load().write.format("noop").mode("overwrite").save()


def _read_ready(spark: SparkSession, folder: Path) -> None:
    spark.read.format("ready").option("folder", str(folder)).load().write.format("noop").mode(
        "overwrite"
    ).save()


def _write(rows: DataFrame, url: str, stream: str) -> None:
    rows.write.format("qanat").options(url=url, stream=stream).mode("append").save()


def _drop(rows: DataFrame) -> None:
    rows.write.format("dropping").mode("append").save()


def _ready_source() -> Any:
    """Made here, so that PySpark is imported when a Spark is there, and pickled by value."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from qanat.pipeline.columns import DDL

    class Reader(DataSourceReader):
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(part) for part in range(CORES)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            with pa.memory_map(f"{self.folder}/ready-{partition.value}.arrow") as file:
                reader = pa.ipc.open_file(file)
                for i in range(reader.num_record_batches):
                    yield reader.get_batch(i)

    class Ready(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> str:
            return DDL

        def reader(self, schema: object) -> DataSourceReader:
            return Reader(self.options["folder"])

    return Ready


def _dropping_sink() -> Any:
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Dropping(DataSource):
        @classmethod
        def name(cls) -> str:
            return "dropping"

        def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
            return Writer()

    return Dropping

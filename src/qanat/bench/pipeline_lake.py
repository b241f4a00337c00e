"""Garbage collection of an archive beside a plain Spark job that keeps the last row of each key, over the
same Parquet files.

Both read the files of one stream and write Parquet with the same codec; compacting also makes tombstones,
keeps the stream's order, syncs and checksums its files, and commits them. The plain job is the window that
one writes: number the rows of a key from the last on, keep the first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qanat.bench.figures import medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qanat.pipeline.archive.manifest import DataFile

DESCRIPTION = "garbage collection of an archive in rows/s beside a plain Spark last-per-key of the same files"
EVENTS = int(os.environ.get("QANAT_BENCH_LAKE_EVENTS", "4000000"))
FILES = 8
KEYS = 200_000
SKEW = 1.1
PAYLOAD_BYTES = 100


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, after one that is not counted: Java compiles what it runs often."""
    from qanat.pipeline.session import SparkSettings, open_session

    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    spark = open_session(SparkSettings(memory="4g", folder=str(folder / "spark")), "bench lake")
    try:
        files = _archived(folder / "events")
        measured = []
        for i in range(rounds + 1):
            measured.append(_round(spark, folder, files, plain_first=bool(i % 2)))
            say(
                f"round {i} of {rounds}: "
                + ", ".join(f"{name} {value:.4g}" for name, value in measured[-1].items())
            )
        return medians(measured[1:])
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _round(
    spark: SparkSession, folder: Path, files: list[DataFile], *, plain_first: bool
) -> dict[str, float]:
    parts = {"compact": _compact, "plain": _last_per_key}
    seconds = {}
    for name in sorted(parts, reverse=plain_first):
        where = folder / name
        _link(folder / "events", where)
        seconds[name] = parts[name](spark, where, files)
        shutil.rmtree(where)
    return {
        "compact_rows_per_s": EVENTS / seconds["compact"],
        "last_per_key_rows_per_s": EVENTS / seconds["plain"],
        "compact_ratio": seconds["plain"] / seconds["compact"],
    }


def _compact(spark: SparkSession, folder: Path, files: list[DataFile]) -> float:
    from qanat.log.config import Policy
    from qanat.pipeline.archive.history import History
    from qanat.pipeline.archive.storage import LocalStorage
    from qanat.pipeline.compact.job import compact

    history = History(LocalStorage(str(folder)), "events")
    history.begin("append").append(files)
    began = time.perf_counter()
    done = compact(spark, history, Policy(by_key=True))
    taken = time.perf_counter() - began
    if not 0 < done.living < done.events == EVENTS:
        raise AssertionError(f"of {done.events} events {done.living} live")
    return taken


def _last_per_key(spark: SparkSession, folder: Path, files: list[DataFile]) -> float:
    from pyspark.sql import functions as F

    where = folder / "stream=events"
    began = time.perf_counter()
    rows = spark.read.parquet(*(f"file://{where / file.path}" for file in files))
    last_rows(rows).write.options(
        compression="zstd", **{"parquet.compression.codec.zstd.level": "1"}
    ).parquet(f"file://{folder / 'plain'}")
    taken = time.perf_counter() - began
    keys = rows.select(F.count_distinct("key")).collect()[0][0]
    kept = spark.read.parquet(f"file://{folder / 'plain'}").count()
    if kept != keys:
        raise AssertionError(f"{kept} rows are left of {keys} keys")
    return taken


def last_rows(rows: DataFrame) -> DataFrame:
    """What a plain job does."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    latest = Window.partitionBy("key").orderBy(F.col("seq").desc())
    return rows.withColumn("nth", F.row_number().over(latest)).where("nth = 1").drop("nth")


# --- the events -----------------------------------------------------------------------------------


def _archived(folder: Path) -> list[DataFile]:
    """Files of a stream whose events have keys of a Zipf distribution, as an archive has them."""
    from qanat.pipeline.archive.manifest import DataFile
    from qanat.pipeline.archive.storage import LocalStorage

    rng = np.random.default_rng(5)
    storage = LocalStorage(str(folder / "stream=events"))
    files, each = [], EVENTS // FILES
    for i in range(FILES):
        first = i * each + 1
        path = f"day=2026-01-01/{first:020d}-{first + each - 1:020d}.append-1-{i}.parquet"
        target = Path(storage.root) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_rows(first, each, rng), target, compression="zstd", compression_level=1)
        files.append(
            DataFile(
                path=path,
                first=first,
                last=first + each - 1,
                rows=each,
                bytes=target.stat().st_size,
                checksum=storage.checksum(path),
                min_time_us=first,
                max_time_us=first + each - 1,
            )
        )
    return files


def _rows(first: int, count: int, rng: np.random.Generator) -> pa.Table:
    from qanat.events.batch import Batch, stream_id
    from qanat.pipeline.columns import arrow_of

    weights = 1.0 / np.arange(1, KEYS + 1) ** SKEW
    chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(count))
    keys = np.char.mod("key%07d", chosen).astype("S10").view(np.uint8).reshape(count, 10)
    batches = []
    for start in range(0, count, 50_000):
        size = min(50_000, count - start)
        payloads = rng.integers(97, 113, (size, PAYLOAD_BYTES), np.uint8)
        times = np.arange(first + start, first + start + size)
        batch = Batch.build(
            stream_id("events"), payloads, keys=keys[start : start + size], times=times, first=first + start
        )
        batches.append(arrow_of("events", batch))
    return pa.Table.from_batches(batches)


def _link(source: Path, target: Path) -> None:
    """The same files at another place."""
    shutil.copytree(source, target, copy_function=os.link)

"""A stream archived by Spark and replayed from there, each beside the plain way to move the same rows.

| figure | is |
|---|---|
| `archive_rows_per_s` | rows of a stream that become an archive: files checked, synced, with checksums, committed |
| `archive_ratio` | that, to rows/s of a plain Spark job that writes the stream as Parquet with the same codec, and no more |
| `replay_rows_per_s` | rows of that archive that a subscriber takes as batches, from files to the last one |
| `replay_ratio` | that, to rows/s of Arrow reading the same files row group by row group, with as many threads |

Rows have a key of 8 bytes, a payload of 200 and the position of their source, as in `pipeline_streams`.
"""  # noqa: E501

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from qanat.bench.figures import medians
from qanat.bench.pipeline_streams import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qanat.client import Client

DESCRIPTION = (
    "a stream archived and replayed in rows/s, beside a plain Parquet job and plain reading of the same files"
)
ROWS = int(os.environ.get("QANAT_BENCH_ARCHIVE_ROWS", "4000000"))
KEY_BYTES, PAYLOAD_BYTES = 8, 200
CORES = 2
STREAM = "rows"


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, after one that is not counted: Java compiles what it runs often."""
    from qanat.client import Client
    from qanat.pipeline.session import SparkSettings, open_session

    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    spark = open_session(
        SparkSettings(cores=CORES, memory="2g", folder=str(folder / "spark")), "bench archive"
    )
    try:
        with serving(folder / "data") as url, Client(url, name="bench") as client:
            for part in range(8):
                rng = np.random.default_rng(part)
                keys = rng.integers(0, 256, (ROWS // 8, KEY_BYTES), np.uint8)
                client.publish_many(
                    STREAM, rng.integers(0, 256, (ROWS // 8, PAYLOAD_BYTES), np.uint8), keys=keys
                )
            say(f"{ROWS:,} rows of {KEY_BYTES + PAYLOAD_BYTES} bytes, {CORES} cores")
            measured = []
            for i in range(rounds + 1):
                measured.append(_round(spark, client, url, folder, plain_first=bool(i % 2)))
                told = ", ".join(f"{name} {value:.3g}" for name, value in measured[-1].items())
                say(f"round {i} of {rounds}: {told}")
            return medians(measured[1:])
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _round(
    spark: SparkSession, client: Client, url: str, folder: Path, *, plain_first: bool
) -> dict[str, float]:
    archive = folder / "archive"
    writing = {
        "archive": lambda: _archive(spark, url, archive),
        "parquet": lambda: _plain(spark, url, folder / "plain"),
    }
    reading = {"replay": lambda: _replay(client, archive), "arrow": lambda: _read(archive)}
    took: dict[str, float] = {}
    pairs: list[dict[str, Callable[[], None]]] = [writing, reading]
    for pair in pairs:
        for name, work in list(pair.items())[:: -1 if plain_first else 1]:
            os.sync()
            began = time.perf_counter()
            work()
            took[name] = time.perf_counter() - began
    for done in (archive, folder / "plain"):
        shutil.rmtree(done)
    return {
        "archive_rows_per_s": ROWS / took["archive"],
        "archive_ratio": took["parquet"] / took["archive"],
        "replay_rows_per_s": ROWS / took["replay"],
        "replay_ratio": took["arrow"] / took["replay"],
        "parquet_rows_per_s": ROWS / took["parquet"],
        "arrow_rows_per_s": ROWS / took["arrow"],
    }


def _archive(spark: SparkSession, url: str, folder: Path) -> None:
    from qanat.pipeline.archive.archiver import Archiver

    with Archiver(spark, url, str(folder), STREAM) as job:
        rows = sum(done.rows for done in job.run(until_end=True))
    if rows != ROWS:
        raise AssertionError(f"{rows} rows were archived of {ROWS}")


def _plain(spark: SparkSession, url: str, folder: Path) -> None:
    rows = spark.read.format("qanat").option("url", url).option("stream", STREAM).load()
    rows.write.options(compression="zstd", **{"parquet.compression.codec.zstd.level": "1"}).parquet(
        f"file://{folder}"
    )


def _replay(client: Client, folder: Path) -> None:
    from qanat.pipeline.replay.settings import ReplaySettings
    from qanat.pipeline.replay.subscription import Replay

    settings = ReplaySettings(handover_rows=0, threads=CORES)
    with Replay(client, str(folder), STREAM, start=1, settings=settings) as source:
        rows = 0
        while rows < ROWS:
            rows += sum(batch.count for batch in source.take())


def _read(folder: Path) -> None:
    def read(path: Path) -> int:
        file = pq.ParquetFile(path)
        return sum(file.read_row_group(i, use_threads=False).num_rows for i in range(file.num_row_groups))

    with ThreadPoolExecutor(CORES) as pool:
        rows = sum(pool.map(read, sorted(folder.rglob("*.parquet"))))
    if rows != ROWS:
        raise AssertionError(f"{rows} rows were read of {ROWS}")

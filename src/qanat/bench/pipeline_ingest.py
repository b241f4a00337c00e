"""A RocksDB's backlog into a stream, by a pipeline on Spark; beside the same log fed without Spark, and how
soon an update is in the stream.

What is measured is what a user waits for: from the start of the pipeline, whose Spark runs already, until
every update is stored. The writer, the stream's server, Spark and its Python worker share the machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qanat.bench.figures import in_turns, medians
from qanat.events.errors import RemoteError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = "ingest of a RocksDB's backlog into a stream in updates/s, through Spark and without it"
UPDATES = int(os.environ.get("QANAT_BENCH_INGEST_UPDATES", "3000000"))
BATCH = 100
"""Updates that are written together."""

_WRITER = """
import sys
from rocksdict import Options, Rdict, WriteBatch
folder, rows, batch = sys.argv[1], *map(int, sys.argv[2:])
options = Options(raw_mode=True)
options.create_if_missing(True)
options.set_wal_ttl_seconds(36000)
database = Rdict(folder, options)
value = bytes(range(84))
for first in range(0, rows, batch):
    written = WriteBatch(raw_mode=True)
    for row in range(first, first + batch):
        written.put(b"%016d" % (row * 7919 % rows), value)
    database.write(written)
database.close()
"""


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, after one that is not counted: Java compiles what it runs often."""
    from qanat.pipeline.session import SparkSettings, open_session

    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-", dir=os.environ.get("QANAT_BENCH_DIR")))
    spark = open_session(SparkSettings(memory="1g", folder=str(folder / "spark")), "bench ingest")
    try:
        store = _written(folder / "store")
        say(f"{UPDATES:,} updates of 100 bytes are written, {BATCH} at a time")
        measured = []
        for number in range(rounds + 1):
            measured.append(_round(spark, folder / f"round{number}", store, number))
            told = ", ".join(f"{name} {value:,.4g}" for name, value in measured[-1].items())
            say(f"round {number} of {rounds}: {told}")
        return medians(measured[1:])
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _written(folder: Path) -> Path:
    words = [sys.executable, "-c", _WRITER, str(folder), str(UPDATES), str(BATCH)]
    if subprocess.run(words, check=False).returncode:
        raise RemoteError("the process that writes to a RocksDB broke off; is rocksdict installed?")
    return folder


def _round(spark: SparkSession, folder: Path, store: Path, number: int) -> dict[str, float]:
    folder.mkdir()
    try:
        with _server(folder / "data") as url:
            pair = in_turns(
                lambda: UPDATES / _ingest(spark, folder, store, url),
                lambda: UPDATES / _feed(store, url),
                1,
                first=number,
            )
            return {
                "ingest_updates_per_s": pair.ours,
                "feed_updates_per_s": pair.theirs,
                "ingest_ratio": pair.ratio,
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ingest(spark: SparkSession, folder: Path, store: Path, url: str) -> float:
    from qanat.pipeline.pipeline_file import read
    from qanat.pipeline.running import Run
    from qanat.pipeline.session import SparkSettings

    file = folder / "pipeline.toml"
    file.write_text(
        f'url = "{url}"\nstate = "{folder / "state"}"\n[sources.store]\nlog ='
        f' "rocksdb://{store}"\n[[routes]]\nstream = "ingested"\n'
    )
    began = time.perf_counter()
    Run(read(file), SparkSettings(), once=True, session=spark).run()
    taken = time.perf_counter() - began
    _check(url, "ingested")
    return taken


def _feed(store: Path, url: str) -> float:
    """`qanat changes URL --into STREAM` in this process."""
    from qanat.capture.choice import Choice
    from qanat.capture.feed import Feed, source_of
    from qanat.capture.url import open_reader
    from qanat.client import Client

    with closing(open_reader(f"rocksdb://{store}")) as reader:
        end = reader.latest()
        with Client(url, name=source_of(reader, Choice())) as client:
            began = time.perf_counter()
            feed = Feed(reader, client, "fed")
            while (feed.step().upto or (0, 0)) < end:
                pass
            taken = time.perf_counter() - began
    _check(url, "fed")
    return taken


def _check(url: str, stream: str) -> None:
    from qanat.client import Client

    with Client(url) as client:
        stored = {status["stream"]: status["next"] - 1 for status in client.ask("streams")}
    if stored.get(stream) != UPDATES:
        raise AssertionError(f"the stream has {stored.get(stream)} of {UPDATES} updates")


@contextmanager
def _server(data: Path) -> Iterator[str]:
    """`qanat serve`, on a port of its own."""
    words = [sys.executable, "-m", "qanat", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    words += ["--admin-port", "0", "--set", "logging.level=error"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"qanat://[^\s,]+", line)
        if found is None:
            raise RemoteError(f"the server of streams did not start: {line!r}")
        yield found.group()
    finally:
        process.kill()
        process.communicate()

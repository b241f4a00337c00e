"""Spark's classes as Java has them once they are loaded, kept in a file from which the next Java takes them:
it starts in half the time.

Each Spark of the tests is a Java that lives for seconds, most of which it loads some ten thousand classes.
The file is made beside the tests, by `python class_archive.py`, the first time that many of them run, and
lies in the environment that has those classes. Where there is none, or one of another Java, all works as
without it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyspark

from qanat.pipeline.session import SparkSettings, open_session
from qanat.runtime.java import NoJava, find_java

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
)
"""Compiled once and simply: what lives for seconds does not earn back more. With room for all that is
compiled: Java gives such code little by itself, and a Spark that serves many tests would throw it away, and
compile it again."""
PATIENCE_S = 300


def quick_java() -> str:
    """Options of a Java that lives for seconds."""
    file = place()
    if file is None or not file.exists():
        return QUICK_JAVA
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={file} -Xlog:disable"


@cache
def place() -> Path | None:
    """Where the file is, for this Java and this Spark; None if there is no Java."""
    try:
        java = find_java().binary.resolve()
    except NoJava:
        return None
    jars = Path(pyspark.__file__).parent / "jars"
    what = [str(java), java.stat().st_mtime_ns, str(jars), jars.stat().st_mtime_ns, QUICK_JAVA]
    return Path(sys.prefix) / "qanat-tests" / f"spark-{sha256(repr(what).encode()).hexdigest()[:16]}.jsa"


def make() -> None:
    """Once, whoever else does this at the same time."""
    file = place()
    if file is None or file.exists():
        return
    file.parent.mkdir(exist_ok=True)
    with open(file.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        folder = tempfile.mkdtemp(prefix="qanat-classes-")
        unfinished = file.with_suffix(".unfinished")
        try:
            _work(Path(folder), f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable")
            os.replace(unfinished, file)
        finally:
            unfinished.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def _work(folder: Path, java_options: str) -> None:
    """A little of everything that tests do, so that its classes are loaded; then Java ends, and writes them
    down."""
    settings = SparkSettings(
        master="local[2]",
        memory="768m",
        java_options=java_options,
        folder=str(folder),
        settings={"spark.sql.warehouse.dir": str(folder / "warehouse")},
    )
    spark = open_session(settings, "classes")
    numbers = spark.range(1000).selectExpr("id", "id % 7 as k", "cast(id as string) as text")
    numbers.write.partitionBy("k").parquet(str(folder / "numbers"))
    read = spark.read.parquet(str(folder / "numbers"))
    read.groupBy("k").count().join(read, "k").orderBy("id").toArrow()
    stream = spark.readStream.schema(read.schema).parquet(str(folder / "numbers"))
    query = stream.mapInArrow(_same, stream.schema).writeStream.format("noop")
    query = query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_S)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


if __name__ == "__main__":
    make()  # as fast as it can: the sooner it is there, the more of the tests have it

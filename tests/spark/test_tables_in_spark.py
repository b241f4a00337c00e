"""Streams as tables of Spark's catalog and by their paths, and how errors of the format reach whoever uses
it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.stream_server import ServerProcess

from qanat.client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.paper("D1")

numbers = itertools.count()


@pytest.fixture
def stream(shared_server: ServerProcess) -> str:
    """One of three events."""
    name = f"table_{next(numbers)}"
    with Client(shared_server.url) as client:
        client.publish_many(name, [b"0", b"1", b"2"])
    return name


@pytest.fixture
def table(spark: SparkSession, shared_server: ServerProcess, stream: str) -> Iterator[str]:
    options = f"url '{shared_server.url}', stream '{stream}', durability 'memory', startingOffsets 'earliest'"
    spark.sql(f"CREATE TABLE {stream} USING qanat OPTIONS ({options})")
    yield stream
    spark.sql(f"DROP TABLE {stream}")


def test_a_table_of_the_catalog_is_read_written_and_followed(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    """By whoever knows its name alone, in another session too."""
    other = spark.newSession()
    assert [row.payload for row in other.sql(f"SELECT payload FROM {table} WHERE seq > 1").collect()] == [
        b"1",
        b"2",
    ]
    other.sql(f"INSERT INTO {table} (key, payload) VALUES (cast('k' AS binary), cast('3' AS binary))")
    spark.sql("SELECT cast('4' AS binary) payload").writeTo(table).append()
    found = spark.sql(f"SELECT seq, key, payload FROM {table} WITH (start = '4')").collect()
    assert [tuple(row) for row in found] == [(4, b"k", b"3"), (5, b"", b"4")]
    written = (
        spark.readStream.table(table).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    )
    written.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 5


def test_rows_of_one_table_go_where_a_write_says(
    spark: SparkSession, table: str, shared_server: ServerProcess
) -> None:
    """They still have with them which table they are of."""
    write = spark.table(table).drop("kind").write.format("qanat").mode("append")
    write.option("url", shared_server.url).save(f"{table}-copy")
    assert spark.read.format("qanat").load(f"{shared_server.url}/{table}-copy").count() == 3
    assert spark.table(table).count() == 3


def refused(work: Callable[[], object]) -> str:
    """What is said, without Spark's own words before and after it."""
    with pytest.raises(Exception) as caught:
        work()
    text = str(caught.value)
    found = re.search(r"qanat\.[\w.]+: (.*)", text)
    assert found, text
    assert "Traceback" not in text and "File " not in text, text
    return found[1]


def test_every_error_is_a_sentence_without_frames(
    spark: SparkSession, shared_server: ServerProcess, stream: str, tmp_path: Path
) -> None:
    url = shared_server.url
    rows = spark.sql("SELECT 'x' payload")

    def batch(**options: str) -> Callable[[], object]:
        return lambda: spark.read.format("qanat").options(url=url, **options).load().collect()

    def followed(to: str, **options: str) -> Callable[[], object]:
        frame = spark.readStream.format("qanat").options(**options).load()
        if to == "qanat":
            frame = frame.selectExpr("payload", "'tombstone' kind")
        writing = frame.writeStream.format(to).options(url=url, stream=f"{stream}-no")
        writing = writing.option("checkpointLocation", str(tmp_path / f"c{next(numbers)}"))
        return lambda: writing.trigger(availableNow=True).start().awaitTermination()

    def written(what: str, **options: str) -> Callable[[], object]:
        frame = rows.selectExpr("payload", what)
        return lambda: frame.write.format("qanat").mode("append").options(url=url, **options).save()

    written("1 n", stream=stream, name=stream, version="7")()
    said = {
        "an option": (batch(strem="x"), "the format qanat has no option 'strem' here"),
        "a filter": (batch(stream=stream, where="n n"), "filter error at column 3"),
        "a stream": (batch(stream="nowhere"), "there is no stream 'nowhere'"),
        "a server": (lambda: spark.read.format("qanat").option("patience",
        "0").load("qanat://127.0.0.1:1/x").collect(), "no server at qanat://127.0.0.1:1"),
        "a followed stream": (followed("noop", url=url, stream="nowhere"), "there is no stream 'nowhere'"),
        "a log": (lambda: spark.read.format("qanat").option("changes", "rocksdb:///nowhere").load().collect(),
        "/nowhere is not the folder of a RocksDB"), "a followed log": (followed("noop",
        changes="rocksdb:///nowhere"), "/nowhere is not the folder of a RocksDB"),
        "a column": (written("array(1) tags", stream=stream),
        "column 'tags' of type array<int> cannot be published"), "a row": (written("'tombstone' kind",
        stream=stream), "a tombstone cannot be published"), "a version": (written("1 n", stream=stream,
        name=stream, version="6"), f"stream '{stream}' at {url} has batch 7 of '{stream}' already"),
        "a followed row": (followed("qanat", url=url, stream=stream), "a tombstone cannot be published"),
    }  # fmt: skip
    for what, (work, words) in said.items():
        assert refused(work).startswith(words), what

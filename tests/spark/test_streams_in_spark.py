"""Streams read and written by Spark itself: batches, streaming queries, restarts from a checkpoint,
disagreements."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.servers.stream_server import ServerProcess

from qanat.client import Client
from qanat.pipeline.columns import ARROW, arrow_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

numbers = itertools.count()


@pytest.fixture
def stream() -> str:
    return f"spark-{next(numbers)}"


def table(spark: SparkSession, url: str, stream: str, **options: str) -> DataFrame:
    return spark.read.format("qanat").options(url=url, stream=stream, **options).load()


def query(spark: SparkSession, url: str, stream: str, checkpoint: Path, to: str, **options: str) -> Any:
    """A streaming query from one stream into another, to the end of what is there; what it told last of its
    progress."""
    source = spark.readStream.format("qanat").options(url=url, stream=stream, **options).load()
    written = source.writeStream.format("qanat").options(
        url=url, stream=to, checkpointLocation=str(checkpoint)
    )
    running = written.trigger(availableNow=True).start()
    running.awaitTermination()
    return running.lastProgress


def rows(frame: DataFrame) -> list[Any]:
    return [(row.seq, row.key, row.payload, row.attributes) for row in frame.collect()]


@pytest.mark.paper("D1")
def test_a_table_is_what_the_stream_has(
    spark: SparkSession, shared_server: ServerProcess, stream: str
) -> None:
    with Client(shared_server.url) as client:
        client.publish_many(stream, [b"%d" % i for i in range(50)], keys=[b"%d" % (i % 3) for i in range(50)])
        client.publish_many(stream, [b"x"] * 50, attributes={"n": list(range(50)), "t": ["a", "b"] * 25})
        client.publish(stream, b"", collects="upto 10")
        batches = client.read(stream, 1, 101).take()
    expected = pa.Table.from_batches([arrow_of(stream, batch) for batch in batches])
    found = table(spark, shared_server.url, stream)
    assert found.toArrow().cast(ARROW).equals(expected)
    # Only what is asked for is made, and only what is asked for is read.
    few = (
        spark.read.format("qanat")
        .schema("seq bigint, payload binary")
        .options(url=shared_server.url, stream=stream)
    )
    assert [tuple(row) for row in few.load().where("seq between 3 and 5").collect()] == [
        (3, b"2"),
        (4, b"3"),
        (5, b"4"),
    ]
    few.option("pushdown", "once")
    plan = few.load().where("seq > 3")._jdf.queryExecution().executedPlan().toString()
    assert "seq#" in plan and "> 3" not in plan  # Spark does not look again
    assert [row.seq for row in few.load().where("seq > 99 or seq < 0").where("seq <= 100").collect()] == [100]
    # Without that, one DataFrame may be used again and again: Spark keeps what it was first planned with.
    assert found.where("time < '2001-01-01'").count() == 0
    assert found.where("time > '2001-01-01' and seq > 99 and stream = 'other'").count() == 0
    assert found.where("seq > 99").union(found.where("seq <= 2")).count() == 4
    assert [row.seq for row in table(spark, shared_server.url, stream, where="n in 7..8").collect()] == [
        58,
        59,
        101,
    ]
    # A session that has not turned it on, as none has by itself, looks at conditions itself; a DataFrame that
    # was planned before would not ask.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        for pushdown in ("none", "once"):
            plain = table(spark, shared_server.url, stream, pushdown=pushdown)
            assert plain.where("seq > 99").count() == 2
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.paper("D1")
def test_a_stream_is_copied_in_order_across_restarts(
    spark: SparkSession, shared_server: ServerProcess, stream: str, tmp_path: Path
) -> None:
    """With a limit, from where the checkpoint is, without registration, and through a partition for each
    range."""
    url, copy = shared_server.url, f"{stream}-copy"
    fresh = spark.newSession()  # knows of no data source, and finds this one by itself
    fresh.conf.set("spark.sql.shuffle.partitions", "2")
    with Client(url) as client:
        client.publish_many(stream, [b"%d" % i for i in range(45_000)], attributes={"n": list(range(45_000))})
    query(fresh, url, stream, tmp_path / "checkpoint", copy, maxRowsPerTrigger="40000", partitions="2")
    with Client(url) as client:
        client.publish_many(stream, [b"late"] * 10, keys=[b"k"] * 10)
    told = query(fresh, url, stream, tmp_path / "checkpoint", copy, maxRowsPerTrigger="40000")
    assert json.loads(told.sources[0].latestOffset) == {stream: {"next": 45_011, "lag": 0, "url": url}}
    query(fresh, url, stream, tmp_path / "checkpoint", copy)
    assert rows(table(spark, url, copy)) == rows(table(spark, url, stream))


def test_a_write_that_is_repeated_adds_nothing(
    spark: SparkSession, shared_server: ServerProcess, stream: str
) -> None:
    url = shared_server.url
    frame = spark.range(0, 1000, 1, 3).selectExpr(
        "cast(id as string) payload", "id % 7 = 0 as seventh", f"'{stream}' stream"
    )
    for _ in range(2):
        frame.write.format("qanat").mode("append").options(url=url, name="job", version="20261116").save()
    assert rows(table(spark, url, stream)) == [
        (i + 1, b"", b"%d" % i, {"seventh": "true" if i % 7 == 0 else "false"}) for i in range(1000)
    ]
    frame.limit(5).write.format("qanat").mode("append").options(url=url).save()
    assert table(spark, url, stream).count() == 1005
    failing = [
        (frame.write.format("qanat").mode("append").options(url=url, name="job", version="3"),
        "has batch 20261116 of 'job' already"),
        (frame.write.format("qanat").mode("overwrite").options(url=url), "only ever appended to"),
        (frame.drop("payload").write.format("qanat").mode("append").options(url=url),
        "have a column 'payload'"),
    ]  # fmt: skip
    for write, words in failing:
        with pytest.raises(Exception, match=words):
            write.save()


@pytest.mark.paper("D1")
def test_a_stream_that_was_made_anew_stops_the_query(
    spark: SparkSession, server_process: ServerProcess, tmp_path: Path
) -> None:
    """The sentence reaches whoever started the query; nothing is written."""
    url = server_process.start().url
    with Client(url) as client:
        client.publish_many("s", [b"old"] * 5)
    query(spark, url, "s", tmp_path / "checkpoint", "t")
    server_process.kill()
    shutil.rmtree(server_process.data)
    server_process.start()
    with Client(url) as client:
        client.publish_many("s", [b"new"] * 9)
        with pytest.raises(
            Exception, match=r"stream 's' at .* is not the one of the checkpoint: it began at"
        ):
            query(spark, url, "s", tmp_path / "checkpoint", "t")
        assert [told["stream"] for told in client.ask("streams")] == ["s"]


@pytest.mark.paper("D1")
def test_only_what_a_query_has_read_is_released(
    spark: SparkSession, shared_server: ServerProcess, stream: str, tmp_path: Path
) -> None:
    options = {"start": "latest", "release": "collect", "maxRowsPerTrigger": "600"}

    def run() -> list[str]:
        """The predicates of all GC events that the stream has then."""
        frame = (
            spark.readStream.format("qanat").options(url=shared_server.url, stream=stream, **options).load()
        )
        writing = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()
        found = table(spark, shared_server.url, stream).where("kind = 'gc'")
        return [row.attributes["@gc"] for row in found.orderBy("seq").collect()]

    with Client(shared_server.url) as client:
        client.publish_many(stream, [b"before"] * 1500)
        assert run() == []
        client.publish_many(stream, [b"read"] * 3000)
        first = run()
        assert first and all(one.startswith("@seq in 1501..") for one in first)
        assert run() == first  # to start again is no reason for another one
        kept = table(spark, shared_server.url, stream).where("kind = 'data' and payload = 'before'")
        assert kept.count() == 1500

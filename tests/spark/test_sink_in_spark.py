"""The sink's options and its promise of order, as Spark itself uses them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.stream_server import ServerProcess
from tests.spark.test_spark_page import PAGE
from tests.spark.test_streams_in_spark import query, rows, table

from qanat.client import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.paper("D1")
SHARDS, EACH = 5, 400


def test_rows_wait_where_the_option_says_and_a_new_stream_is_as_durable_as_it_says(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path
) -> None:
    url, waiting = shared_server.url, tmp_path / "waiting"
    few = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) payload")

    def write(**options: str) -> None:
        few.write.format("qanat").mode("append").options(url=url, name="waits", **options).save()

    write(stream="waited", version="1", staging=str(waiting), durability="memory")
    assert table(spark, url, "waited").count() == 10
    assert (waiting / "waits" / "reached.json").exists()  # what is left of a write under a name
    assert not list(waiting.rglob("*.batches"))
    with Client(url) as client:
        told = {one["stream"]: one["durability"] for one in client.ask("streams")}
    assert told["waited"] == "memory"
    # A query's rows wait in its checkpoint, which is as durable as what they are needed for.
    query(spark, url, "waited", tmp_path / "checkpoint", "waited-copy")
    (left,) = (tmp_path / "checkpoint" / "qanat").rglob("reached.json")
    assert left.parent.name.startswith("spark-")
    file = tmp_path / "file"
    file.touch()
    for options, words in (
        ({"durability": "disk"}, "'durability' is always or interval or memory, not 'disk'"),
        ({"staging": f"{file}/below"}, rf"cannot wait in {file}/below: .* by the option 'staging'"),
    ):
        with pytest.raises(Exception, match=words):
            write(stream="waited", version="2", **options)
    assert table(spark, url, "waited").count() == 10


def recipe() -> str:
    """What the page says that keeps the order of each shard."""
    (found,) = re.findall(r"`(repartition\(.*?\)\.sortWithinPartitions\(.*?\))`", PAGE.read_text("utf-8"))
    return str(found)


def test_the_page_s_recipe_keeps_the_order_of_each_shard(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path
) -> None:
    """Of rows that come in any order from many tasks; and over several micro-batches."""
    url = shared_server.url

    def write(frame: DataFrame, stream: str, version: int) -> None:
        ordered = eval(f"frame.{recipe()}", {"frame": frame})
        options = {"url": url, "stream": stream, "name": stream, "version": str(version)}
        ordered.write.format("qanat").mode("append").options(**options).save()

    # A repartition before another one would be left out by Spark: so the numbers themselves are mixed.
    mixed = spark.range(0, SHARDS * EACH, 1, 7).selectExpr(f"id * 7919 % {SHARDS * EACH} n")
    events = mixed.selectExpr(f"cast(n % {SHARDS} as string) shard", "n seq", "cast(n as string) payload")
    write(events, "ordered", 1)
    assert by_shard(spark, url, "ordered") == expected()
    with Client(url) as client:
        numbers = range(SHARDS * EACH)
        client.publish_many(
            "unordered",
            [b"%d" % n for n in numbers],
            attributes={"shard": [str(n % SHARDS) for n in numbers]},
        )
    source = spark.readStream.format("qanat").options(url=url, stream="unordered", maxRowsPerTrigger="900")
    sharded = source.load().selectExpr("attributes['shard'] shard", "seq", "payload")
    in_batches = sharded.writeStream.foreachBatch(
        lambda frame, number: write(frame, "reordered", number + 1)
    ).option("checkpointLocation", str(tmp_path / "checkpoint"))
    in_batches.trigger(availableNow=True).start().awaitTermination()
    assert by_shard(spark, url, "reordered") == expected()
    straight = (
        eval(f"frame.{recipe()}", {"frame": sharded}).writeStream.format("qanat").options(url=url, stream="x")
    )
    with pytest.raises(Exception, match="Sorting is not supported on streaming"):
        straight.option("checkpointLocation", str(tmp_path / "other")).start()


def by_shard(spark: SparkSession, url: str, stream: str) -> dict[str, list[int]]:
    """The numbers of each shard as they stand in the stream."""
    found: dict[str, list[int]] = {}
    for _, _, payload, attributes in sorted(rows(table(spark, url, stream))):
        found.setdefault(attributes["shard"], []).append(int(payload))
    return found


def expected() -> dict[str, list[int]]:
    return {str(shard): list(range(shard, SHARDS * EACH, SHARDS)) for shard in range(SHARDS)}

"""Logs of datastores as Spark sources: what Spark gives is what the log has, each update once and in
order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.servers.mariadb import mariadb_server
from tests.servers.postgres import postgres_server
from tests.servers.rocksdb import RocksProcess, rocks_process

from qanat.capture.envelope import lines
from qanat.capture.updates import Updates
from qanat.capture.url import open_reader
from qanat.client import Client
from qanat.events.filters import parse
from qanat.events.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.servers.stream_server import ServerProcess


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[RocksProcess]:
    with rocks_process(tmp_path / "store", wal_ttl_seconds=3600) as store:
        yield store


def write(rocks: RocksProcess, first: int, count: int) -> None:
    rocks.do("write", [[("put", "default", b"k%06d" % n, b"v%d" % n)] for n in range(first, first + count)])


def history(url: str) -> list[str]:
    """Lines of all updates that the log has."""
    found: list[str] = []
    with closing(open_reader(url)) as reader:
        end = reader.latest()
        reader.seek("earliest")
        at = Position(0)
        while at < end:
            item = reader.read(10_000, 5.0)
            assert isinstance(item, Updates)
            found += [line for run in item.runs for line in lines(run).to_pylist()]
            at = item.upto or at
    return found


def payloads(table: pa.Table) -> list[str]:
    return [data.decode() for data in table["payload"].to_pylist()]


def run_once(spark: SparkSession, checkpoint: Path, **options: str) -> list[pa.Table]:
    """What a query gives, one table for each micro-batch, until it has had all that there is."""
    found: list[pa.Table] = []
    frame = spark.readStream.format("qanat").options(**options).load()
    writing = frame.writeStream.foreachBatch(lambda rows, _: found.append(rows.toArrow()))
    query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    return found


@pytest.mark.paper("D2")
@pytest.mark.slow
def test_a_rocksdb_continuously_across_restarts_of_everything(
    spark: SparkSession, rocks: RocksProcess, tmp_path: Path
) -> None:
    options = {"changes": rocks.url, "maxRowsPerTrigger": "400"}
    write(rocks, 0, 1000)
    tables = run_once(spark, tmp_path / "checkpoint", **options)
    assert [len(table) for table in tables] == [400, 400, 200]
    rocks.do("flush")
    rocks.kill()
    rocks.start()
    write(rocks, 500, 300)
    tables += run_once(spark, tmp_path / "checkpoint", **options)
    assert payloads(pa.concat_tables(tables)) == history(rocks.url)

    with rocks_process(tmp_path / "other") as other:
        write(other, 0, 10)
        with pytest.raises(Exception, match=r"checkpoint is of the dataset .* begin with a new checkpoint"):
            run_once(spark, tmp_path / "checkpoint", **(options | {"changes": other.url}))


@pytest.mark.paper("D2")
@pytest.mark.paper("D3")
def test_a_rocksdb_as_a_batch_of_several_tasks(
    spark: SparkSession, rocks: RocksProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qanat.pipeline.filters.columns import column_of

    for part in range(3):
        write(rocks, part * 200, 200)
        rocks.do("flush")
    where = "key in (k000005, k000250, k000599)"
    rows = spark.read.format("qanat").option("changes", rocks.url).load()
    sorted_rows = rows.orderBy("source.sequence").select("payload").toArrow()
    assert payloads(sorted_rows) == history(rocks.url)
    assert rows.where(column_of(parse(where))).count() == 3
    chosen = (
        spark.read.format("qanat").options(changes=rocks.url, where=where, **{"shard-by": "hash:8"}).load()
    )
    assert sorted(row.key for row in chosen.collect()) == [
        b"store.default/%s" % key.hex().encode() for key in (b"k000005", b"k000250", b"k000599")
    ]
    assert {row.shard for row in chosen.collect()} <= set(map(str, range(8)))


@pytest.mark.paper("D2")
@pytest.mark.server("mariadb")
def test_a_mariadb_continuously_and_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    with mariadb_server(tmp_path / "mariadb") as server:
        server.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, price DECIMAL(8,2), who VARBINARY(9))",
        )
        server.run("CREATE TABLE shop.other (id INT PRIMARY KEY)")
        url = f"{server.url}shop?dataset=shop"
        options: dict[str, str] = {"changes": url, "tables": "orders", "shard-by": "id"}
        server.run(
            "INSERT INTO shop.orders VALUES (1, 9.50, x'ff'), (2, 100, NULL)",
            "INSERT INTO shop.other VALUES (7)",
        )
        tables = run_once(spark, tmp_path / "checkpoint", **options)
        server.run("UPDATE shop.orders SET price = 5 WHERE id = 2", "DELETE FROM shop.orders WHERE id = 1")
        tables += run_once(spark, tmp_path / "checkpoint", **options)
        rows = pa.concat_tables(tables)
        assert payloads(rows) == [
            _with_shard(line) for line in history(url) if json.loads(line)["table"] == "orders"
        ]
        assert rows["shard"].to_pylist() == ["1", "2", "2", "1"]
        batch = (
            spark.read.format("qanat").options(**options, where="price in 9..10 and not #op = delete").load()
        )
        assert [json.loads(row.payload)["after"]["price"] for row in batch.collect()] == ["9.50"]

        # What the table has, and what the log says then; after a restart nothing of the table again.
        server.run("INSERT INTO shop.orders VALUES (3, 7, NULL), (4, 8, NULL)")
        options |= {"start": "snapshot"}
        found = (
            spark.read.format("qanat")
            .options(**options)
            .load()
            .selectExpr("payload", "source.name")
            .collect()
        )
        assert [(*_told(row.payload), row.name) for row in found] == [
            ("read", n, "shop:0/shop?" + _mark(rows) + "/snapshot") for n in (2, 3, 4)
        ]
        options |= {"state": str(tmp_path / "state"), "maxRowsPerTrigger": "2"}
        tables = run_once(spark, tmp_path / "taken", **options)
        assert len(tables) == 2
        server.run("UPDATE shop.orders SET price = 6 WHERE id = 3")
        tables += run_once(spark, tmp_path / "taken", **options)
        assert [_told(line) for line in payloads(pa.concat_tables(tables))] == [
            ("read", 2), ("read", 3), ("read", 4), ("update", 3),
        ]  # fmt: skip


def _told(line: str | bytes) -> tuple[str, int]:
    update: dict[str, Any] = json.loads(line)
    return update["op"], update["after"]["id"]


def _mark(rows: pa.Table) -> str:
    """Of the choice, in the name of the source."""
    return str(rows["source"][0]["name"].as_py().partition("?")[2])


def _with_shard(line: str) -> str:
    """As the log's line is with a shard in it."""
    update: dict[str, Any] = json.loads(line)
    place = f'"op":"{update["op"]}"'
    return line.replace(place, f'{place},"shard":{(update["after"] or update["before"])["id"]}', 1)


@pytest.mark.paper("D2")
def test_files_and_a_stream_as_batches(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"n":1}\n{"n":2}\n')
    (tmp_path / "b.jsonl").write_bytes(b'{"n":3}\n{"n"')
    files = spark.read.format("qanat").option("changes", f"file://{tmp_path}/*.jsonl").load()
    assert [json.loads(row.payload)["after"]["n"] for row in files.collect()] == [1, 2, 3]
    with Client(shared_server.url) as client:
        client.publish_many("changes-of-prices", [b"x"] * 9, attributes=[{"price": n} for n in range(9)])
    url = f"{shared_server.url}/changes-of-prices"
    stream = spark.read.format("qanat").options(changes=url, where="price in 3..5").load()
    assert sorted(row.source.sequence for row in stream.collect()) == [4, 5, 6]


@pytest.mark.paper("D2")
@pytest.mark.server("postgres")
def test_a_postgresql_continuously_and_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    with postgres_server() as server:
        server.run("CREATE TABLE orders (id int PRIMARY KEY, price numeric(8,2))")
        options: dict[str, str] = {"changes": f"{server.url}?create=yes", "shard-by": "id"}
        open_reader(options["changes"]).close()
        server.run("INSERT INTO orders VALUES (1, 9.50), (2, 100)")
        batch = spark.read.format("qanat").options(**options, where="price in 9..10").load()
        assert [json.loads(row.payload)["after"]["price"] for row in batch.collect()] == ["9.50"]
        tables = run_once(spark, tmp_path / "checkpoint", **options)
        server.run("UPDATE orders SET price = 5 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
        tables += run_once(spark, tmp_path / "checkpoint", **options)
        rows = pa.concat_tables(tables)
        found = [(json.loads(line)["op"], json.loads(line)["after"]) for line in payloads(rows)]
        assert [op for op, _ in found] == ["insert", "insert", "update", "delete"]
        assert [after and after["price"] for _, after in found] == ["9.50", "100.00", "5.00", None]
        assert rows["shard"].to_pylist() == ["1", "2", "2", "1"]

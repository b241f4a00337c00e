"""An archive on a real NameNode and DataNode, through Spark's Hadoop."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.hdfs import HdfsServer, HdfsWriter, hdfs_server
from tests.servers.stream_server import ServerProcess
from tests.spark.archives import QUICK, fill, in_stream, rows
from tests.spark.test_changes import payloads
from tests.spark.test_changes import run_once as changes_once

from qanat.client import Client
from qanat.pipeline.archive.archiver import Archiver
from qanat.pipeline.archive.check import check_files
from qanat.pipeline.archive.errors import Fenced
from qanat.pipeline.archive.tables import SparkTables
from qanat.pipeline.archive.tidy import tidy
from qanat.pipeline.archive.view import archive_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.server("hdfs"), pytest.mark.slow, pytest.mark.paper("D4"), pytest.mark.timeout(900)]


def test_an_archive_on_hdfs(spark: SparkSession, shared_server: ServerProcess, tmp_path: Path) -> None:
    with hdfs_server() as hdfs, Client(shared_server.url) as client:
        path = f"{hdfs.address}/archive"
        job = Archiver(spark, shared_server.url, path, "far", settings=QUICK)
        for count in (50, 60):
            fill(client, "far", count)
            list(job.run(until_end=True))
        with Archiver(spark, shared_server.url, path, "far", settings=QUICK) as other:
            assert other.step() is None
            fill(client, "far", 10)
            with pytest.raises(Fenced):
                job.step()
            assert other.step() is not None
        assert [len(made) for made in tidy(SparkTables(spark), job.history, QUICK)] == [1]
        assert [what for _, what in check_files(job.history)] == [""]
        assert rows(archive_range(spark, path, "far")) == in_stream(client, "far", 1, 120)
        files_of_it_are_a_source(spark, hdfs, tmp_path)


def files_of_it_are_a_source(spark: SparkSession, hdfs: HdfsServer, tmp_path: Path) -> None:
    """As a batch, and continuously."""
    url = f"{hdfs.address}/logs/*.jsonl?dataset=logs"
    with closing(HdfsWriter(hdfs.address)) as writer:
        writer.append("/logs/a.jsonl", b'{"n":1}\n{"n":2}\n')
        batch = spark.read.format("qanat").option("changes", url).load()
        assert [json.loads(row.payload)["after"]["n"] for row in batch.collect()] == [1, 2]
        first = changes_once(spark, tmp_path / "checkpoint", changes=url)
        writer.append("/logs/a.jsonl", b'{"n":3}\n')
        second = changes_once(spark, tmp_path / "checkpoint", changes=url)
    found = [json.loads(line)["after"]["n"] for table in (*first, *second) for line in payloads(table)]
    assert found == [1, 2, 3]

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
from tests.waiting import wait_until

from qanat.cli.main import main
from qanat.client import Client
from qanat.pipeline.archive.archiver import Archiver
from qanat.pipeline.archive.check import check_files
from qanat.pipeline.archive.errors import Fenced
from qanat.pipeline.archive.tables import SparkTables
from qanat.pipeline.archive.tidy import tidy
from qanat.pipeline.archive.view import archive_range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.server("hdfs"),
    pytest.mark.slow,
    pytest.mark.paper("D4", "D6"),
]


def test_an_archive_on_hdfs(
    spark: SparkSession,
    shared_server: ServerProcess,
    server_process: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
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
        subscriber_is_given_what_its_server_dropped(spark, path, server_process, capsys)


def subscriber_is_given_what_its_server_dropped(
    spark: SparkSession, path: str, server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, of which the user says no more than where the archive is."""
    small = ["log.mode=memory", "log.segment_bytes=65536", "log.retain_bytes=131072", "streams.collect_ms=20"]
    server.start(*(word for setting in small for word in ("--set", setting)))
    with Client(server.url) as client, Archiver(spark, server.url, path, "near", settings=QUICK) as job:

        def dropped() -> bool:
            at = client.look("near").readable if job.manifest.next else 0
            client.publish_many("near", [b"%1000d" % (at + i) for i in range(1, 61)])
            list(job.run(until_end=True))
            return client.look("near").first > 60

        wait_until(dropped)
        client.publish_many("near", [b"live"] * 5)
        last = client.look("near").readable
    capsys.readouterr()
    words = ["--from", "1", "--until-end", "--json", "--archive", path]
    assert main(["sub", "near", "--url", server.url, *words]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["seq"] for event in shown] == list(range(1, last + 1))
    assert all(int(event["payload"]) == event["seq"] for event in shown[:-5])
    assert [event["payload"] for event in shown[-5:]] == ["live"] * 5


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

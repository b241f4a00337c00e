"""A stream becomes Parquet files, exactly; and is read back as it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow.dataset import dataset
from pyspark.sql import functions as F
from tests.integration.archiving import archive_all as quickly
from tests.servers.stream_server import ServerProcess
from tests.spark.archives import QUICK, archive_all, fill, history_of, in_stream, rows
from tests.waiting import wait_until

from qanat.cli.main import main
from qanat.client import Client
from qanat.pipeline.archive import archiver as archiver_module
from qanat.pipeline.archive import tables
from qanat.pipeline.archive.errors import NotArchived
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.tables import SparkTables, span
from qanat.pipeline.archive.tidy import tidy
from qanat.pipeline.archive.view import archive_at, archive_range, streams_of
from qanat.pipeline.columns import FILED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.paper("D4")


def test_the_archive_is_the_stream(spark: SparkSession, shared_server: ServerProcess, tmp_path: Path) -> None:
    with Client(shared_server.url) as client:
        fill(client, "whole", 1800)
        client.publish("whole", b"goes", key=b"k1", collects="same key")
        history = archive_all(spark, shared_server.url, tmp_path, "whole")
        assert history.newest().complete() == ((1, 1801),)
        assert len(history.newest().files) == 2  # two tasks, as there are enough events for both
        fill(client, "whole", 10, 2000)
        archive_all(spark, shared_server.url, tmp_path, "whole")
        manifest = history.newest()
        assert manifest.complete() == ((1, 1811),)
        assert [m.stream for m in streams_of(history.storage.below(".."))] == ["whole"]
        assert rows(archive_range(spark, str(tmp_path), "whole")) == in_stream(client, "whole", 1, 1811)
        part = rows(archive_range(spark, str(tmp_path), "whole", 5, 1801))
        assert [row["seq"] for row in part] == list(range(5, 1802))
        with pytest.raises(NotArchived, match="1 to 1811"):
            archive_range(spark, str(tmp_path), "whole", 5, 1812)


def test_readers_of_parquet_see_each_event_once_and_each_column_once(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who know nothing of manifests: the folders' names are columns, and what is being written has no
    name that they look for."""
    staged: list[list[str]] = []
    place = tables.put_in_place

    def looked(*args: Any) -> Any:
        staged.append([file.name for file in tmp_path.rglob("_staging/*/*") if file.is_file()])
        assert not list(tmp_path.rglob("_staging/**/*.parquet"))
        return place(*args)

    monkeypatch.setattr(tables, "put_in_place", looked)
    with Client(shared_server.url) as client:
        for stream in ("lake-a", "lake=b"):
            fill(client, stream, 1200)
            history = archive_all(spark, shared_server.url, tmp_path, stream)
            assert len(history.newest().files) == 2
    every = [("lake-a", seq) for seq in range(1, 1201)] + [("lake=b", seq) for seq in range(1, 1201)]
    columns = {"stream", "day", *FILED.names}
    folder = str(tmp_path)
    for rows_ in (
        spark.read.parquet(folder).toArrow(),
        dataset(folder, partitioning="hive").to_table(),
        pa.Table.from_pandas(pd.read_parquet(folder)),
    ):
        assert sorted(zip(rows_["stream"].to_pylist(), rows_["seq"].to_pylist(), strict=True)) == every
        assert set(rows_.schema.names) == columns and rows_.num_columns == len(columns)
    assert spark.read.parquet(f"{folder}/stream=*/**/*.parquet").count() == len(every)
    assert len(list(tidy(SparkTables(spark), history_of(tmp_path, "lake=b"), QUICK))) == 1
    assert len(staged) == 3 and all(
        staged
    )  # written by tasks that read a stream, and by one that merges files
    with Client(shared_server.url) as client:
        assert rows(archive_range(spark, folder, "lake=b")) == in_stream(client, "lake=b", 1, 1200)


def test_a_stream_as_of_a_number_or_a_time(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path
) -> None:
    """Each event of a key is collected by the GC event that follows; as of a moment before it, it lives."""
    path = str(tmp_path)
    with Client(shared_server.url) as client:
        for _ in range(3):
            client.publish_many("asof", [b"x"] * 20, keys=[b"k%d" % (n % 4) for n in range(20)])
            client.publish("asof", b"gc", key=b"k1", collects="same key")
        quickly(shared_server.url, tmp_path, "asof")

        def alive(**moment: Any) -> dict[str, int]:
            table = archive_at(spark, path, "asof", **moment)
            counted = (
                table.groupBy("kind")
                .agg(F.count("*").alias("n"), F.sum(span()).alias("span"), F.max("seq"))
                .collect()
            )
            assert sum(row["span"] for row in counted) == max(row[3] for row in counted)
            return {row["kind"]: row["n"] for row in counted}

        assert alive(seq=30) == {"data": 24, "gc": 1, "tombstone": 5}
        assert alive(seq=20, collected=False) == {"data": 20}
        times = {row["seq"]: row["time"].replace(tzinfo=UTC) for row in in_stream(client, "asof", 1, 63)}
        assert alive(time=times[43] - timedelta(microseconds=1)) == {"data": 30, "gc": 1, "tombstone": 11}
        assert alive(time=times[63], collected=False) == {"data": 60, "gc": 3}
        with pytest.raises(NotArchived, match="begins after"):
            archive_at(spark, path, "asof", time=datetime(2020, 1, 1, tzinfo=UTC))
        with pytest.raises(NotArchived, match="1 to 63, not all of 64"):
            archive_at(spark, path, "asof", seq=64)


def test_a_tombstone_is_cut_where_a_range_ends(
    spark: SparkSession, server_process: ServerProcess, tmp_path: Path
) -> None:
    """The server has collected before it is archived; ranges of tasks, of commits and of reads end inside of
    tombstones."""
    file = tmp_path / "server.toml"
    file.write_text("[stream.cache]\nsegment_bytes = 65536\n[stream.cache.policy]\nby_key = true\n")
    server_process.start("--config", str(file), "--set", "streams.collect_ms=20")
    with Client(server_process.url) as client:
        for _ in range(60):
            client.publish_many("cache", [b"x" * 100] * 50, keys=[b"k%d" % n for n in range(50)])
        wait_until(lambda: client.look("cache", 1000).mark == "")
        manifest = quickly(
            server_process.url, tmp_path, "cache", ArchiveSettings(batch_ms=0, range_rows=200, batch_rows=700)
        )
        assert manifest.rows < 2500 and len(manifest.files) >= 8
        for first, last in ((1, 3000), (617, 1333), (740, 740)):
            cut = rows(archive_range(spark, str(tmp_path), "cache", first, last))
            ends = [(row["seq"], int(row["attributes"].get("@range", 1))) for row in cut]
            assert [n for seq, wide in ends for n in range(seq - wide + 1, seq + 1)] == list(
                range(first, last + 1)
            )
            assert all(
                row["types"] == ({"@range": "uint"} if "@range" in row["attributes"] else None) for row in cut
            )


def test_the_command(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "archive")

    def told(*words: str, code: int = 0) -> Any:
        assert main(["archive", *words, "--json"]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    run_ = (
        "run",
        path,
        "one",
        "two",
        "--url",
        shared_server.url,
        "--until-end",
        "--set",
        "archive.batch_ms=0",
    )
    with Client(shared_server.url) as client:
        for count in (5, 7):
            for stream in ("one", "two"):
                fill(client, stream, count)
            assert sorted((line["stream"], line["rows"], line["behind"]) for line in told(*run_)) == [
                ("one", count, 0),
                ("two", count, 0),
            ]
    (listed,) = told("ls", path)
    assert [(stream["stream"], stream["complete"], stream["files"]) for stream in listed] == [
        ("one", [[1, 12]], 2),
        ("two", [[1, 12]], 2),
    ]
    ((tidied, _),) = told("tidy", path)
    assert (tidied["merges"], tidied["files"]) == (1, 1)
    (shown,) = told("show", path, "one", "--files")
    assert [(file["first"], file["last"]) for file in shown["file_list"]] == [(1, 12)]
    (checked,) = told("check", path)
    assert checked == {"files": 2, "wrong": []}
    (tmp_path / "archive" / "stream=one" / shown["file_list"][0]["path"]).unlink()
    (checked,) = told("check", path, code=1)
    assert [wrong["wrong"] for wrong in checked["wrong"]] == ["it is missing"]
    assert main(["archive", "show", path, "three"]) == 2
    assert "no archive of stream 'three'" in capsys.readouterr().err


def test_a_full_disk_is_waited_for_and_told_with_its_reason(
    spark: SparkSession,
    shared_server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(url: str, stream: str, ranges: Any, folder: str, parts: Any) -> Any:
        for _ in parts:
            (Path(folder) / "0-part.parquet").write_bytes(b"half of it")
            raise OSError(28, "No space left on device")
        yield

    with Client(shared_server.url) as client:
        fill(client, "full", 5)
    words = ["archive", "run", str(tmp_path), "full", "--url", shared_server.url, "--until-end"]
    monkeypatch.setattr(archiver_module, "RETRY_S", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "write_ranges", full)
        assert main([*words, "--set", "archive.patience_ms=1"]) == 3
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("qanat: no space is left for the archive of stream 'full' at /")
    (tried,) = (record for record in caplog.records if record.getMessage() == "archiving is tried again")
    assert vars(tried)["stream"] == "full" and vars(tried)["reason"].startswith("no space is left")
    assert not history_of(tmp_path, "full").storage.entries("_staging")
    assert main(words) == 0

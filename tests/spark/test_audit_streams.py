"""Real subscribers, recorded, killed and started again, and then audited against a real archive by the
command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.stream_server import ServerProcess
from tests.spark.archives import archive_all, fill

from qanat.cli.main import main
from qanat.client import Client
from qanat.client.record_format import SUFFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reader:
    """`qanat sub --record` as a user runs it."""

    def __init__(self, url: str, stream: str, folder: Path, name: str, start: int, *more: str) -> None:
        command = [sys.executable, "-m", "qanat", "sub", stream, "--url", url, "--from", str(start), "--json"]
        command += ["--record", str(folder), "--name", name, *more]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)

    def read(self, seq: int) -> int:
        """Until it has printed that event, or one behind it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if json.loads(line)["seq"] >= seq:
                return int(json.loads(line)["seq"])
        raise AssertionError(f"the reader ended before {seq}")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=300)


def audited(capsys: pytest.CaptureFixture[str], folder: Path, archive: Path, *more: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(["audit", str(folder), "--archive", str(archive), "--json", *more])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else said.err


@pytest.mark.paper("D7")
def test_readers_that_are_killed_are_proven_to_have_been_given_everything(
    spark: SparkSession,
    shared_server: ServerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, archive, stream, url = tmp_path / "records", tmp_path / "archive", "audited", shared_server.url
    with Client(url) as client:
        fill(client, stream, 3000)
        for seq in (1000, 2000):  # each life goes on where the one before was read to
            reader = Reader(url, stream, folder, "till", 1 if seq == 1000 else 1001)
            reader.read(seq)
            reader.kill()
        client.publish(stream, b"", key=b"k3", collects="same key")
        fill(client, stream, 999, first=3002)
        last = Reader(url, stream, folder, "till", 2001)
        assert last.read(4000) == 4000
        last.kill()
        with Client(url, name="even", record=folder) as other:
            got = other.subscribe(stream, start="earliest", where="even = true")
            while got.next <= 4000:
                got.take(timeout_s=1)
            got.close()
    archive_all(spark, url, archive, stream)
    code, report = audited(capsys, folder, archive, "--complete")
    assert (code, report["audit"], report["violations"]) == (0, "pass", 0)
    by = {account["subscriber"]: account for account in report["subscribers"]}
    assert by["till"]["runs"] == 3 and by["till"]["proven_to"] == 4000
    assert by["till"]["delivered"] - by["till"]["repeated"] == 4000
    assert by["even"]["delivered"] == 1500 + 500 + 1 and by["even"]["where"] == "even = true"
    assert report["latency_ms"][""]["events"] == by["till"]["delivered"] + by["even"]["delivered"]
    # Without its last life the reader did not come to the end.
    lives = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: int(path.name.split("-")[0]))
    aside = lives[2].rename(tmp_path / lives[2].name)
    code, report = audited(capsys, folder, archive, "--complete")
    (gap,) = report["violation_list"]
    assert (code, gap["kind"], gap["last"], gap["subscriber"]) == (1, "gap", 4000, "till")
    assert 2001 <= gap["first"] <= 3001
    aside.rename(lives[2])
    # What was delivered beyond the archive's end is not wrong, and not proven.
    with (
        Client(url, name="late", record=folder) as client,
        client.subscribe(stream, start=4001) as ahead,
    ):
        client.publish(stream, b"more")
        assert ahead.take(timeout_s=60)
    assert main(["audit", str(folder), "--archive", str(archive)]) == 3
    said = capsys.readouterr().out
    assert "late was given 'audited' up to 4001; the archive has 1..4000: 4001..4001 is not decided" in said


def test_wrong_usage_is_said_before_spark_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["audit", str(tmp_path / "nowhere"), "--archive", str(tmp_path)]) == 2
    assert "there are no recordings at" in capsys.readouterr().err
    assert main(["audit", str(tmp_path), "--archive", str(tmp_path), "--policy", "orders"]) == 2
    assert "STREAM=PREDICATE" in capsys.readouterr().err
    assert main(["audit", str(tmp_path), "--archive", str(tmp_path), "--policy", "orders=keep"]) == 2
    assert "is no predicate" in capsys.readouterr().err

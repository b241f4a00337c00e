"""Spark's checkpoints of a pipeline, damaged: every update is in the stream once all the same, or the
pipeline says what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.damaging import Kind, unknown
from tests.integration.damaging_states import PipelineWorld
from tests.servers.rocksdb import rocks_process
from tests.servers.stream_server import ServerProcess
from tests.spark.ingesting import in_log, in_stream, pipeline, run_once

from qanat.events.errors import QanatError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARKS = Kind(
    "Spark's checkpoints", r"checkpoints/log/(metadata|(offsets|commits|sources/0)/\d+|.*\.crc|.*/__init)"
)
NAMED = [Kind(each.name, each.pattern.replace("shop", "log")) for each in PipelineWorld.kinds]
HARMS = ("flipped", "cut", "removed", "older copy")


@pytest.mark.soak
def test_no_damage_to_them_loses_an_update(
    spark: SparkSession, server_process: ServerProcess, tmp_path: Path
) -> None:
    server = server_process.start()
    with rocks_process(tmp_path / "db", wal_ttl_seconds=3600) as database:
        file = pipeline(
            tmp_path,
            f"""
            url = "{server.url}"
            [sources.log]
            log = "{database.url}?dataset=d"
            [[routes]]
            stream = "all"
            """,
        )
        said: list[str] = []
        for lap in range(3):
            database.do("write", [[("put", "default", b"k%d" % at, b"v%d" % lap)] for at in range(20)])
            run_once(spark, file)
            if lap == 1:
                shutil.copytree(file.state, tmp_path / "older")
        assert unknown(file.state, [*NAMED, SPARKS]) == []
        shutil.copytree(file.state, tmp_path / "pristine")
        newest = ("metadata", "offsets/2", "offsets/1", "offsets/.2.crc", "commits/2")
        names = [f"checkpoints/log/{name}" for name in newest]
        for name in names:
            for harm in HARMS:
                victim, older = file.state / name, tmp_path / "older" / name
                shutil.rmtree(file.state)
                shutil.copytree(tmp_path / "pristine", file.state)
                content = victim.read_bytes()
                if harm == "older copy" and (not older.exists() or older.read_bytes() == content):
                    continue
                if harm == "flipped":
                    at = max(0, len(content) - 12)
                    victim.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
                elif harm == "cut":
                    victim.write_bytes(content[: len(content) // 2])
                elif harm == "removed":
                    victim.unlink()
                else:
                    shutil.copyfile(older, victim)
                database.do("write", [[("put", "default", b"n%d" % len(said), b"new")]])
                try:
                    run_once(spark, file)
                    whole = in_stream(server.url, "all") == in_log(f"{database.url}?dataset=d")
                    said.append(f"{name} {harm}: {'whole' if whole else 'LOST'}")
                except QanatError as error:
                    said.append(f"{name} {harm}: {type(error).__name__} {error}")
                print(said[-1])
                if "LOST" in said[-1]:
                    print(content)
        assert not [each for each in said if "LOST" in each]

"""Logs into streams by way of Spark: every update once, in its order, where its routes lead; and what cannot
go there is kept."""

from __future__ import annotations

import shutil
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.postgres import postgres_server
from tests.servers.rocksdb import RocksProcess, rocks_process, spoil
from tests.servers.stream_server import ServerProcess
from tests.spark.ingesting import LONG_S, Running, in_log, in_stream, pipeline, run_once, running
from tests.waiting import wait_until

from qanat.capture.updates import Op, Update
from qanat.pipeline.ingest import dead_letters
from qanat.pipeline.ingest.failures import GivenUp, Outage
from qanat.pipeline.ingest.query import start_query
from qanat.pipeline.ingest.state import State
from qanat.pipeline.running import Run
from qanat.pipeline.session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qanat.pipeline.pipeline_file import PipelineFile

pytestmark = pytest.mark.slow


def key_of(update: Update) -> bytes:
    image = update.after if update.before is None else update.before
    assert image is not None
    return bytes(image["key"])


def shard_of(update: Update) -> int | None:
    """As `hash:2` has it: keys of a RocksDB are written in hexadecimal."""
    return None if update.op == Op.DELETE_RANGE else zlib.crc32(key_of(update).hex().encode()) % 2


@pytest.mark.paper("D2")
def test_every_update_is_published_once_and_in_order(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path
) -> None:
    with rocks_process(tmp_path / "db", wal_ttl_seconds=3600) as database:
        file = pipeline(
            tmp_path,
            f"""
            url = "{shared_server.url}"
            [sources.log]
            log = "{database.url}"
            shards = "hash:2"
            [[routes]]
            stream = "ingest-all"
            [[routes]]
            stream = "ingest-users-{{shard}}"
            where = "key ~ '^user' or #op = delete_range"
            [ingest]
            read_updates = 100
            """,
        )
        write: list[list[tuple[object, ...]]] = [
            [("put", "default", b"%s/%d" % (kind, at), b"v%d" % at)]
            for at in range(200)
            for kind in (b"user", b"item")
        ]
        write += [[("delete", "default", b"user/7"), ("delete_range", "default", b"user/1", b"user/2")]]
        write += [
            [("put", "default", b"user/large", bytes(13 << 20)), ("put", "default", b"user/last", b"x")]
        ]
        database.do("write", write)
        told = run_once(spark, file)
        assert (told["read"], told["dead_letters"], told["lag_s"]) == (404, 1, 0)

        # Another run goes on where this one was; and so does one whose checkpoint is gone, since the log is
        # whole.
        database.do("write", [[("put", "default", b"user/%d" % at, b"again")] for at in range(50)])
        assert run_once(spark, file)["read"] == 50
        shutil.rmtree(file.state / "checkpoints")
        database.do("write", [[("put", "default", b"item/x", b"at last")]])
        run_once(spark, file)

        expected = [update for update in in_log(database.url) if key_of(update) != b"user/large"]
        assert in_stream(shared_server.url, "ingest-all") == expected
        users = [one for one in expected if key_of(one).startswith(b"user")]
        for shard in (0, 1):
            mine = [one for one in users if shard_of(one) in (shard, None)]
            assert in_stream(shared_server.url, f"ingest-users-{shard}") == mine
        (letter,) = dead_letters.read(file.state).to_pylist()
        assert (letter["stage"], letter["table"], letter["form"]) == ("publish", "db.default", "json")
        assert len(letter["original"]) > 16 << 20


@contextmanager
def twenty_keys(tmp_path: Path, url: str, stream: str) -> Iterator[tuple[RocksProcess, PipelineFile]]:
    """A database that has them, and a pipeline of all of it into one stream."""
    with rocks_process(tmp_path / "db", wal_ttl_seconds=3600) as database:
        database.do("write", [[("put", "default", b"k%d" % at, b"v")] for at in range(20)])
        yield (
            database,
            pipeline(
                tmp_path,
                f"""
                url = "{url}"
                [sources.log]
                log = "{database.url}"
                [[routes]]
                stream = "{stream}"
                """,
            ),
        )


def test_a_run_that_finds_nothing_new_ends(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path
) -> None:
    """Spark has no micro-batch to run then, and would tell nothing, for ever."""
    with twenty_keys(tmp_path, shared_server.url, "ingest-again") as (database, file):
        assert run_once(spark, file, begin="latest")["read"] == 0
        database.do("write", [[("put", "default", b"new%d" % at, b"v")] for at in range(5)])
        assert run_once(spark, file)["read"] == 5
        # Stopped at once, it may have left its last micro-batch to be done again; one that runs on writes
        # down that it is done.
        state = State(file.state)
        with running(spark, file):
            wait_until(lambda: state.offset("log") is not None and state.has_done("log"), LONG_S)
        told = run_once(spark, file)
        assert (told["read"], told["position"]) == (0, str(in_log(database.url)[-1].position))
        assert len(in_stream(shared_server.url, "ingest-again")) == 5


@pytest.mark.paper("D2")
def test_what_cannot_be_decoded_is_kept_and_everything_else_is_published(
    spark: SparkSession, shared_server: ServerProcess, tmp_path: Path
) -> None:
    with twenty_keys(tmp_path, shared_server.url, "ingest-poison") as (database, file):
        originals = [spoil(tmp_path / "db", key) for key in (b"k7", b"k8", b"k19")]
        told = run_once(spark, file)
        assert (told["read"], told["dead_letters"], told["lag_s"]) == (20, 3, 0)
        # Another run begins behind them, and leaves no letter twice.
        database.do("write", [[("put", "default", b"last", b"v")]])
        assert run_once(spark, file)["dead_letters"] == 0
        kept = [b"k%d" % at for at in range(20) if at not in (7, 8, 19)]
        assert [key_of(one) for one in in_stream(shared_server.url, "ingest-poison")] == [*kept, b"last"]
        letters = dead_letters.read(file.state).to_pylist()
        assert [letter["original"] for letter in letters] == originals
        assert all("a put with a time of its own" in letter["reason"] for letter in letters)


@pytest.mark.paper("D2")
@pytest.mark.server("postgres")
def test_a_datastore_and_a_server_that_are_away_are_waited_for(
    spark: SparkSession, server_process: ServerProcess, tmp_path: Path
) -> None:
    server = server_process.start()
    with postgres_server() as postgres:
        postgres.run("CREATE TABLE orders (id int PRIMARY KEY, country text)")
        text = f"""
            url = "{server.url}"
            [sources.log]
            log = "{postgres.url}?create=yes"
            shards = "country"
            [[routes]]
            stream = "orders-{{shard}}"
            """
        file = pipeline(tmp_path, text)
        with running(spark, file) as ingest:
            ingest.until(lambda told: (file.state / "checkpoints" / "log").exists())
            postgres.run("INSERT INTO orders VALUES (1, 'NL'), (2, 'BE'), (3, NULL)")
            told = ingest.until(lambda told: told["published"] == 2)
            assert told["dead_letters"] == 1

            postgres.stop()
            told = ingest.until(lambda told: "trouble" in told)
            assert told["state"] == "waiting"
            postgres.start()
            postgres.run("INSERT INTO orders VALUES (4, 'NL')")
            ingest.until(lambda told: told["published"] == 3 and "trouble" not in told)

            server.kill()
            postgres.run("INSERT INTO orders VALUES (5, 'NL')")
            ingest.until(
                lambda told: "no server" in told.get("trouble", "") or "answers" in told.get("trouble", "")
            )
            server.start()
            ingest.until(lambda told: told["published"] >= 4 and "trouble" not in told)
            with urllib.request.urlopen(f"{ingest.status()['admin']}/metrics", timeout=30) as page:
                assert (
                    'qanat_pipeline_shard_lag_seconds{source="log",stream="orders-NL"} 0.0'
                    in page.read().decode()
                )
        found = {
            stream: [one.after for one in in_stream(server.url, stream)]
            for stream in ("orders-NL", "orders-BE")
        }
        assert found == {
            "orders-NL": [{"id": 1, "country": "NL"}, {"id": 4, "country": "NL"}, {"id": 5, "country": "NL"}],
            "orders-BE": [{"id": 2, "country": "BE"}],
        }
        (letter,) = dead_letters.read(file.state).to_pylist()
        assert "it has no shard (country)" in letter["reason"]

        # A datastore that is away when the pipeline starts, for longer than patience lasts, ends it with exit
        # code 3 (RemoteError).
        postgres.stop()
        impatient = pipeline(tmp_path, f"{text}\n[ingest]\npatience_s = 0\n")
        with pytest.raises(Outage, match="waited for it"):
            Run(impatient, SparkSettings(), session=spark).run()


@pytest.mark.paper("D2")
def test_a_server_that_stays_away_ends_the_pipeline_when_patience_is_over(
    spark: SparkSession, server_process: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(start_query(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("qanat.pipeline.ingest.job.start_query", start)
    server = server_process.start()
    with rocks_process(tmp_path / "db", wal_ttl_seconds=3600) as database:
        text = f"""
            url = "{server.url}"
            [sources.log]
            log = "{database.url}"
            [[routes]]
            stream = "all"
            [ingest]
            patience_s = 2
            """
        ingest = Running(spark, pipeline(tmp_path, text))
        database.do("write", [[("put", "default", b"first", b"v")]])
        ingest.until(lambda told: told["published"] == 1)
        server.kill()
        database.do("write", [[("put", "default", b"second", b"v")]])
        wait_until(lambda: ingest.error, LONG_S)
        assert isinstance(ingest.error, GivenUp)  # a RemoteError: exit code 3
        assert "waited for it for" in str(ingest.error)
        assert len(started) == 1  # nobody begins to wait once more

"""Servers whose log began anew, was restored, or is of a replica: a feed goes on only where the log is the
one that it read."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.feeding import fed
from tests.servers.mariadb import mariadb_server
from tests.servers.postgres import PostgresServer, postgres_server
from tests.servers.rocksdb import rocks_process
from tests.waiting import wait_until

from qanat.capture import Updates
from qanat.capture.errors import LogUnreachable, OtherLog
from qanat.capture.last_update import last_of
from qanat.capture.url import open_reader
from qanat.cli.main import main
from qanat.client import Client
from qanat.events.position import Position

pytestmark = pytest.mark.paper("W10")
OTHER = "is not the log that was read before"


def values(url: str, column: str = "id") -> list[Any]:
    """Of all updates that the stream has."""
    return [update.after[column] for update in fed(url, "s") if update.after]


@pytest.mark.server("mariadb")
def test_a_log_of_mariadb_that_began_anew_is_refused(
    tmp_path: Path, server_process: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server_process.start()
    with mariadb_server(tmp_path / "maria") as server:
        words = [
            "changes",
            f"{server.url}?dataset=shop",
            "--into",
            "s",
            "--url",
            server_process.url,
            "--until-end",
        ]
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        server.run("INSERT INTO shop.t VALUES (1)", "INSERT INTO shop.t VALUES (2)")
        assert main(words) == 0
        server.run("INSERT INTO shop.t VALUES (3)")
        assert main(words) == 0
        server.run("RESET MASTER", "INSERT INTO shop.t VALUES (9)")
        capsys.readouterr()
        assert main(words) == 1
        assert "but the log ends before" in capsys.readouterr().err
        server.run("RESET MASTER", *[f"INSERT INTO shop.t VALUES ({number})" for number in range(10, 20)])
        capsys.readouterr()
        assert main(words) == 2
        assert OTHER in capsys.readouterr().err
        assert values(server_process.url) == [1, 2, 3]
        words[1] = f"{server.url}?dataset=shop.2"
        assert main(words) == 0
    assert values(server_process.url) == [1, 2, 3, *range(10, 20)]


@pytest.mark.server("mariadb")
def test_a_feed_goes_on_at_a_replica(tmp_path: Path, server_process: Any) -> None:
    server_process.start()
    with mariadb_server(tmp_path / "a") as primary, mariadb_server(tmp_path / "b", server_id="2") as replica:
        replica.run(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, MASTER_USER='root',"
            " MASTER_USE_GTID=slave_pos",
            "START SLAVE",
        )
        words = ["--into", "s", "--url", server_process.url, "--until-end"]
        primary.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        primary.run("INSERT INTO shop.t VALUES (1), (2), (3)")
        assert main(["changes", f"{primary.url}?dataset=shop", *words]) == 0
        primary.run("INSERT INTO shop.t VALUES (4)")
        ((gtid,),) = primary.run("SELECT @@gtid_binlog_pos")
        assert replica.run(f"SELECT MASTER_GTID_WAIT('{gtid}', 60)") == ((0,),)
        assert main(["changes", f"{replica.url}?dataset=shop", *words]) == 0
    assert values(server_process.url) == [1, 2, 3, 4]


@pytest.mark.server("mariadb")
def test_a_server_that_comes_back_without_its_end_is_noticed_by_a_reader_that_waits(tmp_path: Path) -> None:
    """As after a power cut with `sync_binlog=0`."""
    with mariadb_server(tmp_path) as server:
        server.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
        )
        server.stop()
        copied(server.data, tmp_path / "kept")
        server.start()
        with closing(open_reader(server.url)) as reader:
            reader.seek("earliest")
            server.run("INSERT INTO shop.t VALUES (2)")
            assert isinstance(found := reader.read(10, 10), Updates)
            assert [update.after["id"] for update in found.rows() if update.after] == [1, 2]
            server.kill()
            copied(tmp_path / "kept", server.data)
            server.start()
            server.run(*[f"INSERT INTO shop.t VALUES ({number})" for number in range(10, 20)])
            with pytest.raises(LogUnreachable, match="ended the connection"):
                reader.read(10, 1)
            for _ in range(2):
                with pytest.raises(OtherLog, match=OTHER):
                    reader.read(10, 1)


@pytest.mark.server("postgres")
def test_a_postgresql_that_was_restored_is_refused(
    server_process: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server_process.start()
    with postgres_server() as server:
        log = f"{server.url}?create=yes"
        words = ["changes", log, "--into", "s", "--url", server_process.url, "--until-end"]
        server.run("CREATE TABLE t (id int PRIMARY KEY)")
        assert main(words) == 0
        server.run("INSERT INTO t VALUES (1)")
        assert main(words) == 0
        kept = server.folder / "kept"
        server.stop()
        copied(server.data, kept)
        server.start()
        server.run("INSERT INTO t VALUES (2)")
        assert main(words) == 0
        server.run("INSERT INTO t VALUES (3)")
        assert main(words) == 0
        assert values(server_process.url) == [1, 2, 3]
        _restored(server, kept)
        capsys.readouterr()
        assert main(words) == 2
        assert OTHER in capsys.readouterr().err
        assert values(server_process.url) == [1, 2, 3]


def test_a_rocksdb_that_lost_its_end_is_refused(
    tmp_path: Path, server_process: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a power cut: what was not synced is gone, and its sequence numbers are given again."""
    server_process.start()
    folder = tmp_path / "shop"
    words = ["changes", f"rocksdb://{folder}", "--into", "s", "--url", server_process.url, "--until-end"]

    def write(*numbers: int) -> None:
        with rocks_process(folder, wal_ttl_seconds=3600) as rocks:
            rocks.do("write", [[("put", "default", b"%d" % number, bytes(200))] for number in numbers])

    write(1, 2, *[2] * 9_998)  # so many that they do not come at once
    assert main(words) == 0
    write(3)
    copied(folder, tmp_path / "kept")
    write(4, 5)
    assert main(words) == 0
    copied(tmp_path / "kept", folder)
    write(6, 7, 8)
    capsys.readouterr()
    assert main(words) == 2
    assert OTHER in capsys.readouterr().err
    assert values(server_process.url, "key") == [b"1", *[b"2"] * 9_999, b"3", b"4", b"5"]


def _restored(server: PostgresServer, kept: Path) -> None:
    """And its log then grew to more than it had been."""
    end = server.run("SELECT pg_current_wal_lsn()")[0][0]
    server.stop()
    copied(kept, server.data)
    server.start()
    while server.run(f"SELECT pg_current_wal_lsn() <= '{end}'::pg_lsn + 1000")[0][0]:
        server.run("INSERT INTO t SELECT max(id) + 10 FROM t")


def copied(there: Path, here: Path) -> None:
    subprocess.run(["rm", "-rf", str(here)], check=True)
    subprocess.run(["cp", "-a", str(there), str(here)], check=True)


def test_the_last_update_of_a_source_is_found_among_others(server_process: Any, tmp_path: Path) -> None:
    server_process.start()
    url = server_process.url
    (tmp_path / "a.jsonl").write_text('{"id":1}\n{"id":2}\n')
    assert (
        main(["changes", f"file://{tmp_path}/*.jsonl?dataset=a", "--into", "s", "--url", url, "--until-end"])
        == 0
    )
    with Client(url) as client:
        client.publish_many("s", [b"%d" % number for number in range(5000)])
        position = Position((1 << 40) + 9)
        found = last_of(client, "s", "a", position)
        assert found is not None
        assert (found.position, found.table) == (position, tmp_path.name)
        assert last_of(client, "s", "b", position) is None
        assert last_of(client, "s", "a", Position(7)) is None
        assert last_of(client, "none", "a", position) is None


def test_a_stream_that_lost_what_it_had_is_fed_again(server_process: Any, tmp_path: Path) -> None:
    """Kept in memory alone; the feed is not started again, and hears of it when the server is back."""
    server_process.start("--set", "log.mode=memory")
    path = tmp_path / "a.jsonl"
    command = [
        sys.executable,
        "-m",
        "qanat",
        "changes",
        f"file://{path}",
        "--into",
        "s",
        "--url",
        server_process.url,
    ]

    def write(*numbers: int) -> None:
        with path.open("a") as file:
            file.writelines(json.dumps({"id": number}) + "\n" for number in numbers)

    write(*range(100))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as feeder:
        try:
            for first in (100, 200):
                wait_until(lambda first=first: values(server_process.url) == list(range(first)))  # type: ignore[misc]
                server_process.kill()
                server_process.start("--set", "log.mode=memory")
                write(*range(first, first + 100))
            wait_until(lambda: values(server_process.url) == list(range(300)))
        finally:
            feeder.kill()
        assert feeder.stderr is not None
        assert "now has it only up to 0:0" in feeder.stderr.read()

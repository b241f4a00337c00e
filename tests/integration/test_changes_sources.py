"""Several datasets, and several choices of one, fed into one stream: none hides updates of another."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.feeding import fed
from tests.servers.mariadb import MariadbServer, mariadb_server
from tests.servers.postgres import postgres_server
from tests.servers.rocksdb import rocks_process

from qanat.capture.url import open_reader
from qanat.cli.main import main
from qanat.client import Client


@pytest.fixture
def into(server_process: Any) -> tuple[str, ...]:
    server_process.start()
    return ("--into", "all", "--url", server_process.url, "--until-end")


def feed(log: str, *words: str) -> None:
    assert main(["changes", log, *words]) == 0


def values(into: tuple[str, ...], column: str) -> list[Any]:
    """Of all updates that the stream has."""
    return [update.after[column] for update in fed(into[3], into[1]) if update.after]


def filled(server: MariadbServer, first: int) -> MariadbServer:
    server.run("CREATE DATABASE a", "CREATE DATABASE b", "CREATE TABLE a.t (id INT PRIMARY KEY)")
    server.run("CREATE TABLE b.t (id INT PRIMARY KEY)", "CREATE TABLE b.u (id INT PRIMARY KEY)")
    for number in range(first, first + 6):
        server.run(f"INSERT INTO {('a.t', 'b.t', 'b.u')[number % 3]} VALUES ({number})")
    return server


@pytest.mark.server("mariadb")
def test_servers_that_are_no_replicas_of_each_other(
    tmp_path: Path, into: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with mariadb_server(tmp_path / "one") as one, mariadb_server(tmp_path / "two") as two:
        # The same numbers of server and domain, and as many transactions: nothing tells them apart but their
        # rows.
        filled(one, 0)
        filled(two, 100)
        assert main(["changes", one.url, *into]) == 2
        assert "?dataset=NAME" in capsys.readouterr().err
        feed(f"{one.url}?dataset=one", *into)
        feed(f"{two.url}?dataset=two", *into)
        feed(f"{one.url}?dataset=one", *into)
    assert values(into, "id") == [*range(6), *range(100, 106)]


@pytest.mark.server("mariadb")
def test_parts_of_one_server(tmp_path: Path, into: tuple[str, ...]) -> None:
    with mariadb_server(tmp_path / "one") as server:
        filled(server, 0)
        feed(f"{server.url}b?dataset=shop", "--table", "u", *into)
        feed(f"{server.url}b?dataset=shop", "--table", "b.t", *into)
        feed(f"{server.url}a?dataset=shop", *into)
        assert values(into, "id") == [2, 5, 1, 4, 0, 3]
        server.run("INSERT INTO b.u VALUES (8)", "INSERT INTO b.t VALUES (7)")
        feed(f"{server.url}b?dataset=shop", "--table", "b.t", *into)
        feed(f"{server.url}b?dataset=shop", "--table", "u", *into)
    assert values(into, "id") == [2, 5, 1, 4, 0, 3, 7, 8]


@pytest.mark.server("mariadb")
def test_domains_of_one_server(tmp_path: Path, into: tuple[str, ...]) -> None:
    with mariadb_server(tmp_path / "one") as server:
        filled(server, 0)
        server.run(
            "SET SESSION gtid_domain_id=5", "INSERT INTO a.t VALUES (50)", "INSERT INTO a.t VALUES (51)"
        )
        feed(f"{server.url}?dataset=shop&domain=0", *into)
        feed(f"{server.url}?dataset=shop&domain=5", *into)
    assert values(into, "id") == [*range(6), 50, 51]


@pytest.mark.server("postgres")
def test_databases_and_publications_of_one_cluster(into: tuple[str, ...]) -> None:
    with postgres_server() as server:
        server.run(
            "CREATE DATABASE other",
            "CREATE TABLE t (id int PRIMARY KEY)",
            "CREATE TABLE u (id int PRIMARY KEY)",
        )
        other = server.url.removesuffix("postgres") + "other"
        logs = [
            f"{server.url}?create=yes&tables=t&dataset=shop",
            f"{other}?create=yes&slot=other&dataset=shop",
        ]
        logs.append(f"{server.url}?create=yes&tables=u&slot=us&publication=us&dataset=shop")
        for log in logs:
            feed(log, *into)
        server.run("INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (2)")
        with server.connect("other") as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id int PRIMARY KEY)")
            cursor.execute("INSERT INTO t VALUES (3)")
        for log in reversed(logs):
            feed(log, *into)
        ((system,),) = server.run("SELECT system_identifier::text FROM pg_control_system()")
        with closing(open_reader(server.url)) as reader:
            assert reader.source == f"postgresql:{system}/postgres"
    assert sorted(values(into, "id")) == [1, 2, 3]


def test_databases_whose_folders_have_one_name(tmp_path: Path, into: tuple[str, ...]) -> None:
    kept = {"wal_ttl_seconds": 3600}
    for name in ("one", "two"):
        with rocks_process(tmp_path / name / "shop", **kept) as rocks:
            rocks.do("write", [[("put", "default", b"%s %d" % (name.encode(), n), b"")] for n in range(3)])
            feed(rocks.url, *into)
            feed(rocks.url, *into)
    assert values(into, "key") == [b"one 0", b"one 1", b"one 2", b"two 0", b"two 1", b"two 2"]


def test_files_that_begin_anew_at_the_same_place(tmp_path: Path, into: tuple[str, ...]) -> None:
    folder = tmp_path / "logs"
    for first in (0, 10):
        folder.mkdir()
        (folder / "a.jsonl").write_text("".join(json.dumps({"n": first + at}) + "\n" for at in range(3)))
        feed(f"file://{folder}/*.jsonl", *into)
        feed(f"file://{folder}/*.jsonl", *into)
        shutil.rmtree(folder)
    assert values(into, "n") == [0, 1, 2, 10, 11, 12]


def test_a_stream_needs_a_name(into: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with Client(into[3]) as client:
        client.publish_many("from", [b"1", b"2", b"3"], attributes=[{"n": 1}, {"n": 2}, {"n": 3}])
    log = f"{into[3]}/from"
    assert main(["changes", log, *into]) == 2
    assert "?dataset=NAME" in capsys.readouterr().err
    feed(f"{log}?dataset=from&where=n in 3..3", *into)
    feed(f"{log}?dataset=from&where=n in 1..2", *into)
    assert values(into, "n") == [3, 1, 2]

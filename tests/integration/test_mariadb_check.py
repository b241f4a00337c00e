"""Set-ups of a MariaDB server that cannot be read: each is told with the statement that puts it right, and
that statement does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.servers.mariadb import MariadbServer, free_port, mariadb_server

from qanat.capture.errors import LogUnreachable, NotSetUp
from qanat.capture.url import check, open_chunks, open_reader

pytestmark = pytest.mark.server("mariadb")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    with mariadb_server(tmp_path_factory.mktemp("mariadb")) as started:
        yield started


def wrong(url: str) -> list[tuple[str, str]]:
    return [(finding.what, finding.fix) for finding in check(url) if not finding.ok]


def test_a_sound_set_up_has_nothing_to_change(server: MariadbServer) -> None:
    assert wrong(server.url) == []
    open_reader(server.url).close()


@pytest.mark.parametrize(
    ("setting", "bad", "good"),
    [("binlog_format", "MIXED", "ROW"), ("binlog_row_image", "MINIMAL", "FULL")],
)
def test_a_wrong_setting_is_refused_with_its_statement(
    server: MariadbServer, setting: str, bad: str, good: str
) -> None:
    server.run(f"SET GLOBAL {setting}={bad}")
    ((what, fix),) = wrong(server.url)
    assert what == f"{setting} is {bad}"
    with pytest.raises(NotSetUp, match=f"SET GLOBAL {setting}={good}"):
        open_reader(server.url)
    server.run(fix.partition(",")[0])
    assert wrong(server.url) == []


@pytest.mark.parametrize(
    ("setting", "bad"),
    [("binlog_row_metadata", "NO_LOG"), ("gtid_strict_mode", "OFF"), ("binlog_checksum", "NONE")],
)
def test_what_could_be_better_is_told_and_no_hindrance(server: MariadbServer, setting: str, bad: str) -> None:
    server.run(f"SET GLOBAL {setting}={bad}")
    ((what, fix),) = wrong(server.url)
    assert what.startswith(f"{setting} is {bad}")
    open_reader(server.url).close()
    server.run(fix.partition(",")[0].partition(" keeps")[0].partition(" lets")[0])
    assert wrong(server.url) == []


def test_missing_rights_are_told_with_the_grants_for_the_account_in_use(server: MariadbServer) -> None:
    """The account is of one host: a GRANT to any other names nobody."""
    server.run(
        "CREATE DATABASE IF NOT EXISTS sh_op",
        "CREATE TABLE IF NOT EXISTS sh_op.t (id INT PRIMARY KEY)",
        "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'secret'",
        # Neither of these is what it looks like.
        "GRANT REPLICATION SLAVE ADMIN ON *.* TO reader@'127.0.0.1'",
        "GRANT SELECT ON `sh\\_op2`.* TO reader@'127.0.0.1'",
    )
    url = f"mariadb://reader:secret@127.0.0.1:{server.port}/sh_op"
    log, tables = [finding for finding in check(url) if not finding.ok]
    assert log.needed and "REPLICATION SLAVE and BINLOG MONITOR" in log.what
    assert not tables.needed and "may not read the tables of the database sh_op" in tables.what
    with pytest.raises(NotSetUp, match="TO `reader`@`127"):
        open_reader(url)
    server.run(log.fix)
    assert [finding for finding in check(url) if not finding.ok] == [tables]
    reader = open_reader(url)
    server.run("INSERT INTO sh_op.t VALUES (1)")
    assert len(reader.read(1, 20)) == 1
    reader.close()
    server.run(tables.fix)
    assert wrong(url) == []
    with closing(open_chunks(url)) as chunks:
        assert chunks.tables() == ("sh_op.t",)
    wrong_password = url.replace("secret", "other")
    with pytest.raises(NotSetUp, match="refuses user 'reader'") as caught:
        open_reader(wrong_password)
    assert "other" not in str(caught.value)
    assert "correct user and password" in str(caught.value) and "GRANT" not in str(caught.value)
    assert len(wrong(wrong_password)) == 1


def test_all_that_is_wrong_is_told_at_once(server: MariadbServer) -> None:
    server.run(
        "SET GLOBAL binlog_format=MIXED",
        "SET GLOBAL binlog_row_image=MINIMAL",
        "CREATE USER nobody@'127.0.0.1'",
    )
    try:
        with pytest.raises(NotSetUp) as caught:
            open_reader(f"mariadb://nobody@127.0.0.1:{server.port}/")
    finally:
        server.run("SET GLOBAL binlog_format=ROW", "SET GLOBAL binlog_row_image=FULL")
    for words in ("binlog_format is MIXED", "binlog_row_image is MINIMAL", "TO `nobody`@`127.0.0.1`"):
        assert words in str(caught.value)


def test_a_database_that_is_not_there_is_said(server: MariadbServer) -> None:
    server.run("CREATE DATABASE IF NOT EXISTS shop")
    assert wrong(f"{server.url}shop") == []
    ((what, fix),) = wrong(f"{server.url}shpo")
    assert "there is no database 'shpo'" in what and "correct its name in the URL" in fix


def test_a_server_without_a_log_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    off = dict.fromkeys(("log_bin", "log_slave_updates", "binlog_format", "binlog_row_metadata"))
    with mariadb_server(tmp_path_factory.mktemp("mariadb"), **off) as server:
        assert (
            "log_bin is OFF",
            "write log_bin=mariadb-bin under [mariadbd] in the server's configuration, and restart it",
        ) in wrong(server.url)
        with pytest.raises(NotSetUp, match="log_bin is OFF"):
            open_reader(server.url)


def test_a_server_that_is_not_there_is_said() -> None:
    url = f"mariadb://root@127.0.0.1:{free_port()}/"
    with pytest.raises(LogUnreachable, match="cannot be read"):
        open_reader(url)
    assert len(wrong(url)) == 1

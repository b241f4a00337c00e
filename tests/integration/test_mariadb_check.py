"""Set-ups of a MariaDB server that cannot be read: each is told with the statement that puts it right, and that statement does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.mariadb import MariadbServer, free_port, mariadb_server

from qanat.capture.errors import LogUnreachable, NotSetUp
from qanat.capture.url import check, open_reader

pytestmark = [pytest.mark.server("mariadb"), pytest.mark.timeout(400)]


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


def test_missing_rights_are_refused_with_the_grant(server: MariadbServer) -> None:
    server.run("CREATE USER reader@'%' IDENTIFIED BY 'secret'")
    url = f"mariadb://reader:secret@127.0.0.1:{server.port}/"
    ((what, fix),) = wrong(url)
    assert "REPLICATION SLAVE and BINLOG MONITOR" in what
    with pytest.raises(NotSetUp, match="GRANT REPLICATION SLAVE, BINLOG MONITOR"):
        open_reader(url)
    server.run(fix)
    assert wrong(url) == []
    reader = open_reader(url)
    server.run(
        "CREATE DATABASE IF NOT EXISTS shop", "CREATE TABLE shop.t (id INT)", "INSERT INTO shop.t VALUES (1)"
    )
    assert len(reader.read(1, 20)) == 1
    reader.close()
    wrong_password = url.replace("secret", "other")
    with pytest.raises(NotSetUp, match="refuses user 'reader'") as caught:
        open_reader(wrong_password)
    assert "other" not in str(caught.value)
    assert "correct user and password" in str(caught.value) and "GRANT" not in str(caught.value)
    assert len(wrong(wrong_password)) == 1


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

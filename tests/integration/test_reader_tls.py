"""Encrypted connections to a real MariaDB and a real PostgreSQL, whose certificates an authority of the
test's own has signed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.servers.certificates import Certificate, authority, signed
from tests.servers.mariadb import MariadbServer, mariadb_server
from tests.servers.postgres import PostgresServer, postgres_server

from qanat.capture import Updates
from qanat.capture.errors import BadLogUrl, NotSetUp
from qanat.capture.url import check, open_chunks, open_reader


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def trusted(folder: Path) -> Certificate:
    return authority(folder)


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Certificate:
    return authority(folder, "stranger")


def read(url: str) -> list[object]:
    """What is inserted while a reader is open, by it; and by a snapshot."""
    with closing(open_reader(url)) as reader, closing(open_chunks(url)) as chunks:
        reader.seek("earliest")
        chunk = chunks.chunk(next(path for path in chunks.tables() if path.endswith(".t")), None, 10)
        found = reader.read(10, 10)
        assert isinstance(found, Updates)
        assert chunk.rows.after is not None
        assert chunk.rows.after.column("id").to_pylist() == [
            update.after["id"] for update in found.rows() if update.after
        ]
        return [update.after["id"] for update in found.rows() if update.after]


# --- MariaDB


@pytest.fixture(scope="module")
def maria(
    tmp_path_factory: pytest.TempPathFactory, folder: Path, trusted: Certificate
) -> Iterator[MariadbServer]:
    mine = signed(folder, trusted, "maria")
    options = {"ssl_cert": str(mine.cert), "ssl_key": str(mine.key), "ssl_ca": str(trusted.cert)}
    with mariadb_server(tmp_path_factory.mktemp("maria"), **options) as server:
        server.run("CREATE USER ann@'%' IDENTIFIED BY 'secret' REQUIRE SSL", "GRANT ALL ON *.* TO ann@'%'")
        server.run("CREATE USER bob@'%' REQUIRE X509", "GRANT ALL ON *.* TO bob@'%'")
        server.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
        )
        yield server


def of_maria(server: MariadbServer, **options: object) -> str:
    words = "&".join(f"{name}={value}" for name, value in options.items())
    return f"mariadb://ann:secret@127.0.0.1:{server.port}/shop?{words}"


@pytest.mark.server("mariadb")
def test_mariadb_is_read_encrypted(maria: MariadbServer, trusted: Certificate) -> None:
    # The user may not come without, neither for questions nor for the log.
    with pytest.raises(NotSetUp, match="refuses user 'ann'"):
        open_reader(of_maria(maria))
    for options in ({"ssl_ca": trusted.cert}, {"ssl": "on", "ssl_ca": trusted.cert}, {"ssl_verify": "no"}):
        assert read(of_maria(maria, **options)) == [1]
    assert not any(finding.wrong for finding in check(of_maria(maria, ssl_ca=trusted.cert)))


@pytest.mark.server("mariadb")
def test_mariadb_that_is_not_who_it_should_be_is_refused(
    maria: MariadbServer, stranger: Certificate, trusted: Certificate
) -> None:
    for options in ({"ssl_ca": stranger.cert}, {"ssl": "on"}, {"ssl": "on", "ssl_verify": "ca"}):
        with pytest.raises(
            NotSetUp,
            match=(
                r"certificate of the MariaDB server .* is not accepted: self-signed certificate in"
                r" certificate chain"
            ),
        ):
            open_reader(of_maria(maria, **options))
        (finding,) = check(of_maria(maria, **options))
        assert not finding.ok
        assert "ssl_ca=" in finding.what
        assert "GRANT" not in finding.fix
    with pytest.raises(NotSetUp, match="not valid for 'localhost'"):
        open_reader(of_maria(maria, ssl_ca=trusted.cert).replace("127.0.0.1", "localhost"))
    assert read(of_maria(maria, ssl_ca=trusted.cert, ssl_verify="ca").replace("127.0.0.1", "localhost")) == [
        1
    ]


@pytest.mark.server("mariadb")
def test_mariadb_that_wants_a_certificate_of_its_client(
    maria: MariadbServer, trusted: Certificate, folder: Path
) -> None:
    url = of_maria(maria, ssl_ca=trusted.cert).replace("ann:secret", "bob")
    with pytest.raises(NotSetUp, match="refuses user 'bob'"):
        open_reader(url)
    mine = signed(folder, trusted, "bob")
    assert read(f"{url}&ssl_cert={mine.cert}&ssl_key={mine.key}") == [1]


@pytest.mark.server("mariadb")
def test_mariadb_without_encryption_is_refused_if_it_was_asked_for(tmp_path: Path) -> None:
    with (
        mariadb_server(tmp_path, skip_ssl="1") as server,
        pytest.raises(NotSetUp, match=r"cannot be encrypted: SSL is required"),
    ):
        open_reader(f"{server.url}?ssl=on")


# --- PostgreSQL


@pytest.fixture(scope="module")
def postgres(folder: Path, trusted: Certificate) -> Iterator[PostgresServer]:
    mine = signed(folder, trusted, "postgres")
    with postgres_server() as server:
        for path in mine:
            there = server.data / path.name
            shutil.copyfile(path, there)
            there.chmod(0o600)
            shutil.chown(there, server.data.owner(), server.data.group())
        (server.data / "pg_hba.conf").write_text(
            "hostnossl all postgres 127.0.0.1/32 trust\nhostssl all ann 127.0.0.1/32 trust\nhostssl"
            " replication ann 127.0.0.1/32 trust\n"
        )
        server.stop()
        server.start(ssl="on", ssl_cert_file=mine.cert.name, ssl_key_file=mine.key.name)
        server.run("CREATE ROLE ann SUPERUSER LOGIN", "CREATE TABLE t (id int PRIMARY KEY)")
        with closing(open_reader(server.url, create=True)):
            server.run("INSERT INTO t VALUES (1)")
        yield server


def of_postgres(server: PostgresServer, **options: object) -> str:
    words = "&".join(f"{name}={value}" for name, value in options.items())
    return f"postgresql://ann@127.0.0.1:{server.port}/postgres?{words}"


@pytest.mark.server("postgres")
def test_postgresql_is_read_encrypted(postgres: PostgresServer, trusted: Certificate) -> None:
    with pytest.raises(Exception, match="no encryption"):
        open_reader(of_postgres(postgres, ssl="off"))
    for options in (
        {"sslrootcert": trusted.cert},
        {"ssl": "on", "sslrootcert": trusted.cert},
        {"sslmode": "require"},
    ):
        assert read(of_postgres(postgres, **options)) == [1]
    assert not any(finding.wrong for finding in check(of_postgres(postgres, sslrootcert=trusted.cert)))


@pytest.mark.server("postgres")
def test_postgresql_that_is_not_who_it_should_be_is_refused(
    postgres: PostgresServer, stranger: Certificate, trusted: Certificate
) -> None:
    for options in (
        {"sslrootcert": stranger.cert},
        {"ssl": "on"},
        {"sslmode": "verify-ca", "sslrootcert": stranger.cert},
    ):
        with pytest.raises(NotSetUp, match=r"not encrypted as was asked: .*certificate verify failed"):
            open_reader(of_postgres(postgres, **options))
    elsewhere = of_postgres(postgres, sslrootcert=trusted.cert).replace("127.0.0.1", "localhost")
    with pytest.raises(NotSetUp, match="does not match host name"):
        open_reader(elsewhere)
    assert read(f"{elsewhere}&sslmode=verify-ca") == [1]


@pytest.mark.server("postgres")
def test_postgresql_without_encryption_is_refused_if_it_was_asked_for() -> None:
    with postgres_server() as server, pytest.raises(NotSetUp, match="server does not support SSL"):
        open_reader(f"{server.url}?ssl=on")


# --- words


@pytest.mark.parametrize(
    ("scheme", "words", "reason"),
    [
        ("mariadb", "ssl=maybe", "it is on or off"),
        ("mariadb", "ssl=off&ssl_verify=ca", "ssl is off, but there is ssl_verify"),
        ("mariadb", "ssl_verify=some", "it is identity, ca or no"),
        ("mariadb", "ssl_ca=/nowhere.pem", "ssl_ca=/nowhere.pem cannot be read: No such file"),
        ("mariadb", "ssl_key=/nowhere.pem", "no ssl_cert that it is of"),
        ("mariadb", "ssl_ca=EMPTY", "cannot be used"),
        ("postgresql", "ssl=on&sslmode=require", "both ssl and sslmode"),
        ("postgresql", "ssl=off&sslrootcert=x", "ssl is off, but there is sslrootcert"),
        ("postgresql", "sslrootcert=/nowhere.pem", "there is no such file"),
    ],
)
def test_wrong_words_are_said(scheme: str, words: str, reason: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    calls: tuple[Callable[..., object], ...] = (open_reader, open_chunks, check)
    for call in calls:
        with pytest.raises(BadLogUrl, match=reason):
            call(f"{scheme}://127.0.0.1:1/x?{words.replace('EMPTY', str(empty))}")

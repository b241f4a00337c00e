"""Snapshots of MariaDB tables while others write, against a real server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.servers.mariadb import MariadbServer, mariadb_server

from qanat.capture import Op, Updates
from qanat.capture.errors import NotSetUp
from qanat.capture.mariadb.connection import Server
from qanat.capture.mariadb.reader import MariadbReader
from qanat.capture.mariadb.snapshot import MariadbChunks
from qanat.capture.snapshot import Progress, Step, snapshot
from qanat.capture.url import parse_log_url
from qanat_workshop.samples.mariadb import events_of, sample

pytestmark = pytest.mark.server("mariadb")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    with mariadb_server(tmp_path_factory.mktemp("mariadb")) as started:
        started.run("CREATE DATABASE shop CHARACTER SET utf8mb4")
        yield started


def log_server(server: MariadbServer) -> Server:
    return Server.of(parse_log_url(server.url), {})


class Writers:
    """Threads that change a table without end, with inserts, updates of keys and deletions, in transactions
    of several rows."""

    def __init__(self, server: MariadbServer, seed: int) -> None:
        self._stop = threading.Event()
        self._server = server
        self._threads = [threading.Thread(target=self._write, args=(seed + number,)) for number in range(2)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        connection = self._server.connect()
        with connection.cursor() as cursor:
            while not self._stop.is_set():
                cursor.execute("SET innodb_lock_wait_timeout=1")
                try:
                    cursor.execute("BEGIN")
                    for _ in range(chance.randint(1, 4)):
                        key = chance.randint(0, 400)
                        cursor.execute(
                            chance.choice(
                                [
                                    (
                                        f"REPLACE INTO shop.t VALUES ({key}, '{key % 3}',"
                                        f" {chance.randint(0, 10**9)})"
                                    ),
                                    f"UPDATE IGNORE shop.t SET a = a + 1 WHERE a = {key}",
                                    f"UPDATE shop.t SET v = v + 1 WHERE a BETWEEN {key} AND {key + 5}",
                                    f"DELETE FROM shop.t WHERE a = {key}",
                                ]
                            )
                        )
                    cursor.execute("COMMIT")
                except Exception as error:
                    if "try restarting" not in str(
                        error
                    ):  # a deadlock between the writers, or a wait for a lock
                        raise
                    cursor.execute("ROLLBACK")
        connection.close()


Rows = dict[tuple[int, str], int]


def apply(rows: Rows, updates: Updates) -> None:
    for update in updates.rows():
        if update.before is not None:
            rows.pop((update.before["a"], update.before["b"]), None)
        if update.after is not None:
            rows[update.after["a"], update.after["b"]] = update.after["v"]


@pytest.mark.paper("W1")
def test_the_result_is_the_table_while_others_write_and_the_snapshot_is_resumed(
    server: MariadbServer,
) -> None:
    server.run(
        "CREATE TABLE shop.t (a INT, b VARCHAR(9), v BIGINT, PRIMARY KEY (a, b))",
        "INSERT INTO shop.t SELECT seq, seq % 3, 0 FROM shop.seq_1_to_400",
    )
    chance = random.Random(5)
    rows: Rows = {}
    resumed = 0
    with Writers(server, 7):
        reader = MariadbReader(log_server(server), database="shop")
        progress = Progress(reader.latest(), ("shop.t",))
        reader.close()
        while not progress.done:
            reader = MariadbReader(log_server(server), database="shop")
            chunks = MariadbChunks(log_server(server))
            for step in snapshot(reader, chunks, progress, chunk_rows=20, rows_per_s=2000):
                apply(rows, step.updates)
                progress = Progress.from_json(step.progress.to_json())
                if step.is_chunk and chance.random() < 0.5:
                    break
            chunks.close()
            reader.close()
            resumed += 1
    reader = MariadbReader(log_server(server), database="shop")
    reader.seek(progress.position)
    latest = reader.latest()
    deadline = time.monotonic() + 60
    while progress.position < latest:
        assert time.monotonic() < deadline
        part = reader.read(1000, 1)
        assert isinstance(part, Updates)
        apply(rows, part)
        progress = Progress(part.upto or progress.position, ())
    reader.close()
    assert resumed > 3
    assert rows == {(a, b): v for a, b, v in server.run("SELECT a, b, v FROM shop.t")}


def statement_of_sample(word: bytes) -> str:
    """A statement of the sample's log."""
    found = next(bytes(event) for event in events_of(sample()) if word in bytes(event))
    return found[found.index(word) : -4].decode()


def test_rows_have_the_types_that_the_log_gives_them(server: MariadbServer) -> None:
    server.run(statement_of_sample(b"create table shop.everything"))
    reader = MariadbReader(log_server(server), database="shop")
    server.run("SET SESSION time_zone='+00:00'", INSERT, "INSERT INTO shop.everything (id) VALUES (2)")
    logged: list[Any] = []
    while len(logged) < 2:
        part = reader.read(10, 5)
        assert isinstance(part, Updates)
        logged += part.rows()
    chunks = MariadbChunks(log_server(server))
    steps: list[Step] = list(snapshot(reader, chunks, Progress(reader.latest(), ("shop.everything",))))
    (step,) = [step for step in steps if step.is_chunk]
    found = list(step.updates.rows())
    assert [update.op for update in found] == [Op.READ, Op.READ]
    assert [update.after for update in found] == [update.after for update in logged]
    assert [c.name for c in found[0].table.columns] == [c.name for c in logged[0].table.columns]
    assert found[0].table.arrow == logged[0].table.arrow
    assert [c.declared for c in found[0].table.columns] == [c.declared for c in logged[0].table.columns]
    assert found[0].table == logged[0].table
    chunks.close()
    reader.close()


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("VARCHAR(9) CHARACTER SET latin1", ["a'b", "é", "\\", "z z", "0x00", ""]),
        ("VARBINARY(9)", [b"\0", b"a'", b"\xff\xfe", b"\\"]),
        ("DATETIME(3)", ["2020-01-01 00:00:00.001", "2020-01-01 00:00:00.002", "1999-12-31 23:59:59"]),
        ("BIGINT UNSIGNED", [0, 2**64 - 1, 2**63, 2**53 + 1, 2**53]),
        ("UUID", ["123e4567-e89b-12d3-a456-426655440000", "00000000-0000-0000-0000-000000000001"]),
        ("DECIMAL(20,3)", ["-1.5", "99999999999999999.999", "0.001"]),
    ],
)
def test_chunks_of_one_row_have_every_key_once(server: MariadbServer, key: str, values: list[Any]) -> None:
    server.run(f"CREATE OR REPLACE TABLE shop.k (id {key} PRIMARY KEY, n INT)")
    connection = server.connect()
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO shop.k VALUES (%s, %s)", [(value, n) for n, value in enumerate(values)]
        )
    connection.close()
    reader = MariadbReader(log_server(server), database="shop")
    chunks = MariadbChunks(log_server(server))
    found = [
        update.after["n"]
        for step in snapshot(reader, chunks, Progress(reader.latest(), ("shop.k",)), chunk_rows=1)
        for update in step.updates.rows()
        if update.after
    ]
    assert sorted(found) == list(range(len(values)))
    chunks.close()
    reader.close()


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ("(v INT)", "ADD PRIMARY KEY"),
        ("(v INT PRIMARY KEY) ENGINE=MyISAM", "ENGINE=InnoDB"),
        ("(v ENUM('b','a') PRIMARY KEY)", "no order"),
    ],
)
def test_a_table_that_has_no_chunks_is_refused(server: MariadbServer, definition: str, told: str) -> None:
    server.run(f"CREATE OR REPLACE TABLE shop.n {definition}")
    chunks = MariadbChunks(log_server(server))
    assert "shop.n" in chunks.tables("shop")
    with pytest.raises(NotSetUp, match=told):
        chunks.chunk("shop.n", None, 10)
    with pytest.raises(NotSetUp, match="there is no table"):
        chunks.chunk("shop.nothing", None, 10)
    chunks.close()


INSERT = """insert into shop.everything values (1,-128,255,-32768,65535,-8388608,16777215,4294967295,-9223372036854775808,
18446744073709551615,1.1,-2.3,-12345678.91,12345678901234567890123456789012345.123456789012345678901234567890,
-99999999999999999999,-0.12345,123456789.123456789,'2024-02-29','-838:59:59','12:34:56.789','-00:00:00.000001',
'1000-01-01 00:00:00','2024-12-31 23:59:59.99','9999-12-31 23:59:59.999999','2038-01-19 03:14:07','2001-01-01
00:00:00.5', '2024-01-01 00:00:00.000001',2155,b'1',b'101010101010',18446744073709551615,'ü','x,z','añb
','z','','é','é',x'61620000',x'', x'00',x'ff','m','l','tt','tx','mt','lt','{"a":
1}',point(1,2),point(3,4),'123e4567-e89b-12d3-a456-426655440000','::1',
repeat('ab',100),repeat('cd',200))"""  # noqa: E501

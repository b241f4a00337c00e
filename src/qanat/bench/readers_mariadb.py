"""How fast MariaDB's log is read, beside the bare library on the same log, and how soon after a commit."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from qanat.bench.reader_figures import COMMITS, beside, commit_to_update, in_rounds, rows_per_s
from qanat.capture.mariadb.positions import LAST_INDEX
from qanat.capture.url import open_reader
from qanat.events.position import Position
from qanat_workshop.mariadb_server import MariadbServer, mariadb_server

DESCRIPTION = (
    "MariaDB's binlog in rows/s beside mysql-replication, in bulk and of one-row transactions; commit to"
    " update"
)
BULK_ROWS = 200_000
"""By one statement: many rows in an event."""
SINGLE_ROWS = 20_000
"""Each in a transaction of its own: four events to a row."""
BARE_SHARE = 5
"""The bare library reads only so small a part of the same log, since it takes so much longer."""
ROW = "{k}, {k} * 7, REPEAT('v', {k} % 40), {k} / 100, '2026-01-01 00:00:00.123', REPEAT('w', 30)"
TABLE = (
    "CREATE TABLE shop.rows (k INT PRIMARY KEY, a BIGINT, b VARCHAR(40), p DECIMAL(10,2), t DATETIME(3), c"
    " VARCHAR(40)) CHARACTER SET utf8mb4"
)


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, which all read the same log; the two readers take turns."""
    folder = Path(tempfile.mkdtemp(prefix="qanat-bench-"))
    try:
        with mariadb_server(folder, innodb_flush_log_at_trx_commit="0") as server:
            places = _fill(server)
            return in_rounds(
                rounds, lambda number: _rates(server, *places, number) | _latency(server, number), say
            )
    finally:
        shutil.rmtree(folder)


def _fill(server: MariadbServer) -> tuple[str, str]:
    """The GTIDs before the two parts of the log."""
    server.run("CREATE DATABASE shop", TABLE)
    ((bulk,),) = server.run("SELECT @@gtid_binlog_pos")
    server.run(f"INSERT INTO shop.rows SELECT {ROW.format(k='seq')} FROM shop.seq_1_to_{BULK_ROWS}")
    ((single,),) = server.run("SELECT @@gtid_binlog_pos")
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for key in range(10**6, 10**6 + SINGLE_ROWS):
            cursor.execute(f"INSERT INTO shop.rows VALUES ({ROW.format(k=key)})")
    return bulk, single


def _rates(server: MariadbServer, bulk: str, single: str, number: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, after, rows in (("mariadb", bulk, BULK_ROWS), ("mariadb_single", single, SINGLE_ROWS)):
        ours = partial(_read, server, after, rows)
        figures |= beside(
            name, f"{name}_bare", ours, partial(_read_bare, server, after, rows // BARE_SHARE), number
        )
    return figures


def _read(server: MariadbServer, after: str, rows: int) -> float:
    with closing(open_reader(server.url)) as reader:
        reader.seek(Position(int(after.split("-")[2]), LAST_INDEX))
        return rows_per_s(reader, rows)


def _read_bare(server: MariadbServer, after: str, rows: int) -> float:
    """`mysql-replication` as its documentation shows it, its rows counted and left alone."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import WriteRowsEvent

    login = {"host": "127.0.0.1", "port": server.port, "user": "root", "passwd": ""}
    stream = BinLogStreamReader(
        connection_settings=login,
        server_id=4_000_000,
        is_mariadb=True,
        auto_position=after,
        only_events=[WriteRowsEvent],
        blocking=True,
    )
    try:
        began = time.perf_counter()
        got = 0
        for event in stream:
            got += len(event.rows)
            if got >= rows:
                break
        return got / (time.perf_counter() - began)
    finally:
        stream.close()


def _latency(server: MariadbServer, number: int) -> dict[str, float]:
    first = 10**8 + number * COMMITS
    with (
        closing(open_reader(server.url)) as reader,
        closing(server.connect()) as connection,
        connection.cursor() as cursor,
    ):
        statement = "INSERT INTO shop.rows VALUES ({row})"
        return commit_to_update(
            "mariadb", reader, lambda row: cursor.execute(statement.format(row=ROW.format(k=first + row)))
        )

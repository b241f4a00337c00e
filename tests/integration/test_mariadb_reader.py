"""The MariaDB reader against a real server: resumes at any row, the forms that a log may have, and set-ups
that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.mariadb_reading import log_server, read_all, reader_of
from tests.servers.mariadb import MariadbServer, mariadb_server

from qanat.capture import LogReader, Op, Updates
from qanat.capture.errors import MalformedLog, NotSetUp
from qanat.capture.mariadb.positions import Place, place_of, position_at
from qanat.capture.mariadb.reader import MariadbReader
from qanat.capture.updates import Update
from qanat.events.errors import RemoteError
from qanat.events.position import Position

pytestmark = pytest.mark.server("mariadb")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    with mariadb_server(tmp_path_factory.mktemp("mariadb")) as started:
        yield started


_numbers = count()


@pytest.fixture
def database(server: MariadbServer) -> str:
    name = f"d{next(_numbers)}"
    server.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


Rows = dict[Any, dict[str, Any]]


def apply(rows: Rows, updates: list[Update]) -> None:
    for update in updates:
        if update.op is Op.TRUNCATE:
            rows.clear()
            continue
        if update.before is not None:
            had = rows.pop(update.before["id"])
            assert had.items() <= update.before.items()
        if update.after is not None:
            assert update.after["id"] not in rows
            rows[update.after["id"]] = update.after


def in_datastore(server: MariadbServer, table: str) -> Rows:
    names = [row[0] for row in server.run(f"DESCRIBE {table}")]
    return {row[0]: dict(zip(names, row, strict=True)) for row in server.run(f"SELECT * FROM {table}")}


KEYS = st.integers(1, 8)
TEXTS = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6))
CHANGES = st.one_of(
    st.tuples(st.just("REPLACE INTO {t} (id, v) VALUES (%s, %s)"), st.tuples(KEYS, TEXTS)),
    st.tuples(st.just("UPDATE {t} SET v = %s WHERE id >= %s"), st.tuples(TEXTS, KEYS)),
    st.tuples(st.just("UPDATE IGNORE {t} SET id = id + 8 WHERE id = %s"), st.tuples(KEYS)),
    st.tuples(st.just("DELETE FROM {t} WHERE id <= %s"), st.tuples(KEYS)),
    st.tuples(st.just("INSERT INTO {o} (v) VALUES (%s)"), st.tuples(TEXTS)),
)
ALTERS = st.one_of(
    st.tuples(st.just("ALTER TABLE {t} ADD COLUMN c{n} BIGINT UNSIGNED"), st.just(())),
    st.tuples(st.just("ALTER TABLE {t} MODIFY COLUMN v VARCHAR(300)"), st.just(())),
    st.tuples(st.just("TRUNCATE TABLE {t}"), st.just(())),
    st.tuples(st.just("FLUSH BINARY LOGS"), st.just(())),
)
TRANSACTIONS = st.lists(
    st.one_of(
        st.lists(CHANGES, min_size=1, max_size=5),
        st.lists(CHANGES, min_size=1, max_size=5),
        st.lists(ALTERS, min_size=1, max_size=1),
    ),
    min_size=8,
    max_size=25,
)


@pytest.mark.paper("W1")
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(transactions=TRANSACTIONS, limits=st.lists(st.integers(1, 4), min_size=1), by_row=st.booleans())
def test_resumed_after_every_read_the_table_is_rebuilt(
    server: MariadbServer,
    transactions: list[list[tuple[str, tuple[Any, ...]]]],
    limits: list[int],
    by_row: bool,
) -> None:
    name = f"h{next(_numbers)}"
    server.run(
        f"CREATE DATABASE {name} CHARACTER SET utf8mb4",
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"CREATE TABLE {name}.o (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))",
    )
    reader = reader_of(server, name)
    position = reader.latest()
    connection = server.connect()
    with connection.cursor() as cursor:
        for number, statements in enumerate(transactions):
            cursor.execute("BEGIN")
            for statement, arguments in statements:
                cursor.execute(statement.format(t=f"{name}.t", o=f"{name}.o", n=number), arguments or None)
            cursor.execute("COMMIT")
    connection.close()
    latest = reader.latest()
    reader.close()
    rows: Rows = {}
    others: Rows = {}
    resumed = 0
    while position < latest:  # each part by a reader that knows nothing but the position
        reader = reader_of(server, name)
        reader.seek(position)
        part = reader.read(limits[resumed % len(limits)], 5)
        reader.close()
        assert isinstance(part, Updates)
        assert part.upto is not None
        apply(rows, [u for u in part.rows() if u.table.name == "t"])
        apply(others, [u for u in part.rows() if u.table.name == "o"])
        position = part.runs[-1].position(-1) if by_row and part and part.upto < latest else part.upto
        resumed += 1
    names = [row[0] for row in server.run(f"DESCRIBE {name}.t")]
    filled = {
        key: dict.fromkeys(names) | row for key, row in rows.items()
    }  # columns added later are null in older rows
    assert filled == in_datastore(server, f"{name}.t")
    assert others == in_datastore(server, f"{name}.o")


@pytest.mark.paper("W1")
def test_a_resume_at_any_row_loses_and_repeats_nothing(server: MariadbServer, database: str) -> None:
    table = f"{database}.t"
    server.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))")
    reader = reader_of(server, database)
    start = reader.latest()
    for turn in range(3):
        server.run(
            "BEGIN",
            f"INSERT INTO {table} SELECT seq, 'new' FROM {database}.seq_{turn * 10 + 1}_to_{turn * 10 + 10}",
            f"UPDATE {table} SET v = 'old' WHERE id % 2",
            "COMMIT",
            "FLUSH BINARY LOGS",
        )
    reader.seek(start)
    everything = read_all(reader)
    assert len(everything) == 3 * 10 + 5 + 5 + 5  # rows that are already 'old' are not changed
    for at, update in enumerate(everything):
        reader.seek(update.position)
        rest = read_all(reader, limit=7) if at < len(everything) - 1 else []
        assert rest == everything[at + 1 :]
    reader.close()


def test_checksums_may_be_switched_while_the_log_is_written(server: MariadbServer, database: str) -> None:
    server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    reader = reader_of(server, database)
    start = reader.latest()
    for key, checksum in enumerate(("NONE", "CRC32", "NONE", "CRC32")):
        server.run(f"SET GLOBAL binlog_checksum={checksum}", f"INSERT INTO {database}.t VALUES ({key})")
    found = read_all(reader)
    assert [u.after for u in found] == [{"id": key} for key in range(4)]
    for update in found[:-1]:
        reader.seek(update.position)
        assert read_all(reader) == [u for u in found if u.position > update.position]
    reader.seek(start)
    assert read_all(reader) == found
    assert isinstance(reader, MariadbReader)
    assert reader.place[0] == server.run("SHOW MASTER STATUS")[0][0]
    reader.close()


def test_an_encrypted_log_is_read(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("1;770A8A65DA156D24EE2A093277530142\n")
    options = {
        "plugin_load_add": "file_key_management",
        "file_key_management_filename": str(keys),
        "encrypt_binlog": "ON",
    }
    with mariadb_server(tmp_path / "a", **options) as server:
        server.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
            "FLUSH BINARY LOGS",
        )
        server.run("INSERT INTO shop.t VALUES (2)")
        reader = reader_of(server)
        reader.seek("earliest")
        assert [u.after for u in read_all(reader)] == [{"id": 1}, {"id": 2}]
        reader.close()


def test_two_readers_read_at_once(server: MariadbServer, database: str) -> None:
    server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    readers = [reader_of(server, database) for _ in range(2)]
    server.run(f"INSERT INTO {database}.t VALUES (1), (2), (3)")
    found: list[list[Update]] = [[], []]
    while len(found[0]) < 3 or len(found[1]) < 3:
        for reader, had in zip(readers, found, strict=True):
            part = reader.read(1, 1)
            assert isinstance(part, Updates)
            had += part.rows()
    assert found[0] == found[1]
    for reader in readers:
        reader.close()


def test_a_transaction_larger_than_what_is_held_comes_in_parts(server: MariadbServer, database: str) -> None:
    server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(200))")
    reader = reader_of(server, database, hold_bytes=100_000)
    start = reader.latest()
    server.run(f"INSERT INTO {database}.t SELECT seq, REPEAT('v', 200) FROM {database}.seq_1_to_10000")
    reader.seek(start)
    found = read_all(reader, 100_000)
    assert [u.after["id"] for u in found if u.after] == list(range(1, 10_001))
    assert [u.position.index for u in found] == list(range(10_000))
    reader.close()


def test_compressed_logs_are_read(server: MariadbServer, database: str) -> None:
    server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v TEXT)")
    reader = reader_of(server, database)
    server.run("SET GLOBAL log_bin_compress=ON")
    try:
        server.run(f"INSERT INTO {database}.t SELECT seq, REPEAT('v', 1000) FROM {database}.seq_1_to_100")
    finally:
        server.run("SET GLOBAL log_bin_compress=OFF")
    assert [u.after for u in read_all(reader)] == [{"id": n, "v": "v" * 1000} for n in range(1, 101)]
    reader.close()


def test_columns_are_named_by_the_catalogue_while_it_can_be_trusted(
    server: MariadbServer, database: str
) -> None:
    table = f"{database}.t"
    created = (
        f"CREATE TABLE {table} (id INT UNSIGNED PRIMARY KEY, e ENUM('it''s','b'), l VARCHAR(9) CHARACTER SET"
        " latin1, u BIGINT UNSIGNED)"
    )
    server.run(created, "SET GLOBAL binlog_row_metadata=NO_LOG")
    try:
        reader = reader_of(server, database)
        start = reader.latest()
        server.run(f"INSERT INTO {table} VALUES (4000000000, 'it''s', 'é', 18446744073709551615)")
        expected = {"id": 4000000000, "e": "it's", "l": "é", "u": 2**64 - 1}
        (update,) = read_all(reader)
        assert update.after == expected
        assert update.table.key == ("id",)
        server.run(
            f"ALTER TABLE {table} RENAME COLUMN l TO m", f"INSERT INTO {table} VALUES (1, 'b', 'x', 0)"
        )
        (update,) = read_all(reader)
        assert update.after == {"id": 1, "e": "b", "m": "x", "u": 0}
        reader.seek(start)  # the row before the ALTER: its names are not known any more
        with pytest.raises(RemoteError, match="binlog_row_metadata=FULL"):
            read_all(reader)
        reader.close()
    finally:
        server.run("SET GLOBAL binlog_row_metadata=FULL")


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (["SET SESSION binlog_format=STATEMENT", "INSERT INTO {t} VALUES (1)"], "binlog_format=ROW"),
        (["SET SESSION binlog_row_image=MINIMAL", "UPDATE {t} SET id=9"], "binlog_row_image=FULL"),
        (
            ["XA START 'x'", "INSERT INTO {t} VALUES (2)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"],
            "XA transaction",
        ),
    ],
)
def test_what_cannot_be_read_rightly_is_refused(
    server: MariadbServer, database: str, statements: list[str], told: str
) -> None:
    table = f"{database}.t"
    server.run(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT DEFAULT 7)", f"INSERT INTO {table} (id) VALUES (77)"
    )
    reader = reader_of(server, database)
    server.run(
        *[statement.format(t=table + (" (id)" if "INSERT" in statement else "")) for statement in statements]
    )
    for _ in range(2):  # and again: nothing is passed over
        with pytest.raises(RemoteError, match=told):
            read_all(reader)
    reader.close()


POISON = [
    ["INSERT INTO {t} VALUES (1, 'a'), (2, _hebrew X'A1'), (3, 'c')"],
    ["UPDATE {t} SET v = 'b' WHERE id = 2"],
    ["SET SESSION binlog_format=STATEMENT", "INSERT INTO {t} VALUES (4, 'd')"],
    ["SET SESSION binlog_row_image=MINIMAL", "UPDATE {t} SET v = 'e' WHERE id = 1"],
    ["XA START 'x'", "INSERT INTO {t} VALUES (5, 'f')", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"],
    ["INSERT INTO {t} VALUES (6, 'g')"],
]


def until(reader: LogReader, end: Position, limit: int) -> tuple[list[Update], list[MalformedLog]]:
    """All that can be read up to there, and what cannot."""
    found: list[Update] = []
    left_out: list[MalformedLog] = []
    upto = Position(0)
    while upto < end:
        try:
            part = reader.read(limit, 10)
            assert isinstance(part, Updates) and part.upto is not None
            found += part.rows()
            upto = part.upto
        except MalformedLog as error:
            assert error.resume is not None
            left_out.append(error)
            reader.seek(error.resume)
            upto = error.resume
    return found, left_out


def test_what_cannot_be_decoded_is_left_out_by_whoever_seeks_to_behind_it(
    server: MariadbServer, database: str
) -> None:
    table = f"{database}.t"
    server.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET hebrew)")
    reader = reader_of(server, database)
    start = reader.latest()
    for statements in POISON:
        server.run(*[statement.format(t=table) for statement in statements])
    end, first = reader.latest(), start.sequence + 1
    found: list[Update] = []
    left_out: list[MalformedLog] = []
    for limit in (1, 1000):
        reader.seek(start)
        found, left_out = until(reader, end, limit)
        assert [one.after for one in found] == [{"id": 1, "v": "a"}, {"id": 3, "v": "c"}, {"id": 6, "v": "g"}]
        assert [one.position for one in left_out] == [
            Position(first, 1),
            *(Position(first + transaction, 0) for transaction in range(1, 6)),
        ]
    told = list(
        zip(
            left_out,
            ("character set", "character set", "STATEMENT|as a statement", "FULL", "XA", "XA"),
            strict=True,
        )
    )
    assert all(re.search(why, str(error)) for error, why in told), told
    row = b"\xfc\x02\0\0\0\1\xa1"
    assert [one.original for one in left_out][:2] == [row, row + b"\xfc\x02\0\0\0\1b"]
    assert all(
        word in one.original
        for one, word in zip(left_out[2:], (b"(4, 'd')", b"e", b"f", b"XA COMMIT"), strict=True)
    )
    reader.close()
    # Whoever begins behind one of them has all the rest, and nothing else.
    for at, error in enumerate(left_out):
        reader = reader_of(server, database)
        assert error.resume is not None
        reader.seek(error.resume)
        rest, again = until(reader, end, 1000)
        assert [one.position for one in rest] == [
            one.position for one in found if one.position > error.resume
        ]
        assert [one.position for one in again] == [one.position for one in left_out[at + 1 :]]
        reader.close()


def test_domains_are_read_one_by_one(tmp_path: Path) -> None:
    with mariadb_server(tmp_path) as server:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        server.run(
            "SET SESSION gtid_domain_id=5", "INSERT INTO shop.t VALUES (1)", "INSERT INTO shop.t VALUES (2)"
        )
        server.run("INSERT INTO shop.t VALUES (3)")
        with pytest.raises(NotSetUp, match="domains 0, 5"):
            reader_of(server)
        for domain, keys in ((0, [3]), (5, [1, 2])):
            reader = reader_of(server, domain=domain)
            reader.seek("earliest")
            assert reader.source == f"mariadb:{domain}"
            assert [u.after["id"] for u in read_all(reader) if u.after] == keys
            reader.close()


def test_zero_dates_are_refused_or_null(server: MariadbServer, database: str) -> None:
    server.run(
        "SET SESSION sql_mode=''", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, d DATE, t DATETIME(2))"
    )
    start = reader_of(server, database).latest()
    server.run("SET SESSION sql_mode=''", f"INSERT INTO {database}.t VALUES (1, '2020-00-00', '0000-00-00')")
    reader = reader_of(server, database)
    reader.seek(start)
    with pytest.raises(RemoteError, match="zero_dates=null"):
        read_all(reader)
    reader = reader_of(server, database, zero_dates="null")
    reader.seek(start)
    assert [u.after for u in read_all(reader)] == [{"id": 1, "d": None, "t": None}]


def test_places_that_are_not_there_are_refused(server: MariadbServer) -> None:
    there = log_server(server)
    with pytest.raises(Exception, match="is not in the log"):
        place_of(there, Position(10**9))
    with pytest.raises(Exception, match=r"no place|cannot be read"):
        position_at(there, Place("bin.999999", 4))


def test_a_key_that_changes_is_split(server: MariadbServer, database: str) -> None:
    with_rows = (
        f"CREATE TABLE {database}.moved (id INT PRIMARY KEY, v INT); INSERT INTO {database}.moved VALUES (1,"
        " 10), (2, 20)"
    )
    for statement in with_rows.split("; "):
        server.run(statement)
    with closing(reader_of(server, database, dataset="shop", split="key")) as reader:
        assert reader.source.endswith("/split")
        reader.seek("latest")
        server.run(f"UPDATE {database}.moved SET id = id + 10 WHERE id = 1")
        server.run(f"UPDATE {database}.moved SET v = 21 WHERE id = 2")
        found = read_all(reader)
        assert [(each.op, each.before, each.after) for each in found] == [
            (Op.DELETE, {"id": 1, "v": 10}, None),
            (Op.INSERT, None, {"id": 11, "v": 10}),
            (Op.UPDATE, {"id": 2, "v": 20}, {"id": 2, "v": 21}),
        ]
        for number, update in enumerate(found):
            reader.seek(update.position)
            assert read_all(reader) == found[number + 1 :]

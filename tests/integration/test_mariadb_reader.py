"""The MariaDB reader against real servers: resumes, restarts, failover, purged logs, and set-ups that are refused."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers.mariadb import MariadbServer, mariadb_server

from qanat.capture import LogReader, Lost, Op, Updates
from qanat.capture.errors import NotSetUp
from qanat.capture.mariadb.connection import Server
from qanat.capture.mariadb.positions import LAST_INDEX, Place, place_of, position_at
from qanat.capture.mariadb.reader import MariadbReader
from qanat.capture.updates import Update
from qanat.capture.url import open_reader, parse_log_url
from qanat.events.errors import RemoteError
from qanat.events.position import Position

pytestmark = [pytest.mark.server("mariadb"), pytest.mark.timeout(400)]
DEADLINE_S = 60


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


def reader_of(server: MariadbServer, database: str = "", **options: object) -> LogReader:
    return open_reader(server.url + database, **options)


def read_all(reader: LogReader, limit: int = 1000) -> list[Update]:
    """Everything up to what is committed now."""
    latest = reader.latest()
    found: list[Update] = []
    deadline = time.monotonic() + DEADLINE_S
    upto = Position(0)
    while upto < latest:
        assert time.monotonic() < deadline
        part = reader.read(limit, 1)
        assert isinstance(part, Updates), part
        found += part.rows()
        upto = part.upto or upto
    return found


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


@pytest.mark.parametrize("crash", [False, True])
def test_a_server_that_comes_up_again_is_read_on(tmp_path: Path, crash: bool) -> None:
    with mariadb_server(tmp_path, sync_binlog="1") as server:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))")
        reader = reader_of(server)
        reader.seek("earliest")
        server.run("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        part = reader.read(2, 5)
        assert isinstance(part, Updates)
        found = list(part.rows())
        (server.kill if crash else server.stop)()
        part = reader.read(10, 1)  # what was received before the end is still there
        assert isinstance(part, Updates)
        found += part.rows()
        with pytest.raises(RemoteError):
            reader.read(10, 1)
        with pytest.raises(RemoteError):
            reader.read(10, 1)
        server.start()
        server.run("INSERT INTO shop.t VALUES (4, 'd')")
        found += read_all(reader)
        assert [u.after["id"] for u in found if u.after] == [1, 2, 3, 4]
        reader.close()


def replicate(replica: MariadbServer, primary: MariadbServer) -> None:
    replica.run(
        f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, MASTER_USER='root', MASTER_USE_GTID=slave_pos",
        "START SLAVE",
    )


def wait_for(replica: MariadbServer, primary: MariadbServer) -> None:
    ((gtid,),) = primary.run("SELECT @@gtid_binlog_pos")
    assert replica.run(f"SELECT MASTER_GTID_WAIT('{gtid}', {DEADLINE_S})") == ((0,),)


def log_server(server: MariadbServer) -> Server:
    return Server.of(parse_log_url(server.url), {})


@pytest.mark.paper("W10")
def test_positions_name_the_same_on_a_replica_which_takes_over(tmp_path: Path) -> None:
    with (
        mariadb_server(tmp_path / "a") as primary,
        mariadb_server(tmp_path / "b", server_id="2", log_bin="other-name") as replica,
    ):
        replica.run("SET SESSION sql_log_bin=0", "CREATE DATABASE only_here", "FLUSH BINARY LOGS")
        replicate(replica, primary)
        primary.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))")
        for turn in range(10):
            primary.run(
                f"INSERT INTO shop.t SELECT seq, REPEAT('x', seq % 9) FROM shop.seq_{turn * 10 + 1}_to_{turn * 10 + 10}"
            )
        primary.run(
            "BEGIN", "UPDATE shop.t SET v='y' WHERE id < 5", "DELETE FROM shop.t WHERE id > 95", "COMMIT"
        )
        wait_for(replica, primary)
        on_primary, on_replica = reader_of(primary), reader_of(replica)
        assert on_primary.source == on_replica.source
        on_primary.seek("earliest")
        on_replica.seek("earliest")
        everything = read_all(on_primary)
        assert read_all(on_replica) == everything
        # Each replica's own names and offsets, from the logical position and back.
        places = [
            [place_of(log_server(one), Position(n)) for n in range(1, 14)] for one in (primary, replica)
        ]
        assert {place.file for place in places[0]} == {"bin.000001"}
        assert {place.file for place in places[1]} == {"other-name.000002"}
        assert [p.offset for p in places[0]] != [p.offset for p in places[1]]
        for one, there in zip((primary, replica), places, strict=True):
            assert [position_at(log_server(one), place) for place in there[1:]] == [
                Position(n, LAST_INDEX) for n in range(1, 13)
            ]
        # The primary dies in the middle of a transaction's rows; the replica takes over and goes on with the numbers.
        on_primary.seek("earliest")
        part = on_primary.read(55, 5)
        assert isinstance(part, Updates)
        assert part.upto == everything[54].position
        primary.kill()
        replica.run("STOP SLAVE", "RESET SLAVE ALL", "INSERT INTO shop.t VALUES (1000, 'after')")
        on_replica.seek(part.upto)
        rest = read_all(on_replica)
        assert [*part.rows(), *rest][:-1] == everything
        assert rest[-1].transaction == "0-2-14"
        assert rest[-1].after == {"id": 1000, "v": "after"}
        # A resume after the change of servers: the transactions now are of two of them.
        for update in (everything[54], everything[-1], everything[-3]):
            on_replica.seek(update.position)
            assert read_all(on_replica) == [
                u for u in [*everything, rest[-1]] if u.position > update.position
            ]


@pytest.mark.paper("W13")
def test_a_replica_that_does_not_log_what_it_replicates_has_lost_it(tmp_path: Path) -> None:
    with (
        mariadb_server(tmp_path / "a") as primary,
        mariadb_server(tmp_path / "b", server_id="2", log_slave_updates=None) as replica,
    ):
        replicate(replica, primary)
        primary.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        primary.run("INSERT INTO shop.t VALUES (1), (2), (3)", "INSERT INTO shop.t VALUES (4)")
        reader = reader_of(primary)
        reader.seek("earliest")
        part = reader.read(2, 5)
        assert isinstance(part, Updates)
        assert part.upto == Position(3, 1)
        ((gtid,),) = primary.run("SELECT @@gtid_binlog_pos")
        assert replica.run(f"SELECT MASTER_GTID_WAIT('{gtid}', {DEADLINE_S})") == ((0,),)
        replica.run(
            "STOP SLAVE", "RESET SLAVE ALL", "INSERT INTO shop.t VALUES (5)", "INSERT INTO shop.t VALUES (6)"
        )
        reader.close()
        reader = reader_of(replica)
        reader.seek(part.upto)
        lost = reader.read(10, 5)
        assert isinstance(lost, Lost)
        assert (lost.after, lost.upto) == (Position(3, 1), Position(4, LAST_INDEX))
        assert "log_slave_updates" in lost.reason
        assert [u.after for u in read_all(reader)] == [{"id": 5}, {"id": 6}]
        reader.seek("earliest")  # who asks for what there is has lost nothing
        assert [u.after for u in read_all(reader)] == [{"id": 5}, {"id": 6}]
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_server_whose_disk_is_full_is_read_up_to_there_and_on(tmp_path: Path, small_disk: Path) -> None:
    with mariadb_server(tmp_path / "a", log_bin=str(small_disk / "bin")) as server:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)")
        reader = reader_of(server)
        server.run("INSERT INTO shop.t VALUES (1, 'a')")
        assert [u.position for u in read_all(reader)] == [Position(3, 0)]
        filler = small_disk / "filler"
        filler.write_bytes(bytes(1_400_000))

        def hangs() -> None:
            # The server waits for room in the middle of writing this to its log, and is killed there.
            with contextlib.suppress(Exception):
                server.run("INSERT INTO shop.t VALUES (2, REPEAT('x', 1000000))")

        writing = threading.Thread(target=hangs)
        writing.start()
        deadline = time.monotonic() + DEADLINE_S
        while shutil.disk_usage(small_disk).free:
            assert time.monotonic() < deadline
        assert not reader.read(10, 0.5)
        server.kill()
        writing.join()
        filler.unlink()
        server.start()
        server.run("INSERT INTO shop.t VALUES (3, 'c')")
        with pytest.raises(RemoteError):  # it hears that the server went away, and then goes on
            reader.read(10, 5)
        found = read_all(reader)
        assert [u.after for u in found] == [{"id": 3, "v": "c"}]
        assert [row[0] for row in server.run("SELECT id FROM shop.t ORDER BY id")] == [1, 3]
        reader.seek("earliest")  # past what the server had begun to write
        assert [u.after["id"] for u in read_all(reader) if u.after] == [1, 3]
        reader.close()


def test_a_replica_that_lags_behind_says_so(tmp_path: Path) -> None:
    with mariadb_server(tmp_path) as server:
        reader = reader_of(server)
        reader.seek(Position(1000, 3))
        with pytest.raises(RemoteError, match="does not have position 1000:3 yet"):
            reader.read(1)
        reader.close()


@pytest.mark.paper("W13")
def test_purged_files_are_an_answer_with_the_range(tmp_path: Path) -> None:
    with mariadb_server(tmp_path) as server:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(20))")
        for key in range(5):
            server.run(f"INSERT INTO shop.t VALUES ({key}, 'a')", "FLUSH BINARY LOGS")
        reader = reader_of(server)
        assert reader.oldest() == Position(0)
        reader.seek("earliest")
        first = reader.read(1, 5)
        assert isinstance(first, Updates)
        reader.close()
        deadline = time.monotonic() + DEADLINE_S
        while server.run("SHOW BINARY LOGS")[0][0] != "bin.000004":  # not while a dump still holds them
            assert time.monotonic() < deadline
            server.run("PURGE BINARY LOGS TO 'bin.000004'")
        reader = reader_of(server)
        assert reader.oldest() == Position(5, LAST_INDEX)
        assert first.upto is not None
        reader.seek(first.upto)
        lost = reader.read(10, 5)
        assert isinstance(lost, Lost)
        assert (lost.after, lost.upto) == (first.upto, Position(5, LAST_INDEX))
        assert "purged" in lost.reason
        assert [u.after for u in read_all(reader)] == [{"id": 3, "v": "a"}, {"id": 4, "v": "a"}]
        reader.seek(Position(5, LAST_INDEX))  # the whole of 5 was taken: nothing is lost
        assert len(read_all(reader)) == 2
        reader.seek(Position(5, 0))  # perhaps not the whole: it is said
        assert isinstance(reader.read(10, 5), Lost)
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
    created = f"CREATE TABLE {table} (id INT UNSIGNED PRIMARY KEY, e ENUM('it''s','b'), l VARCHAR(9) CHARACTER SET latin1, u BIGINT UNSIGNED)"
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

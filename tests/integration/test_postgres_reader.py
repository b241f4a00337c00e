"""Random transactions and ALTERs in a real PostgreSQL; the reader is killed and resumed; the rebuilt table is
the database's."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.servers.postgres import PostgresServer, postgres_server
from tests.waiting import wait_until

from qanat.capture import Acknowledging, Lost, Op, Updates
from qanat.capture.postgres import reader as _reader  # noqa: F401  # loaded before the first fork
from qanat.capture.updates import Update
from qanat.capture.url import open_reader
from qanat.events.position import Position

pytestmark = [pytest.mark.server("postgres"), pytest.mark.slow]

KILLS = 12
EXAMPLES = 6

FORK = multiprocessing.get_context("fork")
pa.array([b""])  # loads what each child would load for itself at its first array


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(logical_decoding_work_mem="64kB") as running:
        yield running


def child(url: str, slot: str, position: Position | None, limit: int, pipe: Connection) -> None:
    """Reads until it is killed, and hands over what it reads."""
    reader = open_reader(url, slot=slot, publication=slot)
    reader.seek("earliest" if position is None else position)
    while True:
        got = reader.read(limit, 0.05)
        pipe.send_bytes(pickle.dumps(got if isinstance(got, Lost) else (list(got.rows()), got.upto)))


@contextmanager
def reading(*arguments: Any) -> Iterator[Connection]:
    """A reader in a process of its own, which ends by SIGKILL."""
    here, there = FORK.Pipe(duplex=False)
    process = FORK.Process(target=child, args=(*arguments, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        here.close()


class Rebuilt:
    """A table made of nothing but updates."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.position: Position | None = None

    def apply(self, update: Update) -> None:
        assert self.position is None or update.position > self.position, (
            "an update came twice, or out of order"
        )
        self.position = update.position
        match update.op:
            case Op.INSERT:
                assert update.after is not None
                assert update.after["id"] not in self.rows
                self.rows[update.after["id"]] = update.after
            case Op.UPDATE:
                assert update.after is not None
                key = update.after["id"] if update.before is None else update.before["id"]
                old = self.rows.pop(key)
                kept = {name: old[name] for name in update.unchanged}
                self.rows[update.after["id"]] = {**update.after, **kept}
            case Op.DELETE:
                assert update.before is not None
                del self.rows[update.before["id"]]
            case Op.TRUNCATE:
                self.rows.clear()
            case _:
                pytest.fail(f"what is {update}")


COLUMNS = {
    "a": ("text", ["NULL", "''", "'x'", "repeat('long ', 700)", "'żółć'"]),
    "n": ("numeric(12,3)", ["NULL", "0", "-1.5", "999999999.999", "'NaN'"]),
    "t": ("timestamptz", ["NULL", "'2024-02-29 12:00:00.000001+02'", "'infinity'", "'0044-03-15 BC'"]),
    "b": ("bytea", ["NULL", "''", "'\\x00ff'", "decode(repeat('ab', 3000), 'hex')"]),
    "u": ("bigint", ["NULL", "0", "-9223372036854775808"]),
    "o": ("boolean", ["NULL", "true", "false"]),
    "e": ("mood", ["NULL", "'sad'", "'glad'"]),
}


@st.composite
def scripts(draw: st.DrawFn) -> list[list[str]]:
    """Transactions as lists of statements; `{t}` is the table."""
    columns, spare = ["a", "n"], ["t", "b", "u", "o", "e"]
    script: list[list[str]] = []
    dropped: set[str] = set()

    def value(column: str) -> str:
        return draw(st.sampled_from(COLUMNS[column][1]))

    for _ in range(draw(st.integers(8, 25))):
        statements: list[str] = []
        for _ in range(draw(st.integers(1, 6))):
            key = draw(st.integers(0, 9))
            values = ", ".join(value(column) for column in columns)
            sets = ", ".join(f"{column} = EXCLUDED.{column}" for column in columns)
            changed = draw(st.sampled_from(columns))
            upsert = (
                f"INSERT INTO {{t}} (id, {', '.join(columns)}) VALUES ({key}, {values}) ON CONFLICT (id) DO"
                f" UPDATE SET {sets}"
            )
            moves = (
                f"UPDATE {{t}} SET id = {key + 100} WHERE id = {key} AND NOT EXISTS (SELECT 1 FROM {{t}}"
                f" WHERE id = {key + 100})"
            )
            many = (
                f"INSERT INTO {{t}} (id, {', '.join(columns)}) SELECT g, {values} FROM generate_series(1000,"
                f" 1400) g ON CONFLICT (id) DO UPDATE SET {changed} = EXCLUDED.{changed}"
            )
            choices = [upsert] * 6 + [f"UPDATE {{t}} SET {changed} = {value(changed)} WHERE id = {key}"] * 3
            choices += [f"DELETE FROM {{t}} WHERE id = {key}"] * 3 + [moves, many, "TRUNCATE {t}"]
            choices += [f"SAVEPOINT s; {upsert}; ROLLBACK TO s", f"SAVEPOINT s; {many}; ROLLBACK TO s"]
            if spare:
                choices.append("ADD")
            if len(columns) > 2:
                choices.append("DROP")
            statement = draw(st.sampled_from(choices))
            if statement == "ADD":
                columns.append(spare.pop(0))
                statement = f"ALTER TABLE {{t}} ADD COLUMN {columns[-1]} {COLUMNS[columns[-1]][0]}"
                if columns[-1] in dropped:  # that rows which were there have it empty is not in the log
                    statement += f"; UPDATE {{t}} SET {columns[-1]} = NULL"
            elif statement == "DROP":
                gone = columns.pop()
                spare.append(gone)
                dropped.add(gone)
                statement = f"ALTER TABLE {{t}} DROP COLUMN {gone}"
            statements.append(statement)
        script.append(statements)
    return script


def table_of(server: PostgresServer, name: str) -> dict[int, dict[str, Any]]:
    """As the database has it; what its types cannot hold in Python as text."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET timezone = 'UTC'")
        cursor.execute(f"SELECT * FROM {name} LIMIT 0")
        names = [column.name for column in cursor.description]
        texts = {"t": "t::text", "n": "n::text", "b": "encode(b, 'hex')"}
        cursor.execute(f"SELECT {', '.join(texts.get(column, column) for column in names)} FROM {name}")
        return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}


def comparable(row: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    def plain(name: str, value: Any) -> Any:
        if value is None or name not in ("t", "n", "b"):
            return value
        if name == "b":
            return value.hex()
        if name == "t" and not isinstance(value, str):
            return value.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".") + "+00"
        return str(value)

    return {name: plain(name, row.get(name)) for name in names}


kills = 0


@pytest.mark.paper("W1")
@settings(max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(scripts(), st.integers(0, 2**32), st.booleans())
def test_killed_and_resumed_readers_rebuild_the_table(
    server: PostgresServer, script: list[list[str]], seed: int, whole: bool
) -> None:
    global kills
    rng = random.Random(seed)
    name = f"t{seed}_{rng.getrandbits(30)}"
    server.run(
        "DROP TYPE IF EXISTS mood CASCADE",
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        f"CREATE TABLE {name} (id int PRIMARY KEY, a text, n numeric(12,3))",
        f"ALTER TABLE {name} ALTER a SET STORAGE EXTERNAL",
        f"ALTER TABLE {name} REPLICA IDENTITY {'FULL' if whole else 'DEFAULT'}",
        f"CREATE PUBLICATION {name} FOR TABLE {name}",
        f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')",
    )
    try:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            for statements in script:
                cursor.execute("BEGIN; " + "; ".join(statements).format(t=name) + "; COMMIT")
            cursor.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            end = int(cursor.fetchone()[0])
        rebuilt = Rebuilt()
        upto = Position(0)
        for left in reversed(range(KILLS)):
            with reading(server.url, name, rebuilt.position, rng.choice([1, 3, 50, 5000])) as pipe:
                for _ in range(rng.randrange(6)) if left else iter(int, 1):
                    if upto.sequence >= end - 1 and not left:
                        break
                    got = pickle.loads(pipe.recv_bytes())
                    assert not isinstance(got, Lost), got
                    for update in got[0]:
                        rebuilt.apply(update)
                    upto = got[1]
            kills += 1
        expected = table_of(server, name)
        assert set(rebuilt.rows) == set(expected)
        for key, row in expected.items():
            assert comparable(rebuilt.rows[key], row) == row
    finally:
        server.run(
            f"SELECT pg_drop_replication_slot('{name}')", f"DROP TABLE {name}", f"DROP PUBLICATION {name}"
        )


def test_readers_were_killed_often_enough() -> None:
    assert kills >= 50 or kills == 0, "with -k the test before may not have run"


def test_what_was_not_acknowledged_is_read_again_and_the_rest_is_not(server: PostgresServer) -> None:
    server.run("CREATE TABLE again (id int PRIMARY KEY)")
    with closing(
        open_reader(server.url, slot="again", publication="again", create="yes", tables="again")
    ) as reader:
        assert isinstance(reader, Acknowledging)
        reader.seek("earliest")
        server.run("INSERT INTO again SELECT generate_series(1, 5)", "INSERT INTO again VALUES (6)")
        first = everything(reader, 6)
        reader.seek("earliest")
        second = everything(reader, 6)
        assert first == second
        assert [update.position.index for update in first] == [0, 1, 2, 3, 4, 0]
        reader.seek(first[2].position)
        assert everything(reader, 3) == first[3:]
        reader.acknowledge(first[2].position)
        reader.seek(first[2].position)
        assert everything(reader, 3) == first[3:]
        reader.acknowledge(first[-1].position)
        reader.seek(first[2].position)
        wait_until(lambda: reader.oldest() > first[2].position)
        lost = reader.read(10, 1)
        assert isinstance(lost, Lost)
        assert (lost.after, lost.upto) == (first[2].position, reader.oldest())
    server.run("SELECT pg_drop_replication_slot('again')", "DROP TABLE again")


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_key_that_changes_is_split(server: PostgresServer, identity: str) -> None:
    server.run(
        "CREATE TABLE moved (id int PRIMARY KEY, v int, long text)",
        "ALTER TABLE moved ALTER long SET STORAGE EXTERNAL",
        f"ALTER TABLE moved REPLICA IDENTITY {identity}",
    )
    options = {"slot": "moved", "publication": "moved", "create": "yes", "tables": "moved"}
    with closing(open_reader(server.url, split="key", **options)) as reader:
        reader.seek("earliest")
        server.run(
            "INSERT INTO moved VALUES (1, 10, repeat('x', 10000)), (2, 20, '')",
            "UPDATE moved SET id = 11 WHERE id = 1",
            "UPDATE moved SET v = 21 WHERE id = 2",
        )
        found = everything(reader, 5)
        old = {"id": 1} if identity == "DEFAULT" else {"id": 1, "v": 10, "long": "x" * 10000}
        assert [each.op for each in found] == [Op.INSERT, Op.INSERT, Op.DELETE, Op.INSERT, Op.UPDATE]
        assert (found[2].before, found[2].after) == (old, None)
        assert found[3].before is None
        assert found[3].after is not None
        assert {"id": 11, "v": 10}.items() <= found[3].after.items()
        assert found[3].unchanged == (("long",) if identity == "DEFAULT" else ())
        for number, update in enumerate(found):
            reader.seek(update.position)
            assert everything(reader, len(found) - number - 1) == found[number + 1 :]
    server.run("SELECT pg_drop_replication_slot('moved')", "DROP PUBLICATION moved", "DROP TABLE moved")


def everything(reader: Any, count: int) -> list[Update]:
    found: list[Update] = []
    while len(found) < count:
        got = reader.read(100, 10)
        assert isinstance(got, Updates)
        assert got or reader.read(100, 10), "no updates came for long"
        found += got.rows()
    return found


def test_texts_that_the_server_cannot_send_as_utf8_come_as_they_are(server: PostgresServer) -> None:
    for encoding, stored, name in (("SQL_ASCII", "\\351", "t\\xe9"), ("WIN1252", "\\201\\351", "té")):
        database = encoding.lower()
        server.run(
            f"CREATE DATABASE {database} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
        url = f"{server.url.rsplit('/', 1)[0]}/{database}"
        with closing(server.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute("SET client_encoding = 'SQL_ASCII'")
            cursor.execute(b'CREATE TABLE "t\xe9" (id int PRIMARY KEY, v text)')
            with closing(open_reader(url, slot=database, publication=database, create="yes")) as reader:
                cursor.execute(b"INSERT INTO \"t\xe9\" VALUES (1, 'plain'), (2, '\xe9')")
                cursor.execute(b'INSERT INTO "t\xe9" VALUES (3, E\'' + stored.encode() + b"'), (4, 'last')")
                reader.seek("earliest")
                found = everything(reader, 4)
        assert [one.table.name for one in found] == [name] * 4
        assert found[0].after == {"id": 1, "v": "plain"} and found[3].after == {"id": 4, "v": "last"}
        assert found[1].after == {"id": 2, "v": b"\xe9" if encoding == "SQL_ASCII" else "é"}
        assert found[2].after == {"id": 3, "v": bytes(int(octet, 8) for octet in stored.split("\\")[1:])}

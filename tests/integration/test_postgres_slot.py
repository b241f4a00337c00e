"""What becomes of a slot: lost, made anew, idle, on a standby; and a server that is restarted."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from tests.servers.postgres import BIN, PostgresServer, postgres_server
from tests.waiting import wait_until

from qanat.capture import Acknowledging, Lost, Op, Updates
from qanat.capture.errors import BadLogUrl, LogUnreachable, NotSetUp
from qanat.capture.postgres.positions import lsn_text, own_position, parse_lsn
from qanat.capture.postgres.snapshot import open_chunks
from qanat.capture.snapshot import Progress, snapshot
from qanat.capture.updates import Update
from qanat.capture.url import check, open_reader, parse_log_url
from qanat.events.errors import RemoteError
from qanat.events.position import Position

pytestmark = [pytest.mark.server("postgres"), pytest.mark.slow]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        running.run("CREATE TABLE t (id int PRIMARY KEY, a text)")
        yield running


def some(reader: Any, count: int, deadline_s: float = 30) -> list[Update]:
    found: list[Update] = []
    deadline = time.monotonic() + deadline_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} updates came"
        got = reader.read(1000, 1)
        assert isinstance(got, Updates), got
        found += got.rows()
    return found


def confirmed(server: PostgresServer) -> int:
    """Up to where the server need keep nothing for the slot."""
    ((lsn,),) = server.run("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
    return parse_lsn(lsn)


def make_wal(server: PostgresServer, files: int) -> None:
    server.run("CREATE TABLE IF NOT EXISTS ballast (x text)")
    for _ in range(files):
        server.run(
            "INSERT INTO ballast SELECT repeat('x', 1000) FROM generate_series(1, 50)",
            "SELECT pg_switch_wal()",
        )
    server.run("CHECKPOINT")


def test_a_reader_goes_on_after_the_server_was_restarted(server: PostgresServer) -> None:
    with closing(open_reader(server.url, create=True)) as reader:
        server.run("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        first = some(reader, 2)
        server.kill()
        with pytest.raises(LogUnreachable):
            reader.read(10, 1)
        server.start()
        server.run("INSERT INTO t VALUES (3)")
        again = some(reader, 1)
        assert [update.after for update in first + again] == [{"id": n, "a": None} for n in (1, 2, 3)]


def test_a_reader_does_not_hold_up_the_shutdown_of_the_server(server: PostgresServer) -> None:
    with closing(open_reader(server.url, create=True)) as reader:
        server.run("INSERT INTO t VALUES (1)")
        some(reader, 1)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        with pytest.raises(LogUnreachable):
            while True:
                reader.read(10, 0.2)
        stopping.join()
        server.start()
        server.run("INSERT INTO t VALUES (2)")
        assert [update.after for update in some(reader, 1)] == [{"id": 2, "a": None}]


def test_a_server_whose_disk_is_full_loses_nothing_of_what_was_committed(server: PostgresServer) -> None:
    wal, disk = server.data / "pg_wal", server.folder.parent / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=36m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with closing(open_reader(server.url, create=True, tables="t")) as reader:
            server.run("INSERT INTO t VALUES (1)")
            first = some(reader, 1)
            server.kill()
            subprocess.run(["cp", "-a", f"{wal}/.", str(disk)], check=True)
            subprocess.run(["chown", "postgres", str(disk)], check=True)
            wal.rename(server.folder / "former_wal")
            wal.symlink_to(disk)
            server.start()
            committed = [1]
            with pytest.raises(psycopg2.Error):
                for key in range(2, 2000):
                    server.run(
                        f"INSERT INTO t SELECT {key}, string_agg(md5(random()::text), '') FROM"
                        " generate_series(1, 20000)"
                    )
                    committed.append(key)
            with pytest.raises(LogUnreachable):
                for _ in range(2000):  # what it still sends before it ends
                    first += some_or_none(reader)
            subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
            server.kill()
            server.start()
            stored = [key for (key,) in server.run("SELECT id FROM t ORDER BY id")]
            assert stored[: len(committed)] == committed
            first += some(reader, len(stored) - len(first))
            assert [update.after and update.after["id"] for update in first] == stored
    finally:
        server.kill()
        subprocess.run(["umount", "-l", str(disk)], check=False)


def some_or_none(reader: Any) -> list[Update]:
    got = reader.read(1000, 0.05)
    assert isinstance(got, Updates)
    return list(got.rows())


def test_an_invalidated_slot_is_said_with_the_range_that_is_lost() -> None:
    with postgres_server(max_slot_wal_keep_size="16MB", min_wal_size="32MB", max_wal_size="32MB") as server:
        server.run("CREATE TABLE t (id int PRIMARY KEY)")
        with closing(open_reader(server.url, create=True, tables="t")) as reader:
            server.run("INSERT INTO t VALUES (1)")
            (had,) = some(reader, 1)
            reader.seek(had.position)
            server.run("INSERT INTO t VALUES (2)")
            make_wal(server, 6)
            wait_until(lambda: server.run("SELECT wal_status FROM pg_replication_slots") == [("lost",)])
            with pytest.raises(NotSetUp, match="pg_drop_replication_slot"):
                open_reader(server.url)
            assert any(not one.ok and "lost its log" in one.what for one in check(server.url))
            lost = reader.read(10, 1)
            assert isinstance(lost, Lost)
            assert lost.after == had.position
            assert lost.upto == reader.oldest()
            assert "invalidated" in lost.reason
            server.run("INSERT INTO t VALUES (3)")
            assert [update.after for update in some(reader, 1)] == [{"id": 3}]


def test_a_slot_that_was_made_anew_is_noticed(server: PostgresServer) -> None:
    with closing(open_reader(server.url, create=True)) as reader:
        server.run("INSERT INTO t VALUES (1)")
        (had,) = some(reader, 1)
    wait_until(lambda: server.run("SELECT active FROM pg_replication_slots") == [(False,)])
    server.run("INSERT INTO t VALUES (2)", "SELECT pg_drop_replication_slot('qanat')")
    with pytest.raises(NotSetUp, match="pg_create_logical_replication_slot"):
        open_reader(server.url)
    server.run("SELECT pg_create_logical_replication_slot('qanat', 'pgoutput')", "INSERT INTO t VALUES (3)")
    with closing(open_reader(server.url)) as reader:
        reader.seek(had.position)
        lost = reader.read(10)
        assert isinstance(lost, Lost)
        assert (lost.after, lost.upto) == (had.position, reader.oldest())
        assert [update.after for update in some(reader, 1)] == [{"id": 3, "a": None}]


def test_an_idle_slot_moves_on_and_its_reader_can_still_resume(server: PostgresServer) -> None:
    options: dict[str, Any] = {"create": True, "tables": "t", "heartbeat_s": 0, "heartbeat_bytes": 1000}
    with closing(open_reader(server.url, **options)) as reader:
        assert isinstance(reader, Acknowledging)
        server.run("INSERT INTO t VALUES (1)")
        (had,) = some(reader, 1)
        reader.acknowledge(had.position)
        make_wal(server, 2)
        end = reader.latest()

        def moved() -> bool:
            assert reader.read(10, 0.05) is not None
            return confirmed(server) >= end.sequence - 1

        wait_until(moved)
        assert reader.oldest() <= had.position, "whoever is there lacks nothing"
        reader.seek(had.position)
        assert isinstance(reader.read(10, 0.1), Updates), "nothing was lost"
        server.run("INSERT INTO t VALUES (2)")
        assert [update.after for update in some(reader, 1)] == [{"id": 2, "a": None}]
    wait_until(lambda: server.run("SELECT active FROM pg_replication_slots") == [(False,)])
    server.run(
        "SELECT pg_drop_replication_slot('qanat')",
        "SELECT pg_create_logical_replication_slot('qanat', 'pgoutput')",
    )
    with closing(open_reader(server.url)) as reader:
        reader.seek(had.position)
        assert isinstance(reader.read(10), Lost), "the note was of the slot before"


def test_a_reader_resumes_from_the_last_update_that_was_kept(server: PostgresServer) -> None:
    options: dict[str, Any] = {"create": True, "heartbeat_s": 0, "heartbeat_bytes": 100}
    with closing(open_reader(server.url, **options)) as reader:
        assert isinstance(reader, Acknowledging)
        server.run(
            "CREATE TABLE other (id int PRIMARY KEY)",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO other VALUES (1)",
        )
        kept, other = some(reader, 2)
        reader.acknowledge(other.position, kept.position)

        def moved() -> bool:
            reader.read(10, 0.05)
            return confirmed(server) > other.position.sequence

        wait_until(moved)
        server.run("INSERT INTO t VALUES (2)")
        reader.seek(kept.position)
        assert [update.after for update in some(reader, 1)] == [{"id": 2, "a": None}]
        reader.seek(Position(kept.position.sequence - 1))
        assert isinstance(reader.read(10), Lost), "nobody said that this was done with"


def test_a_slot_that_nobody_reads_moves_on_to_what_others_are_done_with(server: PostgresServer) -> None:
    options: dict[str, Any] = {"create": True, "heartbeat_bytes": 0}
    with closing(open_reader(server.url, **options)) as other:
        assert isinstance(other, Acknowledging)
        with closing(open_reader(server.url, **options)) as reader:
            server.run(*(f"INSERT INTO t VALUES ({number})" for number in range(4)))
            one, two, three, four = some(reader, 4)
            begun = other.oldest()
            other.advance(two.position)
            assert other.oldest() == begun, "somebody reads: he tells it himself"
        wait_until(lambda: server.run("SELECT active FROM pg_replication_slots") == [(False,)])
        other.advance(two.position)
        assert one.position <= other.oldest() < two.position
        other.advance(one.position)
        assert one.position <= other.oldest(), "it does not go back"
        other.seek(two.position)
        assert some(other, 2) == [three, four]
    wait_until(lambda: server.run("SELECT active FROM pg_replication_slots") == [(False,)])
    with closing(open_reader(server.url)) as patient:
        assert isinstance(patient, Acknowledging)
        before = patient.oldest()
        patient.advance(four.position)
        assert patient.oldest() == before, "so little would free nothing"


@pytest.mark.paper("W10")
def test_a_standby_is_refused_until_it_is_promoted_and_then_says_what_it_lost(server: PostgresServer) -> None:
    with closing(open_reader(server.url, create=True)) as reader, server.standby() as standby:
        server.run("INSERT INTO t VALUES (1)")
        (had,) = some(reader, 1)
        wait_until(
            lambda: (
                parse_lsn(standby.run("SELECT pg_last_wal_replay_lsn()::text")[0][0]) > had.position.sequence
            )
        )
        with pytest.raises(NotSetUp, match="standby"):
            open_reader(standby.url)
        assert any(not one.ok and "standby" in one.what for one in check(standby.url))
        # The same update has the same position in the standby's log.
        dump = [
            str(BIN / "pg_waldump"),
            "-p",
            str(standby.data / "pg_wal"),
            "-n",
            "1",
            "-s",
            own_position(had.position),
        ]
        record = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
        assert re.search(r"lsn: ([0-9A-F]+/[0-9A-F]+).*COMMIT", record)
        assert parse_lsn(re.search(r"lsn: ([0-9A-F]+/[0-9A-F]+)", record)[1]) == had.position.sequence  # type: ignore[index]
        source = reader.source
        server.kill()
        standby.promote()
        with pytest.raises(NotSetUp, match="no replication slot"):
            open_reader(standby.url)
        with closing(open_reader(standby.url, create=True)) as other:
            assert other.source == source
            other.seek(had.position)
            lost = other.read(10, 1)
            assert isinstance(lost, Lost)
            assert lost.after == had.position
            standby.run("INSERT INTO t VALUES (2)")
            assert [update.after for update in some(other, 1)] == [{"id": 2, "a": None}]
            other.seek(Position(1 << 40))
            with pytest.raises(RemoteError, match="beyond the end"):
                other.read(1)


def test_a_slot_has_one_reader(server: PostgresServer) -> None:
    with (
        closing(open_reader(server.url, create=True)) as one,
        closing(open_reader(server.url, slot_wait_s=0.1)) as two,
    ):
        one.read(1)
        with pytest.raises(LogUnreachable, match="another reader"):
            two.read(1)


def test_the_set_up_is_checked(server: PostgresServer) -> None:
    server.run(
        "CREATE TABLE bare (x int)", "CREATE ROLE poor LOGIN", "CREATE PUBLICATION qanat FOR ALL TABLES"
    )
    found = {one.what: one for one in check(server.url.replace("postgres@", "poor@"))}
    assert "ALTER ROLE" in found["the role poor may not replicate"].fix
    assert any("bare REPLICA IDENTITY FULL" in one.fix for one in found.values())
    assert any("pg_create_logical_replication_slot" in one.fix for one in found.values() if not one.ok)
    server.run(
        "DROP TABLE bare",
        "ALTER ROLE poor REPLICATION",
        "SELECT pg_create_logical_replication_slot('qanat', 'pgoutput')",
    )
    url = server.url.replace("postgres@", "poor@")
    assert not any(one.wrong for one in check(url)), check(url)
    with closing(open_reader(url)) as reader:
        server.run("INSERT INTO t VALUES (1)")
        some(reader, 1)
    wait_until(lambda: server.run("SELECT active FROM pg_replication_slots") == [(False,)])
    server.run("SELECT pg_drop_replication_slot('qanat')")
    server.stop()
    server.start(wal_level="replica", max_wal_senders="0")
    found = {one.what: one for one in check(server.url)}
    assert "wal_level = 'logical'" in found["wal_level is replica"].fix


def test_what_a_snapshot_needs_is_advice_with_a_grant_that_does(server: PostgresServer) -> None:
    """The log has rows of tables that its reader may not select from."""
    server.run(
        'CREATE SCHEMA "Back Office"',
        'CREATE TABLE "Back Office".salaries (id int PRIMARY KEY)',
        'INSERT INTO "Back Office".salaries VALUES (1)',
        "CREATE ROLE clerk LOGIN REPLICATION",
    )
    url = server.url.replace("postgres@", "clerk@")
    (all_tables,) = [one for one in check(url, create=True) if one.wrong]
    assert (
        "may not publish all tables" in all_tables.what
        and "as a superuser: CREATE PUBLICATION" in all_tables.fix
    )
    server.run(
        "CREATE PUBLICATION qanat FOR ALL TABLES",
        "SELECT pg_create_logical_replication_slot('qanat', 'pgoutput')",
    )
    (advice,) = [one for one in check(url) if "may not read" in one.what]
    assert not advice.ok and not advice.needed and '"Back Office".salaries' in advice.what
    server.run(*advice.fix.splitlines())
    assert any(one.ok and "may read all" in one.what for one in check(url))
    with closing(open_chunks(parse_log_url(url), {})) as chunks:
        assert len(chunks.chunk("Back Office.salaries", None, 10).rows) == 1


def test_bad_options_are_said(server: PostgresServer) -> None:
    for options in ({"slot": "No Such"}, {"create": "perhaps"}, {"colour": "red"}):
        with pytest.raises(BadLogUrl):
            open_reader(server.url, **options)
    with pytest.raises(LogUnreachable):
        open_reader("postgresql://postgres@127.0.0.1:1/postgres")


WRITES_AHEAD, WRITES_A_CHUNK = 200, 50
"""A writer that is not bound to what was read may be faster than the reader on a busy machine, which then
never ends."""


@pytest.mark.parametrize("whole", [False, True])
def test_a_snapshot_under_concurrent_writes_is_the_table(server: PostgresServer, whole: bool) -> None:
    server.run(
        "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 3000) n",
        "ALTER TABLE t ADD n numeric(6,1)",
        "UPDATE t SET n = 'NaN' WHERE id % 500 = 0",
        f"ALTER TABLE t REPLICA IDENTITY {'FULL' if whole else 'DEFAULT'}",
    )
    stop, turn = threading.Event(), threading.Semaphore(WRITES_AHEAD)

    def write() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            number = 0
            while turn.acquire() and not stop.is_set():
                number += 1
                key = number * 7919 % 4000
                cursor.execute(
                    f"INSERT INTO t VALUES ({key}, 'new {number}') ON CONFLICT (id) DO UPDATE SET a ="
                    " EXCLUDED.a"
                )
                cursor.execute(f"DELETE FROM t WHERE id = {number * 104729 % 4000}")
                cursor.execute(
                    f"UPDATE t SET id = id + 5000 WHERE id = {number * 31 % 4000} AND {number} < 300"
                )

    writer = threading.Thread(target=write)
    with closing(open_reader(server.url, create=True)) as reader:
        chunks = open_chunks(parse_log_url(server.url), {})
        rows: dict[int, tuple[Any, Any]] = {}

        def apply(update: Update) -> None:
            before, after = update.before or {}, update.after or {}
            if update.op in (Op.UPDATE, Op.DELETE):
                rows.pop((before or after)["id"], None)
            if update.op != Op.DELETE:
                rows[after["id"]] = (after["a"], None if after["n"] is None else str(after["n"]))

        writer.start()
        try:
            progress = Progress(reader.latest(), chunks.tables())
            reads = 0
            while not progress.done:  # resumed from its text after every third chunk
                chunks_read = 0
                for step in snapshot(reader, chunks, progress, chunk_rows=150):
                    if step.is_chunk:
                        turn.release(WRITES_A_CHUNK)
                    for update in step.updates.rows():
                        apply(update)
                    reads += len(step.updates) if step.is_chunk else 0
                    progress = Progress.from_json(step.progress.to_json())
                    chunks_read += step.is_chunk
                    if chunks_read == 3:
                        break
        finally:
            stop.set()
            turn.release()
            writer.join()
            chunks.close()
        end = reader.latest()
        upto = progress.position
        reader.seek(upto)
        while upto < end:
            got = reader.read(1000, 1)
            assert isinstance(got, Updates)
            for update in got.rows():
                apply(update)
            upto = got.upto or upto
    expected = {key: (a, n) for key, a, n in server.run("SELECT id, a, n::text FROM t")}
    assert rows == expected
    assert reads > 500


def test_log_sequence_numbers_are_written_as_the_server_writes_them() -> None:
    assert lsn_text(parse_lsn("16/B374D848")) == "16/B374D848"

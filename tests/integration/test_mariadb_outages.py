"""The MariaDB reader through restarts, failover, a full disk and purged logs."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.mariadb_reading import DEADLINE_S, log_server, read_all, reader_of
from tests.servers.mariadb import MariadbServer, mariadb_server
from tests.waiting import wait_until

from qanat.capture import Lost, Updates
from qanat.capture.mariadb.positions import LAST_INDEX, place_of, position_at
from qanat.events.errors import RemoteError
from qanat.events.position import Position

pytestmark = pytest.mark.server("mariadb")


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
        f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, MASTER_USER='root',"
        " MASTER_USE_GTID=slave_pos",
        "START SLAVE",
    )


def wait_for(replica: MariadbServer, primary: MariadbServer) -> None:
    ((gtid,),) = primary.run("SELECT @@gtid_binlog_pos")
    assert replica.run(f"SELECT MASTER_GTID_WAIT('{gtid}', {DEADLINE_S})") == ((0,),)


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
                "INSERT INTO shop.t SELECT seq, REPEAT('x', seq % 9) FROM"
                f" shop.seq_{turn * 10 + 1}_to_{turn * 10 + 10}"
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
        # The primary dies in the middle of a transaction's rows; the replica takes over and goes on with the
        # numbers.
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
        wait_for(replica, primary)
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
        wait_until(lambda: not shutil.disk_usage(small_disk).free, DEADLINE_S)
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

        def purged() -> bool:
            server.run("PURGE BINARY LOGS TO 'bin.000004'")  # which passes over what a dump still holds
            return bool(server.run("SHOW BINARY LOGS")[0][0] == "bin.000004")

        wait_until(purged, DEADLINE_S)
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

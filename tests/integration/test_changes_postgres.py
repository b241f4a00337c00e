"""PostgreSQL as a streaming source: its slot is told what Spark has written down, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.servers.postgres import PostgresServer, postgres_server
from tests.unit.pipeline.changes.rocks_log import Driven
from tests.waiting import wait_until

from qanat.capture.postgres.positions import parse_lsn
from qanat.events.position import Position

pytestmark = pytest.mark.server("postgres")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        running.run("CREATE TABLE t (id int PRIMARY KEY)")
        yield running


def ids(table: pa.Table) -> list[int]:
    return (
        [json.loads(line)["after"]["id"] for line in table["payload"].to_pylist()] if table.num_rows else []
    )


def confirmed(server: PostgresServer) -> int:
    ((lsn,),) = server.run("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
    return parse_lsn(lsn)


@pytest.mark.paper("D2")
def test_a_slot_is_released_when_spark_commits(server: PostgresServer) -> None:
    job = Driven(f"{server.url}?create=yes", start="latest")
    job.checkpoint.append(job.source.initialOffset())
    server.run("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    found: list[int] = []
    while len(found) < 2:
        wait_until(job.plan)
        found += ids(job.batch())
    assert found == [1, 2]
    before, end = confirmed(server), job.checkpoint[-1]
    assert before <= Position.parse(job.checkpoint[0]["position"]).sequence + 1

    job.restart()  # nothing was committed: the same is read again
    again = ids(job.batch())
    assert again
    assert again == found[-len(again) :]
    job.source.commit(end)
    server.run("INSERT INTO t VALUES (3)")
    wait_until(job.plan)
    assert ids(job.batch()) == [3]
    job.source.commit(end)
    wait_until(lambda: confirmed(server) >= Position.parse(end["position"]).sequence)
    job.source.stop()


@pytest.mark.paper("D2")
def test_a_snapshot_comes_first_and_the_slot_has_what_follows(server: PostgresServer, tmp_path: Path) -> None:
    server.run("INSERT INTO t SELECT generate_series(1, 5)")
    job = Driven(f"{server.url}?create=yes", start="snapshot", state=str(tmp_path), maxRowsPerTrigger="2")
    found: list[tuple[str, int]] = []
    job.checkpoint.append(job.source.initialOffset())
    written = 10
    while not {10, 11, 12} <= {n for _, n in found}:
        wait_until(job.plan)
        job.restart()  # killed when its end was written down
        found += told(job.batch())
        if written < 13:
            server.run(f"INSERT INTO t VALUES ({written})")
            written += 1
        job.source.commit(job.checkpoint[-1])
    # What was written meanwhile is found, or comes with the log, or both; what was there before comes once.
    assert [n for _, n in found if n < 10] == [1, 2, 3, 4, 5]
    assert {op for op, n in found if n < 10} == {"read"}
    assert not list(tmp_path.iterdir())


def told(table: pa.Table) -> list[tuple[str, int]]:
    updates = map(json.loads, table["payload"].to_pylist() if table.num_rows else ())
    return [(update["op"], update["after"]["id"]) for update in updates]

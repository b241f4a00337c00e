"""How fast PostgreSQL's log is read, beside a bare loop over the driver on the same slot, and how soon after
a commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from select import select

from qanat.bench.reader_figures import COMMITS, beside, commit_to_update, in_rounds, take
from qanat.capture.url import open_reader
from qanat.events.position import Position
from qanat_workshop.postgres_server import PostgresServer, postgres_server

DESCRIPTION = (
    "PostgreSQL's log in rows/s beside a bare psycopg2 loop, in bulk and of one-row transactions; commit to"
    " update"
)
BULK_ROWS = 200_000
"""A thousand in a transaction."""
SINGLE_ROWS = 20_000
"""Each in a transaction of its own: three messages to a row."""
TABLE = "CREATE TABLE rows (k bigint PRIMARY KEY, b text, p numeric(10,2), t timestamptz, c text)"
ROW = "{k}, repeat('v', ({k} % 40)::int), {k} / 100.0, '2026-01-01 00:00:00.123+00', repeat('w', 30)"
_INSERT = ord("I")


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians of the rounds, which all read the same log; the two readers take turns."""
    with postgres_server(shared_buffers="128MB", max_wal_size="2GB") as server:
        places = _fill(server)
        return in_rounds(
            rounds, lambda number: _rates(server, *places, number) | _latency(server, number), say
        )


def _fill(server: PostgresServer) -> tuple[Position, Position]:
    """The positions before the two parts of the log."""
    server.run(TABLE)
    with closing(open_reader(server.url, create=True)) as reader, closing(server.connect()) as connection:
        bulk = reader.latest()
        with connection.cursor() as cursor:
            for key in range(0, BULK_ROWS, 1000):
                cursor.execute(
                    f"INSERT INTO rows SELECT {ROW.format(k='n')} FROM generate_series({key}, {key + 999}) n"
                )
            single = reader.latest()
            cursor.execute("SET synchronous_commit = off")
            for key in range(10**6, 10**6 + SINGLE_ROWS):
                cursor.execute(f"INSERT INTO rows VALUES ({ROW.format(k=key)})")
    return bulk, single


def _rates(server: PostgresServer, bulk: Position, single: Position, number: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, after, rows in (("postgres", bulk, BULK_ROWS), ("postgres_single", single, SINGLE_ROWS)):
        ours = partial(_read, server, after, rows)
        figures |= beside(name, f"{name}_bare", ours, partial(_read_bare, server, after, rows), number)
    return figures


def _read(server: PostgresServer, after: Position, rows: int) -> float:
    """From the first row: a slot first goes through what lies before."""
    with closing(open_reader(server.url, streaming=False)) as reader:
        reader.seek(after)
        first = got = 0
        began = 0.0
        while got < rows:
            part = take(reader, 10_000)
            if part and not began:
                began, first = time.perf_counter(), len(part)
            got += len(part)
        return (got - first) / (time.perf_counter() - began)


def _read_bare(server: PostgresServer, after: Position, rows: int) -> float:
    """The driver's loop; rows are counted and left as they are, undecoded."""
    import psycopg2
    from psycopg2.extras import LogicalReplicationConnection

    with closing(psycopg2.connect(server.url, connection_factory=LogicalReplicationConnection)) as connection:
        cursor = connection.cursor()
        deadline = time.monotonic() + 30
        while True:
            try:
                options = {"proto_version": "1", "publication_names": "qanat"}
                cursor.start_replication(slot_name="qanat", start_lsn=after.sequence, options=options)
                break
            except psycopg2.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        got = 0
        began = 0.0
        while got < rows:
            message = cursor.read_message()
            if message is None:
                select([cursor], [], [], 10)
            elif message.payload[0] == _INSERT:
                began = began or time.perf_counter()
                got += 1
        return got / (time.perf_counter() - began)


def _latency(server: PostgresServer, number: int) -> dict[str, float]:
    first = 10**8 + number * COMMITS
    with (
        closing(open_reader(server.url)) as reader,
        closing(server.connect()) as connection,
        connection.cursor() as cursor,
    ):
        return commit_to_update(
            "postgres",
            reader,
            lambda row: cursor.execute(f"INSERT INTO rows VALUES ({ROW.format(k=first + row)})"),
        )

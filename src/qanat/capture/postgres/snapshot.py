"""Chunks of PostgreSQL's tables, between two watermarks of its log (Netflix's DBLog, section 3).

The low watermark is the end of what is flushed of the log before a chunk is selected; the high one is a
message that is written into the log after it. What was committed before the low watermark must be seen by the
selection. A commit is flushed before others can see it (how long the flush takes does not matter, therefore):
by microseconds, or, with a synchronous standby, until that has answered. So transactions that were running at
that moment are given a moment to end, and those that only wait for a standby are waited for.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.capture.errors import LogUnreachable
from qanat.capture.postgres.catalogue import Described, describe, published
from qanat.capture.postgres.connection import Questions
from qanat.capture.postgres.decode import decoded, loosened, misfits
from qanat.capture.postgres.positions import before, parse_lsn
from qanat.capture.postgres.reader import settings_of
from qanat.capture.postgres.types import TEXT, Type
from qanat.capture.snapshot import Chunk
from qanat.capture.updates import Op, Run
from qanat.capture.url import LogUrl

SETTLE_S = 0.5
"""How long statements that were running are waited for; a commit that is flushed takes far less to be
seen."""
STANDBY_S = 60.0
TRIES = 10


class PostgresChunks:
    """Rows of tables in the order of their keys."""

    def __init__(self, url: LogUrl, publication: str) -> None:
        self._questions = Questions(url, settled=True)
        self._publication = publication
        self._database: str = self._questions.one("SELECT current_database()")

    def tables(self, _database: str = "") -> tuple[str, ...]:
        """Those of the publication."""
        return published(self._questions, self._publication)

    def chunk(self, table: str, after: tuple[str, ...] | None, limit: int) -> Chunk:
        for _ in range(TRIES):
            described = describe(self._questions, table, self._database)
            low = self._flushed()
            self._settle()
            rows = self._questions.ask(*_statement(described, after, limit))
            time_us = int(self._questions.one("SELECT (extract(epoch FROM now()) * 1000000)::bigint"))
            high = parse_lsn(
                self._questions.one("SELECT pg_logical_emit_message(true, 'qanat', 'watermark')::text")
            )
            # Were it altered meanwhile, the rows would not fit what was read about it.
            if describe(self._questions, table, self._database) == described:
                run = _run(described, rows, low, time_us)
                last = (
                    _key(described, rows[len(run) - 1]) if len(run) == limit or len(run) < len(rows) else None
                )
                return Chunk(run, before(low), before(high), last)
        raise LogUnreachable(f"{table} is altered again and again while it is read")

    def _flushed(self) -> int:
        return parse_lsn(self._questions.one("SELECT pg_current_wal_flush_lsn()::text"))

    def _settle(self) -> None:
        """Returns when what was committed before the low watermark can be seen."""
        began = time.monotonic()
        running: set[str] | None = None
        while True:
            found = self._questions.ask(
                "SELECT backend_xid::text, coalesce(wait_event, '') = 'SyncRep' FROM pg_stat_activity "
                "WHERE backend_xid IS NOT NULL AND state NOT LIKE 'idle%' AND pid <> pg_backend_pid()"
            )
            now = {xid for xid, _ in found}
            running = now if running is None else running & now
            waiting = {xid for xid, standby in found if standby} & running
            passed = time.monotonic() - began
            if not running or (passed > SETTLE_S and not waiting):
                return
            if passed > STANDBY_S:
                raise LogUnreachable("transactions wait for a synchronous standby that does not answer")
            time.sleep(0.002)

    def close(self) -> None:
        self._questions.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _statement(
    described: Described, after: tuple[str, ...] | None, limit: int
) -> tuple[str, tuple[str, ...]]:
    """With its arguments. `format` makes the very texts that are in the log."""
    columns = [_quoted(column.name) for column in described.format.table.columns]
    texts = ", ".join(f"CASE WHEN {name} IS NULL THEN NULL ELSE format('%s', {name}) END" for name in columns)
    key = ", ".join(map(_quoted, described.key))
    table = f"{_quoted(described.relation.schema)}.{_quoted(described.relation.name)}"
    select, order = f"SELECT {texts} FROM ONLY {table}", f" ORDER BY {key} LIMIT {limit}"
    if after is None:
        return select + order, ()
    # Where there are arguments, a percent sign is written twice.
    values = ", ".join(f"%s::{described.casts[name].replace('%', '%%')}" for name in described.key)
    where = f" WHERE ROW({key.replace('%', '%%')}) > ROW({values})"
    return select.replace("%", "%%") + where + order.replace("%", "%%"), after


def _key(described: Described, row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(text for column, text in zip(described.format.table.columns, row, strict=True) if column.key)


def _run(described: Described, rows: list[tuple[Any, ...]], low: int, time_us: int) -> Run:
    """As many of the rows as fit the types in the same way as the first does."""
    form = described.format
    raws = [pa.array(values, pa.string()).cast(pa.binary()) for values in zip(*rows, strict=True)]
    raws = raws or [pa.array([], pa.binary()) for _ in form.types]
    wrong = {
        column.name: misfits(raw, kind)
        for column, kind, raw in zip(form.table.columns, form.types, raws, strict=True)
    }
    count, loose = len(rows), frozenset(name for name, bits in wrong.items() if len(rows) and bits[0])
    for bits in wrong.values():
        changes = np.flatnonzero(bits != bits[:1])
        count = min(count, int(changes[0])) if len(changes) else count
    table = loosened(form.table, loose, frozenset()) if loose else form.table
    types: list[Type] = [
        TEXT if column.name in loose else kind for column, kind in zip(table.columns, form.types, strict=True)
    ]
    arrays = [decoded(raw.slice(0, count), kind) for raw, kind in zip(raws, types, strict=True)]
    return Run(
        table,
        np.full(count, Op.READ, np.uint8),
        np.full(count, low, np.uint64),
        np.arange(count, dtype=np.uint32),
        np.full(count, time_us, np.int64),
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["snapshot"])),
        pa.RecordBatch.from_arrays(arrays, schema=table.arrow),
    )


def open_chunks(url: LogUrl, options: Mapping[str, Any]) -> PostgresChunks:
    return PostgresChunks(replace(url, options=options), settings_of(options).publication)

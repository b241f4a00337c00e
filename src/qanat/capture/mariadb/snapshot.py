"""Chunks of MariaDB's tables, each with the exact position of the log that it is of.

`START TRANSACTION WITH CONSISTENT SNAPSHOT` fixes what InnoDB shows and at the same instant tells the
binlog's place, without a lock: so a chunk's two watermarks are one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.errors import MalformedLog, NotSetUp
from qanat.capture.mariadb import types
from qanat.capture.mariadb.catalogue import Known, known, quoted, selected, tables_of
from qanat.capture.mariadb.connection import Server, Session
from qanat.capture.mariadb.decode_events import Gtid, parse_gtids
from qanat.capture.mariadb.positions import LAST_INDEX, LogFiles
from qanat.capture.mariadb.types import ColumnType
from qanat.capture.snapshot import Chunk
from qanat.capture.updates import Op, Run
from qanat.capture.url import LogUrl
from qanat.events.errors import RemoteError
from qanat.events.position import Position

_NUMBERS = frozenset(
    {types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG, types.NEWDECIMAL, types.YEAR}
)
TRIES = 10


class MariadbChunks:
    """Rows of tables in the order of their primary keys."""

    def __init__(
        self, server: Server, *, database: str = "", domain: int | None = None, zero_dates_null: bool = False
    ) -> None:
        self._server = server
        self._database = database
        self._zero_dates_null = zero_dates_null
        self._session: Session | None = None
        self.domain = LogFiles(self._open(), domain).domain

    def _open(self) -> Session:
        if self._session is None:
            self._session = self._server.connect(raw=True)
            self._session.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self._session.query("SET SESSION time_zone='+00:00', sql_mode=''")
        return self._session

    def tables(self, database: str = "") -> tuple[str, ...]:
        """Those of a database; else of the one of the URL; else all but the server's own."""
        return tuple(tables_of(self._open(), database or self._database))

    def chunk(self, table: str, after: tuple[str, ...] | None, limit: int) -> Chunk:
        try:
            for _ in range(TRIES):
                session = self._open()
                # The definition is read before and after the rows: were it changed between, they would not
                # fit it.
                described = known(session, table)
                session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                gtid = self._where(session)
                try:
                    rows = session.query(_statement(described, after, limit))
                except RemoteError as error:
                    if "definition has changed" not in str(error):
                        raise
                    rows = None
                finally:
                    session.query("COMMIT")
                if rows is not None and known(session, table) == described:
                    return self._chunk(described, rows, gtid, limit)
            raise RemoteError(f"{table} is altered again and again while it is read")
        except (RemoteError, NotSetUp):
            self.close()
            raise

    def _where(self, session: Session) -> Gtid:
        status = dict(session.query("SHOW STATUS LIKE 'binlog_snapshot_%'"))
        place = status.get("Binlog_snapshot_file"), status.get("Binlog_snapshot_position")
        text = session.value("SELECT BINLOG_GTID_POS(%s, CAST(%s AS UNSIGNED))", place)
        if text is None:
            raise RemoteError(f"{self._server} does not tell the place of a snapshot in its log")
        found = [gtid for gtid in parse_gtids(str(text)) if gtid.domain == self.domain]
        return found[0] if found else Gtid(self.domain, 0, 0)

    def _chunk(self, described: Known, rows: Sequence[Sequence[Any]], gtid: Gtid, limit: int) -> Chunk:
        count, width = len(rows), len(described.types)
        columns = list(zip(*rows, strict=True)) if rows else [()] * (width + len(described.key))
        arrays = [
            self._array(columns[at], kind, f"{described.table.path}.{described.table.columns[at].name}")
            for at, kind in enumerate(described.types)
        ]
        run = Run(
            described.table,
            np.full(count, Op.READ, np.uint8),
            np.full(count, gtid.sequence, np.uint64),
            np.arange(count, dtype=np.uint32),
            np.full(count, int(self._open().value("SELECT UNIX_TIMESTAMP()")) * 1_000_000, np.int64),
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([str(gtid)])),
            pa.RecordBatch.from_arrays(arrays, schema=described.table.arrow),
        )
        position = Position(gtid.sequence, LAST_INDEX) if gtid.sequence else Position(0)
        last = tuple(_word(value) for value in rows[-1][width:]) if count == limit else None
        return Chunk(run, position, position, last)

    def _array(self, values: Sequence[Any], kind: ColumnType, where: str) -> pa.Array:
        """From the texts that the server sends; Arrow parses them."""
        target = kind.arrow
        if pa.types.is_binary(target):
            return pa.array([value.encode() if isinstance(value, str) else value for value in values], target)
        texts = pa.array(
            [value.decode() if isinstance(value, bytes) else value for value in values], pa.string()
        )
        if pa.types.is_string(target):
            return texts
        if pa.types.is_duration(target):
            return texts.cast(pa.int64()).view(target)
        if pa.types.is_temporal(target):
            # Zero days and months, which the log's decoder treats the same way.
            impossible = pc.match_substring_regex(texts, r"^0000|-00[- ]|-00$")
            if pc.any(impossible).as_py():
                if not self._zero_dates_null:
                    raise MalformedLog(
                        f"{where} has a zero year, month or day; read with the option zero_dates=null to have"
                        " NULL"
                    )
                texts = pc.if_else(impossible, None, texts)
        try:
            if pa.types.is_timestamp(target):
                return texts.cast(pa.timestamp("us")).view(target)
            return texts.cast(target)
        except pa.ArrowInvalid as error:
            raise MalformedLog(f"{where} has a value that is none of {kind.name}: {error}") from None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _word(value: Any) -> str:
    """A key's value as text; bytes as hexadecimal."""
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)


def _statement(described: Known, after: tuple[str, ...] | None, limit: int) -> str:
    table = described.table
    columns = [
        selected(*parts) for parts in zip(table.columns, described.types, described.data_types, strict=True)
    ]
    key = [quoted(name) for name in described.key]
    order = ", ".join(key)
    where = ""
    if after is not None:
        kinds = {column.name: kind for column, kind in zip(table.columns, described.types, strict=True)}
        values = [_literal(word, kinds[name]) for name, word in zip(described.key, after, strict=True)]
        # (a, b) > (x, y), written out: the server uses its index for this form.
        parts = []
        for at, (name, value) in enumerate(zip(key, values, strict=True)):
            equal = [f"{other} = {same}" for other, same in zip(key[:at], values[:at], strict=True)]
            parts.append("(" + " AND ".join([*equal, f"{name} > {value}"]) + ")")
        where = f" WHERE {key[0]} >= {values[0]} AND (" + " OR ".join(parts) + ")"
    source = f"{quoted(table.database)}.{quoted(table.name)}"
    text = f"SELECT {', '.join([*columns, *key])} FROM {source}{where} ORDER BY {order} LIMIT {limit}"
    return text


def _literal(word: str, kind: ColumnType) -> str:
    if kind.code in _NUMBERS:
        if not word.lstrip("-").replace(".", "", 1).isdigit():
            raise MalformedLog(f"{word!r} is not a key of a snapshot")
        return word
    if word.startswith("0x") and not kind.is_text and kind.code in types.CHARACTERS:
        return f"x'{bytes.fromhex(word[2:]).hex()}'"
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"_utf8mb4'{escaped}'" if kind.is_text else f"'{escaped}'"


def open_chunks(url: LogUrl, options: Mapping[str, Any]) -> MariadbChunks:
    domain = options.get("domain")
    return MariadbChunks(
        Server.of(url, options),
        database=url.name,
        domain=None if domain is None else int(domain),
        zero_dates_null=options.get("zero_dates") == "null",
    )

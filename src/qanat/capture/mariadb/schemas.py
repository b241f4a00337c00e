"""Names of columns where the log has none (`binlog_row_metadata` is not FULL): from the server's catalogue,
if that can be trusted.

The catalogue says what a table is now, and the rows may be older. It holds for them if the table was not
altered since: if its file is older than the rows, or if no statement between them and now could have changed
it. Otherwise the rows are refused, never guessed.
"""

import re
from dataclasses import replace
from typing import Any

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb import types
from qanat.capture.mariadb.connection import Server, Session
from qanat.capture.mariadb.decode_events import (
    Gtid,
    Kind,
    decode_event,
    decode_format,
    decode_gtid,
    decode_query,
)
from qanat.capture.mariadb.decode_table import TableMap
from qanat.capture.mariadb.positions import LogFiles
from qanat.capture.mariadb.statements import Effect, meaning, mentions
from qanat.capture.mariadb.types import ColumnType

_COLUMNS = (
    "SELECT column_name, column_type, data_type, character_set_name, column_key FROM"
    " information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_CREATED = (
    "SELECT UNIX_TIMESTAMP(create_time) FROM information_schema.tables WHERE table_schema = %s AND table_name"
    " = %s"
)
FIX = "SET GLOBAL binlog_row_metadata=FULL makes the log say it, for rows from then on"


class Schemas:
    """Asks once for each table, and again when a statement went by that may have changed it."""

    def __init__(self, server: Server, domain: int) -> None:
        self._server = server
        self._domain = domain
        self._known: dict[tuple[str, str], list[tuple[Any, ...]]] = {}

    def altered(self, statement: str) -> None:
        self._known = {path: rows for path, rows in self._known.items() if not mentions(statement, path[1])}

    def describe(self, bare: TableMap, gtid: Gtid, time_s: int) -> TableMap:
        path = bare.database, bare.name
        if path not in self._known:
            session = self._server.connect()
            try:
                self._known[path] = self._ask(session, bare, gtid, time_s)
            finally:
                session.close()
        return described(bare, self._known[path])

    def _ask(self, session: Session, bare: TableMap, gtid: Gtid, time_s: int) -> list[tuple[Any, ...]]:
        path = bare.database, bare.name
        # In this order: what changes after the catalogue was read is seen by what is read after it.
        rows = session.query(_COLUMNS, path)
        if not rows:
            raise MalformedLog(
                f"the columns of {bare.database}.{bare.name} are not in the log, and the table is not in the"
                f" server (any more, or for this user): rows of transaction {gtid} cannot be named. {FIX}"
            )
        created = session.value(_CREATED, path)
        if created is not None and int(created) >= time_s:
            beside = self._server.beside().connect()
            try:
                self._no_change_since(beside, bare, gtid)
            finally:
                beside.close()
        return rows

    def _no_change_since(self, session: Session, bare: TableMap, gtid: Gtid) -> None:
        """Reads the log from these rows to its end for statements that could be about their table."""
        files = LogFiles(session, self._domain)
        latest = files.latest()
        session.dump(files.file_of(gtid.sequence), 4, wait=False)
        checksummed = False
        beyond = False
        while (found := session.events(30)) is not None:
            for data in found:
                if data[4] not in _LOOKED_AT:
                    continue
                event = decode_event(data, checksummed)
                if event.kind == Kind.FORMAT:
                    checksummed = decode_format(event)
                elif event.kind == Kind.GTID:
                    other, _ = decode_gtid(event)
                    if other.domain == gtid.domain:
                        beyond = other.sequence > gtid.sequence
                        if latest is not None and other.sequence > latest.sequence:
                            return
                elif beyond:
                    database, statement = decode_query(event)
                    if meaning(database, statement).effect is Effect.SCHEMA and mentions(
                        statement, bare.name
                    ):
                        raise MalformedLog(
                            f"the columns of {bare.database}.{bare.name} in transaction {gtid} are not known:"
                            " the log does not name them, and the table was changed after it"
                            f" ({statement[:80]}). {FIX}; for older ones read from a snapshot"
                        )


_LOOKED_AT = (Kind.FORMAT, Kind.GTID, Kind.QUERY, Kind.COMPRESSED_QUERY)


def described(bare: TableMap, rows: list[tuple[Any, ...]]) -> TableMap:
    """The table map with what the catalogue says; refused if the two do not fit."""
    if len(rows) != len(bare.types):
        raise MalformedLog(
            f"{bare.database}.{bare.name} has {len(rows)} columns now, and {len(bare.types)} in the log: it"
            f" was changed. {FIX}"
        )
    columns = []
    for kind, (name, column_type, data_type, charset, _) in zip(bare.types, rows, strict=True):
        if kind.code not in _CODES.get(data_type, _ANY):
            raise MalformedLog(
                f"{bare.database}.{bare.name}: column {name} is {column_type} now, and was of another type."
                f" {FIX}"
            )
        columns.append(_column(kind, column_type, charset))
    keys = frozenset(at for at, row in enumerate(rows) if row[4] == "PRI")
    return replace(bare, types=tuple(columns), names=tuple(row[0] for row in rows), keys=keys)


_CODES = {
    "tinyint": {types.TINY}, "smallint": {types.SHORT}, "mediumint": {types.INT24}, "int": {types.LONG},
    "bigint": {types.LONGLONG}, "float": {types.FLOAT}, "double": {types.DOUBLE},
    "decimal": {types.NEWDECIMAL}, "date": {types.DATE, types.NEWDATE}, "datetime": {types.DATETIME,
    types.DATETIME2}, "timestamp": {types.TIMESTAMP, types.TIMESTAMP2}, "time": {types.TIME, types.TIME2},
    "year": {types.YEAR}, "bit": {types.BIT}, "enum": {types.ENUM}, "set": {types.SET},
}  # fmt: skip
_ANY = types.CHARACTERS | {types.GEOMETRY}


def _column(kind: ColumnType, column_type: str, charset: str | None) -> ColumnType:
    members = members_of(column_type) if kind.code in (types.ENUM, types.SET) else ()
    return replace(
        kind,
        unsigned="unsigned" in column_type or kind.code == types.YEAR,
        charset=charset or "binary",
        members=members,
        declared="" if kind.code in types.CHARACTERS else column_type,
    )


def members_of(declared: str) -> tuple[str, ...]:
    """The values of an ENUM or SET as the catalogue prints its declaration."""
    return tuple(
        one.replace("''", "'").replace("\\\\", "\\")
        for one in re.findall(r"'((?:[^'\\]|\\.|'')*)'", declared)
    )

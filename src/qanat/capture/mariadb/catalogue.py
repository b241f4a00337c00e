"""Tables as the server's catalogue has them now, with the same columns and types that the log would give."""

from typing import Any, NamedTuple

from qanat.capture.errors import NotSetUp
from qanat.capture.mariadb import types
from qanat.capture.mariadb.charsets import is_text
from qanat.capture.mariadb.connection import Session
from qanat.capture.mariadb.schemas import members_of
from qanat.capture.mariadb.types import ColumnType
from qanat.capture.table import Column, Table

_CODES = {
    "tinyint": types.TINY, "smallint": types.SHORT, "mediumint": types.INT24, "int": types.LONG,
    "bigint": types.LONGLONG, "float": types.FLOAT, "double": types.DOUBLE, "decimal": types.NEWDECIMAL,
    "date": types.DATE, "year": types.YEAR, "datetime": types.DATETIME2, "timestamp": types.TIMESTAMP2,
    "time": types.TIME2, "bit": types.BIT, "enum": types.ENUM, "set": types.SET, "char": types.STRING,
    "binary": types.STRING, "varchar": types.VARCHAR, "varbinary": types.VARCHAR, "uuid": types.STRING,
    "inet6": types.STRING, "inet4": types.STRING,
}  # fmt: skip
_BLOBS = {"tiny": 1, "": 2, "medium": 3, "long": 4}
_BLOBS = {size + kind: width for size, width in _BLOBS.items() for kind in ("text", "blob")}
_COLUMNS = (
    "SELECT column_name, column_type, data_type, character_set_name, column_key, character_octet_length,"
    " numeric_precision, numeric_scale, datetime_precision FROM information_schema.columns WHERE table_schema"
    " = %s AND table_name = %s ORDER BY ordinal_position"
)
_KEY = (
    "SELECT column_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s AND"
    " index_name = 'PRIMARY' ORDER BY seq_in_index"
)
_ENGINE = (
    "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s AND table_type"
    " = 'BASE TABLE'"
)


class Known(NamedTuple):
    table: Table
    types: tuple[ColumnType, ...]
    data_types: tuple[str, ...]
    """As the catalogue names them, since some differ in nothing but how they are selected."""
    key: tuple[str, ...]
    """In the order of the primary key, which may differ from that of the columns."""


def tables_of(session: Session, database: str) -> list[str]:
    """The base tables of a database, or of all but the server's own."""
    statement = (
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND"
        " table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') AND (table_schema"
        " = %s OR %s = '') ORDER BY 1, 2"
    )
    return [f"{schema}.{name}" for schema, name in session.query(statement, (database, database))]


def known(session: Session, path: str) -> Known:
    """Raises `NotSetUp` if the table cannot be read in chunks."""
    database, _, name = path.partition(".")
    engine = session.value(_ENGINE, (database, name))
    if engine is None:
        raise NotSetUp(
            f"there is no table {path}, or user {session.server.user!r} may not read it: GRANT SELECT ON"
            f" {path}"
        )
    if engine != "InnoDB":
        raise NotSetUp(
            f"{path} is of {engine}, whose rows have no position in the log: ALTER TABLE {path} ENGINE=InnoDB"
        )
    key = tuple(row[0] for row in session.query(_KEY, (database, name)))
    rows = session.query(_COLUMNS, (database, name))
    kinds = tuple(_kind(*row) for row in rows)
    data_types = tuple(row[2] for row in rows)
    unordered = {row[0] for row, kind in zip(rows, kinds, strict=True) if kind.code in _UNORDERED}
    if not key or unordered & set(key):
        why = (
            "has no primary key"
            if not key
            else f"has a {' and '.join(unordered & set(key))} in its primary key that has no order"
        )
        raise NotSetUp(
            f"{path} {why}, by which it could be read in chunks: ALTER TABLE {path} ADD PRIMARY KEY (…)"
        )
    columns = tuple(
        Column(row[0], kind.arrow, kind.name, row[0] in key) for row, kind in zip(rows, kinds, strict=True)
    )
    return Known(Table(database, "", name, columns), kinds, data_types, key)


_UNORDERED = {types.ENUM, types.SET, types.BIT, types.FLOAT, types.DOUBLE, types.GEOMETRY}


def _kind(
    name: str,
    declared: str,
    data_type: str,
    charset: str | None,
    key: str,
    octets: Any,
    precision: Any,
    scale: Any,
    fraction: Any,
) -> ColumnType:
    code = _CODES.get(data_type, types.GEOMETRY)
    charset = charset or "binary"
    unsigned = "unsigned" in declared
    compressed = "COMPRESSED" in declared
    if data_type in _BLOBS:
        return ColumnType(
            types.BLOB_COMPRESSED if compressed else types.BLOB, _BLOBS[data_type], charset=charset
        )
    match code:
        case types.NEWDECIMAL:
            return ColumnType(code, int(precision) | int(scale) << 8, unsigned)
        case types.DATETIME2 | types.TIMESTAMP2 | types.TIME2:
            return ColumnType(code, int(fraction or 0))
        case types.BIT:
            return ColumnType(code, int(precision) % 8 | int(precision) // 8 << 8)
        case types.ENUM | types.SET:
            members = members_of(declared)
            width = (
                (1 if len(members) < 256 else 2) if code == types.ENUM else max((len(members) + 7) // 8, 1)
            )
            return ColumnType(
                code, 8 if code == types.SET and width > 4 else width, charset=charset, members=members
            )
        case types.VARCHAR:
            code = types.VARCHAR_COMPRESSED if compressed else code
            return ColumnType(code, int(octets) + compressed, charset=charset)
        case types.STRING:
            size = {"uuid": 16, "inet6": 16, "inet4": 4}.get(data_type) or int(octets)
            return ColumnType(code, size, charset=charset)
        case types.GEOMETRY:
            return ColumnType(code, 4)
        case types.FLOAT | types.DOUBLE:
            return ColumnType(code, 4 if code == types.FLOAT else 8, unsigned)
    return ColumnType(code, 0, unsigned)


def selected(column: Column, kind: ColumnType, data_type: str) -> str:
    """An expression whose text is the value, with nothing lost."""
    name = quoted(column.name)
    if data_type == "uuid":
        return f"UNHEX(REPLACE({name}, '-', ''))"
    if data_type in ("inet6", "inet4"):
        return f"INET6_ATON(CAST({name} AS CHAR))"
    if kind.code == types.FLOAT:
        return f"CAST({name} AS DOUBLE)"  # as a FLOAT it would be printed with six digits
    if kind.code == types.BIT:
        return f"CAST({name} AS UNSIGNED)"
    if kind.code == types.TIME2:
        return f"CAST(TIME_TO_SEC({name}) * 1000000 AS SIGNED)"
    if kind.code in types.CHARACTERS and not is_text(kind.charset):
        return f"CAST({name} AS BINARY)"
    return name


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

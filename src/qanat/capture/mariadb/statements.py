"""What a logged statement means to a reader of rows."""

import re
from enum import Enum, auto
from typing import NamedTuple

from qanat.capture.mariadb.decode_events import verb

_NAME = r"(?:`(?:[^`]|``)+`|[\w$\u0080-\uffff]+)"
_PATH = rf"({_NAME})(?:\s*\.\s*({_NAME}))?"
_SPACE = re.compile(r"/\*(?!M?!).*?\*/|--[ \t][^\n]*\n|#[^\n]*\n", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`", re.DOTALL)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_PATH}", re.IGNORECASE)
_EMPTIED = re.compile(rf"DELETE\s+FROM\s+{_PATH}\s*$", re.IGNORECASE)
_DROP = re.compile(r"DROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?(.*)$", re.IGNORECASE | re.DOTALL)
_REPLACED = re.compile(rf"CREATE\s+OR\s+REPLACE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_PATH}", re.IGNORECASE)
_CREATE_TABLE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b", re.IGNORECASE)

_CHANGES_ROWS = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "EXECUTE", "DO", "SELECT", "BEGIN_LOAD"}
)


class Effect(Enum):
    COMMIT = auto()
    ROLLBACK = auto()
    NOTHING = auto()
    """Begins something, or sets something up."""
    SCHEMA = auto()
    """A change of definitions; `emptied` are the tables that lost all their rows by it."""
    ROWS = auto()
    """Changes rows by a statement, so that the rows are not in the log."""


class Meaning(NamedTuple):
    effect: Effect
    emptied: tuple[tuple[str, str], ...] = ()


def meaning(database: str, statement: str) -> Meaning:
    word = verb(statement)
    if word in ("COMMIT", "ROLLBACK"):
        return Meaning(Effect[word])
    if word in ("BEGIN", "START", "SAVEPOINT", "RELEASE", "SET", "FLUSH", "GRANT", "REVOKE", "ANALYZE"):
        return Meaning(Effect.NOTHING)
    text = _SPACE.sub(" ", statement).strip()
    if word == "DELETE" and (found := _EMPTIED.match(text)):
        # So a server that comes up again empties its tables in memory.
        return Meaning(Effect.SCHEMA, (_path(database, found.group(1), found.group(2)),))
    if word in _CHANGES_ROWS:
        return Meaning(Effect.ROWS)
    if word == "TRUNCATE" and (found := _TRUNCATE.match(text)):
        return Meaning(Effect.SCHEMA, (_path(database, found.group(1), found.group(2)),))
    if word == "DROP" and (found := _DROP.match(text)):
        names = re.findall(
            _PATH + r"\s*(?:,|$|WAIT\b|NOWAIT\b|RESTRICT\b|CASCADE\b)", found.group(1), re.IGNORECASE
        )
        return Meaning(Effect.SCHEMA, tuple(_path(database, first, second) for first, second in names))
    if word == "CREATE" and _CREATE_TABLE.match(text):
        if re.search(r"\bSELECT\b", _QUOTED.sub("''", text), re.IGNORECASE):
            return Meaning(Effect.ROWS)
        if found := _REPLACED.match(text):
            return Meaning(Effect.SCHEMA, (_path(database, found.group(1), found.group(2)),))
    return Meaning(Effect.SCHEMA)


def mentions(statement: str, name: str) -> bool:
    """Whether a change of definitions could be one of this table; sure when it says no."""
    text = statement.lower()
    named = name.lower() in text or name.lower().replace("`", "``") in text
    return named or (verb(statement) in ("DROP", "RENAME") and "database" in text)


def _path(database: str, first: str, second: str) -> tuple[str, str]:
    names = [
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in (first, second or "")
        if part
    ]
    return (names[0], names[1]) if len(names) == 2 else (database, names[0])

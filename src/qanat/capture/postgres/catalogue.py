"""Tables as the catalogue has them now, in the same form as the log describes them."""

from typing import NamedTuple

from qanat.capture.errors import NotSetUp
from qanat.capture.postgres.connection import Questions
from qanat.capture.postgres.messages import Attribute, Relation
from qanat.capture.postgres.rows import Format, format_of

_OWN_TYPES = 10000
"""Types with smaller numbers come with PostgreSQL; `pgoutput` names only the others."""


class Described(NamedTuple):
    """A table with what is needed to select from it."""

    format: Format
    relation: Relation
    key: tuple[str, ...]
    casts: dict[str, str]
    """The declared type of each column, for comparisons."""


def primary_key(questions: Questions, table: int) -> frozenset[str]:
    found = questions.ask(
        "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey) "
        "WHERE indrelid = %s AND indisprimary",
        [table],
    )
    return frozenset(name for (name,) in found)


def published(questions: Questions, publication: str) -> tuple[str, ...]:
    found = questions.ask(
        "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1",
        [publication],
    )
    return tuple(name for (name,) in found)


def describe(questions: Questions, name: str, database: str) -> Described:
    """`name` is `schema.table`."""
    schema, dot, table = name.rpartition(".")
    if not dot:
        schema = "public"
    found = questions.ask(
        "SELECT c.oid::bigint, c.relreplident, c.relnamespace::regnamespace::text FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
        [schema, table],
    )
    if not found:
        raise NotSetUp(f"there is no table {name}")
    number, identity, _ = found[0]
    index = "indisreplident" if identity == "i" else "indisprimary"
    columns = questions.ask(
        "WITH RECURSIVE base(own, oid, typname, typtype, typbasetype) AS (SELECT oid, oid, typname, typtype,"
        " typbasetype FROM pg_type UNION ALL SELECT base.own, t.oid, t.typname, t.typtype, t.typbasetype"
        " FROM base JOIN pg_type t ON t.oid = base.typbasetype WHERE base.typtype = 'd') SELECT a.attname,"
        " a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod), coalesce(a.attnum = ANY"
        " (i.indkey), false), base.typname FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid ="
        f" a.attrelid AND i.{index} JOIN base ON base.own = a.atttypid AND base.typtype <> 'd' WHERE"
        " a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        [number],
    )
    relation = Relation(
        number,
        schema,
        table,
        identity,
        tuple(
            Attribute(column, kind, modifier, key and identity != "n")
            for column, kind, modifier, _, key, _ in columns
        ),
    )
    names = {kind: named for _, kind, _, _, _, named in columns if kind >= _OWN_TYPES}
    form = format_of(relation, names, database)
    if not form.table.key:
        raise NotSetUp(
            f"the table {name} has no primary key or other replica identity by which a snapshot could read it"
            " in parts: add one"
        )
    return Described(form, relation, form.table.key, {column: cast for column, _, _, cast, _, _ in columns})

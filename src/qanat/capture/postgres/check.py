"""Whether a PostgreSQL is set up so that its log can be read, and the statement for each thing that is
not."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from qanat.capture.postgres.connection import STANDBY_DECODES, Questions
from qanat.capture.postgres.reader import Settings, settings_of
from qanat.capture.postgres.slot import Slot
from qanat.capture.url import Finding, LogUrl

OLDEST = 140000
"""The first version that can send large transactions in parts, and messages."""
_SHOWN = 5
_TABLES = """
SELECT quote_ident(n.nspname), quote_ident(c.relname),
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^(pg_|information_schema$)' AND CASE
    WHEN EXISTS (SELECT FROM pg_publication WHERE pubname = %s)
    THEN EXISTS (SELECT FROM pg_publication_tables p
                 WHERE p.pubname = %s AND p.schemaname = n.nspname AND p.tablename = c.relname)
    WHEN cardinality(%s::text[]) > 0
    THEN c.oid IN (SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
    ELSE true END
ORDER BY 1, 2
"""
"""Those that are published, or would be, with whether this role may read them."""


def check(url: LogUrl, options: Mapping[str, Any]) -> list[Finding]:
    settings = settings_of(options)
    questions = Questions(replace(url, options=options))
    try:
        slot = Slot(questions, settings.slot, settings.publication, settings.tables)
        looks: list[Callable[[Questions, Slot, Settings], list[Finding]]] = [
            _version,
            _wal_level,
            _privileges,
            _select_rights,
            _slot,
            _room,
            _publication,
            _identities,
            _retention,
        ]
        return [finding for look in looks for finding in look(questions, slot, settings)]
    finally:
        questions.close()


def _version(questions: Questions, _slot: Slot, _settings: Settings) -> list[Finding]:
    version, standby, text = questions.ask(
        "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),"
        " current_setting('server_version')"
    )[0]
    found = [
        Finding(
            version >= OLDEST,
            f"the server is PostgreSQL {text}",
            "" if version >= OLDEST else "use version 14 or later",
        )
    ]
    if standby:
        fix = "connect to the primary, or promote this server: SELECT pg_promote()"
        able = version >= STANDBY_DECODES
        said = "can decode its log" if able else "cannot decode its log before version 16"
        found.append(Finding(able, f"the server is a standby, which {said}", "" if able else fix))
    return found


def _wal_level(questions: Questions, _slot: Slot, _settings: Settings) -> list[Finding]:
    level = questions.one("SHOW wal_level")
    fix = "ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
    return [Finding(level == "logical", f"wal_level is {level}", "" if level == "logical" else fix)]


def _privileges(questions: Questions, slot: Slot, settings: Settings) -> list[Finding]:
    user, replicates = questions.ask(
        "SELECT rolname, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
    )[0]
    found = [
        Finding(
            replicates,
            f"the role {user} may {'' if replicates else 'not '}replicate",
            "" if replicates else f'ALTER ROLE "{user}" REPLICATION',
        )
    ]
    if settings.create and not slot.has_publication():
        found.append(_may_publish(questions, slot, user))
    return found


def _may_publish(questions: Questions, slot: Slot, user: str) -> Finding:
    """All tables are published by a superuser alone, and single ones by their owner."""
    if not slot.tables:
        superuser = questions.one("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        fix = (
            f"as a superuser: {slot.publish_statement()}; or name this role's own tables by the option"
            " tables="
        )
        what = f"the role {user} may {'' if superuser else 'not '}publish all tables"
        return Finding(superuser, what, "" if superuser else fix)
    may = questions.one("SELECT has_database_privilege(current_database(), 'CREATE')")
    fix = f'GRANT CREATE ON DATABASE "{questions.one("SELECT current_database()")}" TO "{user}"'
    return Finding(
        may, f"the role {user} may {'' if may else 'not '}create a publication", "" if may else fix
    )


def _select_rights(questions: Questions, slot: Slot, settings: Settings) -> list[Finding]:
    """The log has its rows whoever may read the tables; a snapshot selects from them."""
    tables = questions.ask(
        _TABLES, [slot.publication, slot.publication, list(slot.tables), list(slot.tables)]
    )
    closed = [(schema, table) for schema, table, readable in tables if not readable]
    user = questions.one("SELECT quote_ident(current_user)")
    if not closed:
        return [Finding(True, f"the role {user} may read all {len(tables)} tables that are to be published")]
    named = ", ".join(f"{schema}.{table}" for schema, table in closed[:_SHOWN])
    more = f" and {len(closed) - _SHOWN} more" if len(closed) > _SHOWN else ""
    fixes = [
        f"GRANT USAGE ON SCHEMA {schema} TO {user}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {user};"
        for schema in dict.fromkeys(schema for schema, _ in closed)
    ]
    what = f"the role {user} may not read {named}{more}: --from snapshot fails there"
    return [Finding(False, what, "\n".join(fixes), needed=False)]


def _slot(questions: Questions, slot: Slot, settings: Settings) -> list[Finding]:
    if questions.one("SHOW wal_level") != "logical":
        return []
    state = slot.state()
    made = f"{slot.create_statement()}, or open with create=yes"
    if state is None:
        return [Finding(settings.create, f"there is no replication slot {slot.name}", made)]
    if state.lost:
        return [
            Finding(
                False,
                f"the replication slot {slot.name} has lost its log",
                f"{slot.drop_statement()}; {made}",
            )
        ]
    behind = (slot.flushed() - state.confirmed) / (1 << 20)
    busy = "" if state.active_pid is None else f", and has a reader (process {state.active_pid})"
    return [Finding(True, f"the replication slot {slot.name} is {behind:.1f} MiB behind{busy}")]


def _room(questions: Questions, slot: Slot, _settings: Settings) -> list[Finding]:
    slots, most_slots, senders, most_senders = questions.ask(
        "SELECT (SELECT count(*) FROM pg_replication_slots WHERE slot_name <> %s), "
        "current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_stat_replication), "
        "current_setting('max_wal_senders')::int",
        [slot.name],
    )[0]
    found = []
    for name, used, most in (
        ("max_replication_slots", slots, most_slots),
        ("max_wal_senders", senders, most_senders),
    ):
        fix = f"ALTER SYSTEM SET {name} = {max(most * 2, 10)}; then restart the server"
        found.append(
            Finding(
                used < most,
                f"{name} is {most}, of which {used} are taken by others",
                "" if used < most else fix,
            )
        )
    return found


def _publication(questions: Questions, slot: Slot, settings: Settings) -> list[Finding]:
    found = questions.ask(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = %s",
        [slot.publication],
    )
    if not found:
        fix = f"{slot.publish_statement()}, or open with create=yes"
        return [Finding(settings.create, f"there is no publication {slot.publication}", fix)]
    (whole,) = found[0]
    tables = questions.one(
        "SELECT count(*) FROM pg_publication_tables WHERE pubname = %s", [slot.publication]
    )
    fix = f"ALTER PUBLICATION \"{slot.publication}\" SET (publish = 'insert, update, delete, truncate')"
    said = f"the publication {slot.publication} has {tables} tables" + (
        "" if whole else ", but not all operations"
    )
    return [Finding(whole, said, "" if whole else fix)]


def _identities(questions: Questions, slot: Slot, _settings: Settings) -> list[Finding]:
    """A table without any refuses updates and deletions once it is published."""
    found = questions.ask(
        "SELECT format('%%I.%%I', p.schemaname, p.tablename), c.relreplident FROM pg_publication_tables p"
        " JOIN pg_namespace n ON n.nspname = p.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND"
        " c.relname = p.tablename WHERE p.pubname = %s AND (c.relreplident = 'n' OR c.relreplident = 'd' AND"
        " NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)) ORDER BY 1",
        [slot.publication],
    )
    if not found:
        return [Finding(True, "every published table has a replica identity")]
    findings = [
        Finding(
            False,
            f"the table {name} has no replica identity: updates and deletions fail there",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL; better, give it a primary key",
        )
        for name, _ in found[:_SHOWN]
    ]
    if len(found) > _SHOWN:
        findings.append(
            Finding(False, f"so have {len(found) - _SHOWN} more tables", "the same for each of them")
        )
    return findings


def _retention(questions: Questions, _slot: Slot, _settings: Settings) -> list[Finding]:
    kept = questions.one("SHOW max_slot_wal_keep_size")
    if kept == "-1":
        what = "a slot that nobody reads keeps log until the disk is full (max_slot_wal_keep_size is -1)"
        fix = (
            "to bound it, at the price of losing the slot: ALTER SYSTEM SET max_slot_wal_keep_size = '64GB';"
            " SELECT pg_reload_conf()"
        )
        return [Finding(False, what, fix, needed=False)]
    return [Finding(True, f"a slot that is more than {kept} behind is lost (max_slot_wal_keep_size)")]

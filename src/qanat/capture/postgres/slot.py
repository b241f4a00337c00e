"""The replication slot: where the server keeps how far the log is no longer needed, and what becomes of it.

A slot that is confirmed up to an LSN sends no transaction that was committed before. While a database is idle
the slot still has to move on, or it would pin the WAL of all others; but whoever resumes knows only the last
update that he has, which then lies before the slot's LSN. So before a slot is moved past WAL without updates,
a note is left on the server of what is known to be empty: `after` the last update, `upto` the LSN. It is a
setting of the role that reads, `qanat.slot_<name>`, which every role may give itself.
"""

import re
from typing import NamedTuple

from qanat.capture.errors import BadLogUrl, NotSetUp
from qanat.capture.postgres.connection import STANDBY_DECODES, Questions
from qanat.capture.postgres.positions import before, lsn_text, parse_lsn
from qanat.events.position import Position

_NAME = re.compile(r"[a-z0-9_]{1,63}")
_TABLE = re.compile(r"[^\s.\"']+(\.[^\s.\"']+)?")


class SlotState(NamedTuple):
    plugin: str
    database: str
    confirmed: int
    lost: bool
    active_pid: int | None


class Note(NamedTuple):
    """No update lies between the two."""

    after: Position
    upto: int

    def covers(self, confirmed: int) -> bool:
        """Whether nothing but this lies before a slot that is confirmed up to there, as far as it went since
        `after`."""
        return self.after.sequence <= confirmed <= self.upto


class Slot:
    """One slot and its publication, seen through an ordinary session."""

    def __init__(self, questions: Questions, name: str, publication: str, tables: tuple[str, ...]) -> None:
        if _NAME.fullmatch(name) is None:
            raise BadLogUrl(f"{name!r} cannot name a slot; use small letters, digits and _")
        for table in tables:
            if _TABLE.fullmatch(table) is None:
                raise BadLogUrl(f"{table!r} cannot name a table; write schema.table")
        self._questions = questions
        self.name = name
        self.publication = publication
        self.tables = tables

    def create_statement(self) -> str:
        return f"SELECT pg_create_logical_replication_slot('{self.name}', 'pgoutput')"

    def drop_statement(self) -> str:
        return f"SELECT pg_drop_replication_slot('{self.name}')"

    def publish_statement(self) -> str:
        if not self.tables:
            return f"CREATE PUBLICATION {_quoted(self.publication)} FOR ALL TABLES"
        named = ", ".join(".".join(map(_quoted, table.split("."))) for table in self.tables)
        return f"CREATE PUBLICATION {_quoted(self.publication)} FOR TABLE {named}"

    def refuse_standby(self) -> None:
        standby, version = self._questions.ask(
            "SELECT pg_is_in_recovery(), current_setting('server_version_num')::int"
        )[0]
        if standby and version < STANDBY_DECODES:
            raise NotSetUp(
                "this server is a standby, and PostgreSQL decodes the log of a standby only since version 16:"
                " connect to the primary, or promote this one (SELECT pg_promote())"
            )

    def state(self) -> SlotState | None:
        found = self._questions.ask(
            "SELECT plugin, database, confirmed_flush_lsn::text, wal_status, active_pid "
            "FROM pg_replication_slots WHERE slot_name = %s",
            [self.name],
        )
        if not found:
            return None
        plugin, database, confirmed, status, pid = found[0]
        here = self._questions.one("SELECT current_database()")
        if plugin != "pgoutput" or database != here:
            raise NotSetUp(
                f"the slot {self.name!r} is of plugin {plugin} and database {database}, not of pgoutput and"
                f" {here}; name another one by the option slot="
            )
        lost = status == "lost" or confirmed is None
        return SlotState(plugin, database, 0 if lost else parse_lsn(confirmed), lost, pid)

    def has_publication(self) -> bool:
        return bool(
            self._questions.ask("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication])
        )

    def make(self, state: SlotState | None) -> SlotState:
        """The publication first: rows from before it existed cannot be decoded."""
        if not self.has_publication():
            self._questions.ask(self.publish_statement())
        if state is not None:
            self._questions.ask(self.drop_statement())
        self._questions.ask(self.create_statement())
        made = self.state()
        if made is None:
            raise NotSetUp(f"the slot {self.name!r} was dropped as soon as it was made")
        return made

    def advance(self, lsn: int, least: int) -> None:
        """Without a reader, by so many bytes of WAL at least."""
        state = self.state()
        if (
            state is None
            or state.lost
            or state.active_pid is not None
            or lsn - state.confirmed < max(1, least)
        ):
            return
        self._questions.ask("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self.name, lsn_text(lsn)])

    def leave_note(self, note: Note) -> None:
        self._questions.ask(
            f"ALTER ROLE CURRENT_USER IN DATABASE {_quoted(self._questions.one('SELECT current_database()'))}"
            f" SET qanat.slot_{self.name} = '{note.after}/{note.upto}'"
        )

    def note(self) -> Note | None:
        found = self._questions.ask(
            "SELECT split_part(setting, '=', 2) FROM pg_db_role_setting, unnest(setconfig) AS setting "
            "WHERE setrole = current_user::regrole AND split_part(setting, '=', 1) = %s",
            [f"qanat.slot_{self.name}"],
        )
        if not found:
            return None
        after, _, upto = found[0][0].partition("/")
        return Note(Position.parse(after), int(upto))

    def emit(self, content: str) -> None:
        """Puts a message into the log that is no update."""
        self._questions.ask("SELECT pg_logical_emit_message(false, 'qanat', %s)", [content])

    def flushed(self) -> int:
        """The end of the log. (Before, on a standby that is allowed: what it has replayed.)"""
        return parse_lsn(
            self._questions.one(
                "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() "
                "ELSE pg_current_wal_flush_lsn() END)::text"
            )
        )

    def empty_between(self, position: Position, confirmed: int) -> bool:
        """Whether nothing was lost by a slot that is ahead of the position."""
        note = self.note()
        return note is not None and position >= note.after and confirmed <= note.upto

    def oldest(self, state: SlotState) -> Position:
        return before(state.confirmed)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

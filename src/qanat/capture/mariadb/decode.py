"""From events to updates: transactions are held until their commit is read, then their rows are decoded
together.

An event that is whole and cannot be read (of a table that nobody can describe, a statement where rows should
be, a part of an XA transaction) is told in `unread` at its place among the rows; what is wrong with the log
itself, or leaves open what happened, is raised.
"""

from collections.abc import Callable
from typing import NamedTuple

from qanat.capture.errors import MalformedLog
from qanat.capture.mariadb import decode_events as events
from qanat.capture.mariadb.columns import RowEvents, to_runs
from qanat.capture.mariadb.decode_events import Event, Gtid, Kind
from qanat.capture.mariadb.decode_table import (
    TableMap,
    decode_rows_head,
    decode_table_map,
    table_name,
)
from qanat.capture.mariadb.statements import Effect, meaning
from qanat.capture.mariadb.versions import Version, Versions
from qanat.capture.updates import Op, Updates
from qanat.events.position import Position

LAST_INDEX = 2**32 - 1
"""A position with this index is after all rows of its transaction."""


class Describe(NamedTuple):
    """Where the names of columns come from if the log does not have them. `MalformedLog` if they can be had
    from nowhere."""

    describe: Callable[[TableMap, Gtid, int], TableMap]
    """Of this table, for rows of this transaction, logged at this time (s)."""
    altered: Callable[[str], None]
    """A statement went by that changes definitions."""


def _unknown(described: TableMap, gtid: Gtid, time_s: int) -> TableMap:
    raise MalformedLog(
        f"the log does not say how the columns of {described.database}.{described.name} are called"
        f" (transaction {gtid}): SET GLOBAL binlog_row_metadata=FULL"
    )


NOWHERE = Describe(_unknown, lambda statement: None)

_ROWS: dict[int, tuple[Op, int, bool]] = {
    Kind.WRITE_ROWS_V1: (Op.INSERT, 1, False), Kind.WRITE_ROWS: (Op.INSERT, 2, False),
    Kind.UPDATE_ROWS_V1: (Op.UPDATE, 1, False), Kind.UPDATE_ROWS: (Op.UPDATE, 2, False),
    Kind.DELETE_ROWS_V1: (Op.DELETE, 1, False), Kind.DELETE_ROWS: (Op.DELETE, 2, False),
    Kind.COMPRESSED_WRITE_ROWS_V1: (Op.INSERT, 1, True), Kind.COMPRESSED_WRITE_ROWS: (Op.INSERT, 2, True),
    Kind.COMPRESSED_UPDATE_ROWS_V1: (Op.UPDATE, 1, True), Kind.COMPRESSED_UPDATE_ROWS: (Op.UPDATE, 2, True),
    Kind.COMPRESSED_DELETE_ROWS_V1: (Op.DELETE, 1, True), Kind.COMPRESSED_DELETE_ROWS: (Op.DELETE, 2, True),
}  # fmt: skip


_SAY_NOTHING = frozenset(
    {
        Kind.ANNOTATE,
        Kind.CHECKPOINT,
        Kind.HEARTBEAT,
        Kind.GTID_LIST,
        Kind.INTVAR,
        Kind.RAND,
        Kind.USER_VAR,
        Kind.STOP,
        Kind.BEGIN_LOAD,
        Kind.ENCRYPTION,  # of the file; what comes from a server is plain
    }
)
_OF_A_TRANSACTION = frozenset({*_ROWS, Kind.TABLE_MAP, Kind.EXECUTE_LOAD, Kind.INCIDENT})
_UPDATES = frozenset({*_ROWS, Kind.QUERY, Kind.COMPRESSED_QUERY, Kind.EXECUTE_LOAD})
"""What may be left out when it cannot be read."""


class _Misplaced(MalformedLog):
    """An event that may be well, but not where it is: what comes before it was not all there."""


class _Ill(NamedTuple):
    """A table map that cannot be read."""

    why: str
    event: bytes
    version: Version


class Decoder:
    """Fed with the events of a log, gives updates. Pure: what it cannot find in the events it asks
    `describe`.

    Transactions up to and with `after.sequence - 1` are passed over unread, as are those of other domains.
    `database`: only tables of this one are decoded (all are counted, so that positions do not depend on the
    choice). `dense`: a log that does not begin with transaction `after.sequence` has a gap there.
    """

    def __init__(
        self,
        domain: int,
        after: Position = Position(0),  # noqa: B008  # immutable
        describe: Describe = NOWHERE,
        *,
        dense: bool = False,
        database: str = "",
        zero_dates_null: bool = False,
    ) -> None:
        self._domain = domain
        self._first = after.sequence
        self._describe = describe
        self._database = database
        self._zero_dates_null = zero_dates_null
        self._checksummed = False
        self._versions = Versions()
        self._by_body: dict[bytes, tuple[int, Version]] = {}
        self._by_id: dict[int, Version] = {}
        self._ill: dict[int, _Ill] = {}
        self._heads: dict[tuple[int, bytes], tuple[int, bytes, Version]] = {}
        self._gtid: Gtid | None = None
        """The open transaction."""
        self._passing = False
        """The open transaction is not to be read."""
        self._spoiled = ""
        """Why nothing of the open transaction can be read."""
        self._time_s = 0
        self._standalone = False
        self._given = 0
        """Rows of the open transaction that were given before its commit."""
        self._last = max(after.sequence, 1) - 1 if dense else 0
        self._rolled_back = 0
        self._dense = dense
        self.gaps: list[tuple[int, int]] = []
        """Sequence numbers that the log does not have: after the first up to the second of each pair."""
        self._rows = RowEvents()
        self._committed = 0
        """So many of the row events are of committed transactions."""
        self._upto: Position | None = None
        self.unread: list[MalformedLog] = []
        """What could not be decoded of what was taken, in its order, each with its position."""
        self.held_bytes = 0
        self.file = ""
        self.offset = 0
        """Where in the server's own files reading is."""
        self.committed: tuple[str, int] = ("", 0)
        """Where the last committed transaction ends."""

    @property
    def ready(self) -> bool:
        """Something can be taken."""
        return self._upto is not None

    def feed(self, data: memoryview) -> None:
        """One event, whole, as it is in a file or comes over a connection."""
        kind = data[4] if len(data) > 4 else 0
        if kind in _SAY_NOTHING or (self._passing and kind in _OF_A_TRANSACTION):
            return  # not even its checksum is looked at
        if kind == Kind.ROTATE:
            self.file, self.offset = events.decode_rotate(events.decode_event_between_files(data))
            return
        event = events.decode_event(data, self._checksummed)
        if event.end:
            self.offset = event.end
        try:
            self._on(kind, event)
        except _Misplaced:
            raise
        except MalformedLog as error:
            if self._gtid is None or self._passing or kind not in _UPDATES:
                raise
            self._leave_out(str(error), error.original + data)

    def _on(self, kind: int, event: Event) -> None:
        if kind == Kind.XID:
            self._commit()
        elif kind in _ROWS:
            self._on_rows(event)
        elif kind == Kind.TABLE_MAP:
            self._on_table_map(event)
        elif kind == Kind.GTID:
            self._on_gtid(event)
        elif kind in (Kind.QUERY, Kind.COMPRESSED_QUERY):
            self._on_query(event)
        elif kind == Kind.FORMAT:
            self._checksummed = events.decode_format(event)
            self._forget_open("the log goes on in another file")
            self._by_id.clear()
            self._ill.clear()
            self._heads.clear()
        elif kind == Kind.XA_PREPARE:
            self._commit()
        elif kind in _REFUSED:
            raise MalformedLog(_REFUSED[Kind(kind)].format(where=self._where()))

    def _leave_out(self, why: str, data: bytes, version: Version | None = None) -> None:
        """An event of an open transaction; it counts as one row."""
        self._add(version or self._versions.without_columns("", ""), Op.INSERT, data, why)

    def _where(self) -> str:
        return (
            f"transaction {self._gtid}" if self._gtid else f"the event that ends at {self.file}:{self.offset}"
        )

    def _on_gtid(self, event: Event) -> None:
        self._forget_open("another transaction begins")
        gtid, flags = events.decode_gtid(event)
        self._gtid = gtid
        self._time_s = event.time_s
        self._standalone = bool(flags & events.STANDALONE)
        self._passing = gtid.domain != self._domain or gtid.sequence < self._first
        self._spoiled = ""
        if self._passing:
            return
        if gtid.sequence <= self._last:
            raise MalformedLog(
                f"transaction {gtid} comes after number {self._last} of its domain: the log is not in the"
                " order of its GTIDs; SET GLOBAL gtid_strict_mode=ON keeps a server from writing such a log"
            )
        before = max(self._last, self._rolled_back)
        if self._dense and gtid.sequence > before + 1:
            self.gaps.append((before, gtid.sequence - 1))
        self._dense = True
        if flags & (events.PREPARED | events.COMPLETED):
            self._spoiled = _XA.format(where=f"transaction {gtid}")
            self._standalone |= bool(flags & events.COMPLETED)

    def _on_table_map(self, event: Event) -> None:
        body = bytes(event.body)
        known = self._by_body.get(body)
        if known is None:
            number = int.from_bytes(body[:6], "little")
            try:
                version = self._described(event)
            except _Misplaced:
                raise
            except MalformedLog as error:
                self._by_id.pop(number, None)
                self._heads.clear()
                self._ill[number] = _Ill(str(error), body, _named(self._versions, event))
                return
            if len(self._by_body) >= Versions.LIMIT:
                self._by_body.clear()
            self._by_body[body] = number, version
        else:
            number, version = known
        if self._by_id.get(number) is not version:
            self._heads.clear()
            self._by_id[number] = version
            self._ill.pop(number, None)

    def _described(self, event: Event) -> Version:
        described = decode_table_map(event)
        if not described.names:
            if self._gtid is None:
                raise _Misplaced("a table map is outside any transaction")
            described = self._describe.describe(described, self._gtid, self._time_s)
        return self._versions.of(described)

    def _on_rows(self, event: Event) -> None:
        if self._gtid is None:
            raise _Misplaced("an event of rows is outside any transaction")
        body, kind = event.body, event.kind
        if self._spoiled:
            raise MalformedLog(self._spoiled)
        op, form, deflated = _ROWS[kind]
        key = kind, bytes(body[:6])
        known = self._heads.get(key)
        if known is None or body[8 : known[0]] != known[1]:
            head = decode_rows_head(body, version=form, update=op is Op.UPDATE)
            version = self._by_id.get(head.table)
            if version is None:
                if head.columns == 0:  # ends a statement without rows
                    return
                if ill := self._ill.get(head.table):
                    self._leave_out(ill.why, ill.event + bytes(body), ill.version)
                    return
                raise _Misplaced(f"rows of table {head.table} come before its table map")
            if head.columns != len(version.layout.columns):
                raise _Misplaced(f"rows of {head.columns} columns do not fit {version.table.path}")
            if not head.whole:
                raise MalformedLog(
                    f"rows of {version.table.path} are logged without all their columns ({self._where()}): "
                    "SET GLOBAL binlog_row_image=FULL, and in sessions that changed it"
                )
            known = self._heads[key] = head.at, bytes(body[8 : head.at]), version
        at, _, version = known
        images: memoryview | bytes = body[at:]
        if deflated:
            images = events.inflate(images)  # type: ignore[arg-type]
        self._add(version, op, images)

    def _add(self, version: Version, op: Op, images: memoryview | bytes, problem: str = "") -> None:
        self._rows.add(version, op, images, problem)
        self.held_bytes += len(images)

    def _on_query(self, event: Event) -> None:
        if self._gtid is None:
            return
        database, statement = events.decode_query(event)
        effect, emptied = meaning(database, statement)
        if effect is Effect.SCHEMA:
            self._by_body.clear()
            self._describe.altered(statement)
        if effect is Effect.COMMIT:
            self._commit()
            return
        if not self._passing:
            if effect is Effect.ROWS:
                raise MalformedLog(
                    _REFUSED[Kind.EXECUTE_LOAD].format(where=self._where()) + f" It is: {statement[:100]}"
                )
            if effect is Effect.ROLLBACK:
                self._roll_back()
                return
            if self._spoiled and self._standalone:  # the end of an XA transaction, one way or the other
                self._leave_out(f"{self._spoiled} It is: {statement[:100]}", bytes(event.body))
            for path in emptied:
                self._add(self._versions.without_columns(*path), Op.TRUNCATE, b"")
        if self._standalone:
            self._commit()

    def _roll_back(self) -> None:
        why = (
            f"{self._where()} ends with ROLLBACK, as one does that mixes tables with and without"
            " transactions: which of its rows are in effect is not in the log"
        )
        if self._given:
            raise MalformedLog(
                f"{why}, and {self._given} of them were already given because it was too large to be held;"
                " read with a larger hold_bytes"
            )
        self._rows.spoil(self._committed, why)
        self._commit()

    def _commit(self) -> None:
        gtid = self._gtid
        self._gtid = None
        if gtid is None or self._passing:
            self._passing = False
            return
        self._last = gtid.sequence
        self._rows.close(gtid.sequence, str(gtid), self._time_s, self._given)
        self._given = 0
        self._committed = len(self._rows)
        self._upto = Position(gtid.sequence, LAST_INDEX)
        self.committed = self.file, self.offset

    def _forget_open(self, why: str) -> None:
        """A transaction without its end was being written when the server died; the server has rolled it
        back."""
        if self._gtid is None:
            return
        if self._given:
            raise MalformedLog(
                f"transaction {self._gtid} has no end, since {why}: the server died while writing it and has"
                f" rolled it back, but {self._given} rows of it were already given because it was too large"
                " to be held"
            )
        if not self._passing:
            self._rolled_back = self._gtid.sequence
        self._rows.truncate(self._committed)
        self.held_bytes = sum(map(len, self._rows.images))
        self._gtid = None
        self._passing = False

    def take(self, *, open_too: bool = False) -> Updates:
        """Everything of the committed transactions; with `open_too` also what there is of one that is too
        large to be held."""
        upto, rows = self._upto, self._rows
        count = self._committed
        partly = open_too and self._gtid is not None and len(rows) > count
        if partly and self._gtid is not None:
            count = len(rows)
            rows.close(self._gtid.sequence, str(self._gtid), self._time_s, self._given)
        self._upto = None
        self.held_bytes = 0
        taken = rows.take(count)
        self._committed = 0
        runs, last, unread = to_runs(taken, self._database, zero_dates_null=self._zero_dates_null)
        self.unread += unread
        if partly and self._gtid is not None:
            self._given = last + 1
            upto = Position(self._gtid.sequence, last)
        elif upto is None:
            return Updates()
        self.held_bytes = sum(map(len, rows.images))
        return Updates(runs, upto)


def _named(versions: Versions, event: Event) -> Version:
    """Of a table map that cannot be read, as much as its beginning says."""
    try:
        return versions.without_columns(*table_name(event))
    except MalformedLog:
        return versions.without_columns("", "")


_XA = (
    "{where} is a part of an XA transaction; whether that was committed cannot be known here, so it is not"
    " read."
)
_REFUSED = {
    Kind.INCIDENT: (
        "the server says at {where} that its log misses something (an incident); start again from a snapshot"
    ),
    Kind.EXECUTE_LOAD: (
        "{where} is logged as a statement, not as rows: SET GLOBAL binlog_format=ROW, and in sessions that"
        " changed it."
    ),
    Kind.MYSQL_GTID: "this is the log of a MySQL server, with GTIDs of another form; MariaDB's is read",
}

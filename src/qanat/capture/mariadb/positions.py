"""Between logical positions, which are the same on every replica, and places in one server's own files."""

from bisect import bisect_right
from typing import NamedTuple

from qanat.capture.errors import NotSetUp
from qanat.capture.mariadb.connection import Server, Session
from qanat.capture.mariadb.decode_events import (
    Gtid,
    Kind,
    decode_event,
    decode_format,
    decode_gtid,
    parse_gtids,
)
from qanat.events.errors import LocalError, RemoteError
from qanat.events.position import Position

LAST_INDEX = 2**32 - 1
"""A position with this index is after all rows of its transaction."""


class Place(NamedTuple):
    """In a server's own log; names and offsets differ from replica to replica."""

    file: str
    offset: int


class LogFiles:
    """What a server's binlog has: its files, and the last sequence number of a domain before each of them."""

    def __init__(self, session: Session, domain: int | None = None) -> None:
        self._session = session
        self._before: dict[str, list[Gtid]] = {}
        self.state = parse_gtids(session.value("SELECT @@global.gtid_binlog_state") or "")
        self.domain = self._choose(domain)

    def _choose(self, domain: int | None) -> int:
        there = sorted({gtid.domain for gtid in self.state})
        if domain is not None:
            return domain
        if len(there) > 1:
            raise NotSetUp(
                f"the log of {self._session.server} has the GTID domains {', '.join(map(str, there))}, which"
                " have no order between them: read each with a reader of its own, with the option"
                f" domain={there[0]} and so on"
            )
        if there:
            return there[0]
        return int(self._session.value("SELECT @@global.gtid_domain_id") or 0)

    @property
    def servers(self) -> set[int]:
        """The numbers of the servers that ever wrote to this log; more than one after a failover."""
        return {gtid.server for gtid in self.state}

    @property
    def domains(self) -> set[int]:
        return {gtid.domain for gtid in self.state}

    def names(self) -> list[str]:
        return [row[0] for row in self._session.query("SHOW BINARY LOGS")]

    def before(self, file: str) -> int:
        """The last sequence number of the domain in the files before this one, 0 if there is none."""
        if file not in self._before:
            # The second event of every file lists the GTIDs before it.
            rows = self._session.query("SHOW BINLOG EVENTS IN %s LIMIT 3", (file,))
            listed = [row[5] for row in rows if row[2] == "Gtid_list"]
            if not listed:
                raise RemoteError(
                    f"the log file {file} of {self._session.server} has no list of GTIDs at its beginning"
                )
            self._before[file] = parse_gtids(listed[0].strip("[]"))
        return max((gtid.sequence for gtid in self._before[file] if gtid.domain == self.domain), default=0)

    def oldest(self) -> int:
        """The last sequence number that is no longer in the log."""
        return self.before(self.names()[0])

    def latest(self) -> Gtid | None:
        """The last committed transaction of the domain."""
        last = parse_gtids(self._session.value("SELECT @@global.gtid_binlog_pos") or "")
        return next((gtid for gtid in last if gtid.domain == self.domain), None)

    def file_of(self, sequence: int) -> str:
        """The file in which this transaction is, or would be."""
        names = self.names()
        at = bisect_right(names, sequence - 1, key=self.before)
        if at == 0:
            raise LocalError(
                f"transaction {sequence} of domain {self.domain} is not in the log of {self._session.server}"
                f" any more: its oldest file is {names[0]}"
            )
        return names[at - 1]


def place_of(server: Server, position: Position, domain: int | None = None) -> Place:
    """Where on this server the transaction of a position begins; reads through the file that has it."""
    session = server.beside().connect()
    try:
        files = LogFiles(session, domain)
        file = files.file_of(position.sequence)
        session.dump(file, 4, wait=False)
        checksummed = False
        while (found := session.events(30)) is not None:
            for data in found:
                event = decode_event(data, checksummed)
                if event.kind == Kind.FORMAT:
                    checksummed = decode_format(event)
                elif event.kind == Kind.GTID:
                    gtid, _ = decode_gtid(event)
                    if gtid.domain == files.domain and gtid.sequence >= position.sequence:
                        if gtid.sequence > position.sequence:
                            break
                        return Place(file, event.end - len(data))
                elif event.kind == Kind.ROTATE and event.end:
                    break
        raise LocalError(
            f"transaction {position.sequence} of domain {files.domain} is not in the log of {server}"
        )
    finally:
        session.close()


def position_at(server: Server, place: Place, domain: int | None = None) -> Position:
    """The logical position of everything before this place, which must be where an event begins."""
    session = server.connect()
    try:
        files = LogFiles(session, domain)
        text = session.value("SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.offset))
        if text is None:
            raise LocalError(f"{server} has no place {place.file}:{place.offset} in its log")
        found = [gtid.sequence for gtid in parse_gtids(text) if gtid.domain == files.domain]
        return Position(found[0], LAST_INDEX) if found else Position(0, 0)
    finally:
        session.close()

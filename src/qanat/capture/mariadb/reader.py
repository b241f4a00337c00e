"""A reader of MariaDB's row binlog: positions are (GTID sequence number of the domain, row in the
transaction)."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from qanat.capture.continuity import Mark, compare, mark_at, mark_of
from qanat.capture.errors import BadLogUrl, MalformedLog
from qanat.capture.mariadb.check import refuse_unsound
from qanat.capture.mariadb.connection import LogRefused, Server, Session
from qanat.capture.mariadb.decode import Decoder, Describe
from qanat.capture.mariadb.positions import LAST_INDEX, LogFiles
from qanat.capture.mariadb.schemas import Schemas
from qanat.capture.mariadb.visible import Reached, seen
from qanat.capture.reader import LogReader, Lost, Start
from qanat.capture.split import SPLIT_OPTIONS
from qanat.capture.tls import TLS_OPTIONS
from qanat.capture.updates import Run, Updates
from qanat.capture.url import LogUrl
from qanat.events.errors import LocalError, QanatError, RemoteError
from qanat.events.position import Position

OPTIONS = {
    "dataset": (
        "a name of your own, the same for every replica; needed to feed a stream, since nothing in a"
        " server is"
    ),
    "domain": "the GTID domain to read, needed where the log has several",
    "server_id": "the number that this reader has as a replica; otherwise one by chance",
    "zero_dates": "null: dates such as 0000-00-00 come as NULL; otherwise they are refused",
    "hold_bytes": "transactions larger than this are given in parts before their commit is read (64 MiB)",
    "visible": (
        "yes: updates are given only once every query sees them; costs a query for each read that brings some"
    ),
    **SPLIT_OPTIONS,
    **TLS_OPTIONS,
}
READ_BYTES = 4 << 20
"""So much is taken from the connection before it is decoded, if it comes without waiting: rows are decoded
faster together."""
HOLD_BYTES = 64 << 20
_LOOK_S = 0.001
"""Between two looks whether queries see what is pending; as long as a commit takes."""


class MariadbReader(LogReader):
    """Transactions are given once their commit was read, unless they are larger than `hold_bytes`.

    The position after a whole transaction has the index 2³²-1, so that a resume does not read the transaction
    again; a resume after any of its rows works as well. After an error the next read connects again and goes
    on from the last position that was given.
    """

    def __init__(
        self,
        server: Server,
        *,
        database: str = "",
        domain: int | None = None,
        dataset: str = "",
        zero_dates_null: bool = False,
        hold_bytes: int = HOLD_BYTES,
        visible: bool = False,
    ) -> None:
        self._server = server
        self._database = database
        self._zero_dates_null = zero_dates_null
        self._hold_bytes = hold_bytes
        self._visible = visible
        self._unseen: Reached | None = None
        """Where what is pending ends, if it is not known yet that queries see it."""
        self._session: Session | None = None
        self._decoder: Decoder | None = None
        self._pending = Updates()
        self._gaps: list[tuple[int, int]] = []
        """Sequence numbers that are missing in the log, before rows that are pending."""
        self._unread: list[MalformedLog] = []
        """What could not be decoded, among rows that are pending; whoever seeks to behind the first goes on
        with what is pending."""
        self._earliest: Position | None = None
        """Where reading began without a claim to what is before; what is missing there is no loss."""
        self._connected_at = Position(0)
        self._had: Mark | None = None
        """What the log must have at the position, if it is still the same one."""
        self._given: Run | None = None
        """Whose last row that is, since the last seek."""
        self._compared = True
        self._found: Position | None = None
        """Where this connection has shown that it is."""
        self._passed: Position | None = None
        """Where nothing is compared once more, since the file that has it ends in the middle of an event."""
        self._control: Session | None = None
        self._files: LogFiles | None = None
        self._dataset = dataset
        refuse_unsound(self._asking())
        self.domain = self._known(domain).domain
        self._position = self.latest()

    @property
    def source(self) -> str:
        """Domains are logs of their own, and so is what is read of one database alone."""
        name = f"{self._dataset or 'mariadb'}:{self.domain}"
        return f"{name}/{self._database}" if self._database else name

    @property
    def identified(self) -> bool:
        """Neither GTIDs nor server numbers tell two servers that are not replicas of each other apart."""
        return bool(self._dataset)

    @property
    def place(self) -> tuple[str, int]:
        """Where in the server's own files the last event that was received ends."""
        return (self._decoder.file, self._decoder.offset) if self._decoder else ("", 0)

    def _asking(self) -> Session:
        """A connection for statements, opened again after it broke."""
        if self._control is None:
            self._control = self._server.connect()
        return self._control

    def _known(self, domain: int | None) -> LogFiles:
        """What the server's files are; asked anew each time, by a connection that is opened again if it
        broke."""
        try:
            self._files = LogFiles(self._asking(), domain)
        except RemoteError:
            self._drop_control()
            self._files = LogFiles(self._asking(), domain)
        return self._files

    def _drop_control(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def seek(self, start: Start) -> None:
        if start == "earliest":
            start = self._earliest = self.oldest()
        elif start == "latest":
            start = self.latest()
        self._had = self._given = None
        if self._unread and start == self._unread[0].resume:
            self._unread.pop(0)
            self._position = start
            return
        if start == self._position and not self._pending:
            return
        self._disconnect()
        self._position = start

    def expect(self, last: Mark) -> None:
        self._disconnect()
        self._had = last

    def oldest(self) -> Position:
        return _end_of(self._known(self.domain).oldest())

    def latest(self) -> Position:
        gtid = self._known(self.domain).latest()
        return _end_of(0 if gtid is None else gtid.sequence)

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        if limit < 1:
            raise LocalError(f"a read of {limit} updates reads nothing; ask for at least one")
        try:
            found = self._read(limit, wait_s)
        except QanatError:
            self._disconnect()
            raise
        if isinstance(found, MalformedLog):
            raise found
        return found

    def _read(self, limit: int, wait_s: float) -> Updates | Lost | MalformedLog:
        deadline_s = time.monotonic() + wait_s
        upto: Position | None = None
        if self._has_passed(self._pending.upto):
            return self._cut(limit)
        while not self._pending and not self._gaps and not self._unread:
            if self._session is None or self._decoder is None:
                lost = self._connect()
                if lost is not None:
                    self._position = lost.upto
                    return lost
                continue
            try:
                came = self._receive(self._session, self._decoder, deadline_s - time.monotonic())
            except LogRefused:
                if self._position == self._connected_at:
                    if self._found != self._position:
                        raise
                    self._passed = self._position
                # A file that ends in the middle of an event, as a crash leaves it: everything before was
                # given, the next file follows.
                self._disconnect()
                continue
            if self._decoder.held_bytes > self._hold_bytes and not self._decoder.ready:
                self._pending = self._new(self._decoder.take(open_too=True))
                self._unseen = Reached.of(*self.place) if self._visible else None
            elif self._decoder.ready:
                self._pending = self._new(self._decoder.take())
                self._unseen = Reached.of(*self._decoder.committed) if self._visible else None
            self._gaps += self._decoder.gaps
            self._decoder.gaps.clear()
            self._unread += [
                one for one in self._decoder.unread if one.resume and one.resume > self._position
            ]
            self._decoder.unread.clear()
            if self._gaps or self._unread:
                break
            if not self._pending and self._pending.upto is not None and self._pending.upto > self._position:
                upto = self._position = self._pending.upto
            if not self._pending and not came and time.monotonic() >= deadline_s:
                return Updates([], upto)
        if self._unseen is not None and not self._is_seen(self._unseen, deadline_s):
            return Updates([], upto)
        return self._next(limit)

    def _has_passed(self, upto: Position | None) -> bool:
        """Whether nothing is left of what was read up to there but to say so."""
        return (
            upto is not None and upto > self._position and not (self._pending or self._gaps or self._unread)
        )

    def _next(self, limit: int) -> Updates | Lost | MalformedLog:
        """What comes first: rows, a gap, or what cannot be decoded."""
        gap = self._gaps[0] if self._gaps else None
        bad = self._unread[0] if self._unread else None
        if gap is not None and (bad is None or bad.position is None or gap[0] < bad.position.sequence):
            bound: Position | None = _end_of(gap[0])
        else:
            gap, bound = None, None if bad is None else bad.position
        if bound is None:
            return self._cut(limit)
        there = sum(_upto(run, bound) for run in self._pending.runs)
        if there:
            return self._cut(min(limit, there), whole=False)
        if gap is None:
            return bad or Updates()
        self._gaps.pop(0)
        return self._missing(*gap)

    def _is_seen(self, place: Reached, deadline_s: float) -> bool:
        while True:
            try:
                reached = seen(self._asking())
            except RemoteError:
                self._drop_control()
                raise
            if reached >= place:
                self._unseen = None
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_LOOK_S)

    def _new(self, updates: Updates) -> Updates:
        """What was not had yet. The first of what a connection gives is what was had, if it was asked for."""
        if not self._compared and self._had is not None and updates.upto is not None:
            found = mark_at(updates, self._had.position)
            if found is not None or updates.upto > self._had.position:
                compare(self._had, found, f"that of {self._server}")
                self._compared, self._found = True, self._position
        return updates.after(self._position)

    def _missing(self, after: int, upto: int) -> Lost:
        lost = Lost(
            max(self._position, _end_of(after)),
            _end_of(upto),
            f"the log of {self._server} does not have the transactions {after + 1} to {upto} of domain"
            f" {self.domain}: it was written by a replica that does not log what it replicates"
            " (log_slave_updates=OFF) or leaves a part out",
        )
        self._position = lost.upto
        return lost

    def _receive(self, session: Session, decoder: Decoder, wait_s: float) -> bool:
        """Feeds the decoder with what came; waits only until there is something to give."""
        taken = 0
        while taken < READ_BYTES and decoder.held_bytes <= self._hold_bytes:
            try:
                found = session.events(0.0 if decoder.ready else wait_s)
            except RemoteError:
                if taken or decoder.ready:  # what came before is given first; the error comes again
                    break
                raise
            if found is None:
                raise RemoteError(f"the MariaDB server {self._server} ended its log")
            if not found:
                break
            wait_s = 0.0
            for event in found:
                taken += len(event)
                decoder.feed(event)
        return taken > 0

    def _cut(self, limit: int, *, whole: bool = True) -> Updates:
        """At most `limit` of the decoded updates; the others stay for the next read. Not `whole`: behind
        these comes something else."""
        runs: list[Run] = []
        left = limit
        pending = self._pending
        for at, run in enumerate(pending.runs):
            if len(run) > left:
                rest = [run.slice(left, len(run)), *pending.runs[at + 1 :]]
                if left:
                    runs.append(run.slice(0, left))
                self._pending = Updates(rest, pending.upto)
                given = Updates(runs)
                break
            runs.append(run)
            left -= len(run)
        else:
            self._pending = Updates() if whole else Updates((), pending.upto)
            given = pending if whole else Updates(runs)
        if given.upto is not None:
            self._position = max(self._position, given.upto)
        if given.runs:
            self._given = given.runs[-1]
        return given

    def _connect(self) -> Lost | None:
        files = self._known(self.domain)
        position = self._position
        latest = files.latest()
        if position.sequence > (latest.sequence if latest else 0):
            raise RemoteError(
                f"the log of {self._server} ends with {latest or 'no transaction'} and does not have position"
                f" {position} yet: it is a replica that lags behind, or a server whose log was reset"
            )
        oldest = files.oldest()
        if position.sequence < oldest or (
            position.sequence == oldest and position.index < LAST_INDEX and oldest
        ):
            return Lost(position, _end_of(oldest), _why_lost(position, oldest, files))
        # The first transaction that is wanted, at least in part.
        if self._given is not None:
            self._had = mark_of(self._given, len(self._given) - 1)
        had = self._had
        compared = had is None or had.position.sequence != position.sequence or position.sequence <= oldest
        compared |= self._passed == position
        self._passed = self._found = None
        first = position.sequence + (1 if compared and position.index == LAST_INDEX else 0)
        session = self._server.connect()
        try:
            if len(files.state) == 1 and first > 1:  # the server finds it by itself
                session.dump("", 4, after=f"{files.domain}-{files.state[0].server}-{first - 1}")
            else:
                # it wants the number of the server that wrote the transaction, which a position does not have
                session.dump(files.file_of(max(first, oldest + 1)), 4)
        except LogRefused:
            session.close()
            raise
        schemas = Schemas(self._server, files.domain)
        self._connected_at, self._compared = position, compared
        self._session = session
        self._decoder = Decoder(
            files.domain,
            Position(first),
            Describe(schemas.describe, schemas.altered),
            dense=position != self._earliest,
            database=self._database,
            zero_dates_null=self._zero_dates_null,
        )
        return None

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = self._decoder = None
        self._pending = Updates()
        self._gaps, self._unread = [], []
        self._unseen = None

    def close(self) -> None:
        self._disconnect()
        self._drop_control()


def _upto(run: Run, bound: Position) -> int:
    """How many rows of a run lie before a position, or at it."""
    inside = (run.sequences < bound.sequence) | (
        (run.sequences == bound.sequence) & (run.indexes <= bound.index)
    )
    return int(np.count_nonzero(inside))


def _end_of(sequence: int) -> Position:
    return Position(sequence, LAST_INDEX) if sequence else Position(0, 0)


def _why_lost(position: Position, oldest: int, files: LogFiles) -> str:
    why = (
        f"the binlog files with transactions up to {oldest} of domain {files.domain} were purged; the oldest"
        f" left is {files.names()[0]}"
    )
    if position.sequence == oldest:
        why += f"; whether transaction {oldest} had rows after number {position.index} is not known"
    return why


def open(url: LogUrl, options: Mapping[str, Any]) -> MariadbReader:  # the name that every reader's module has
    zero_dates = options.get("zero_dates", "")
    if zero_dates not in ("", "null", "refuse"):
        raise BadLogUrl(f"{url}: zero_dates={zero_dates} is not known; it is null or refuse")
    visible = options.get("visible", "no")
    if visible not in ("yes", "no"):
        raise BadLogUrl(f"{url}: visible={visible} is not known; it is yes or no")
    domain = options.get("domain")
    try:
        return MariadbReader(
            Server.of(url, options),
            database=url.name,
            domain=None if domain is None else int(domain),
            dataset=str(options.get("dataset", "")),
            zero_dates_null=zero_dates == "null",
            hold_bytes=int(options.get("hold_bytes", HOLD_BYTES)),
            visible=visible == "yes",
        )
    except ValueError as error:
        raise BadLogUrl(f"{url}: an option that is a number is none ({error})") from None

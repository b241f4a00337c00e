"""The reader of PostgreSQL's log: a replication slot followed from any position that it still has."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psycopg2

from qanat.capture.continuity import Mark, compare, mark_at, mark_of
from qanat.capture.errors import BadLogUrl, LogUnreachable, NotSetUp
from qanat.capture.postgres.assemble import Assembler, Boundary, Item, Marker
from qanat.capture.postgres.catalogue import primary_key
from qanat.capture.postgres.connection import UNTRANSLATABLE, Questions, Stream, codec_of, translated
from qanat.capture.postgres.messages import Relation
from qanat.capture.postgres.positions import before, lsn_text
from qanat.capture.postgres.slot import Note, Slot, SlotState
from qanat.capture.reader import LogReader, Lost, Start
from qanat.capture.split import SPLIT_OPTIONS
from qanat.capture.tls import LIBPQ_OPTIONS
from qanat.capture.updates import Run, Updates
from qanat.capture.url import LogUrl
from qanat.events.errors import RemoteError
from qanat.events.position import Position

OPTIONS = {
    "slot": "name of the replication slot (qanat)",
    "publication": "name of the publication (qanat)",
    "create": "make slot and publication if they are missing, and again if the slot was lost (no)",
    "tables": "what a publication that is made publishes: schema.table,… (all tables)",
    "dataset": "name of the source, before /<database> (postgresql:<system identifier>)",
    "streaming": "take large transactions in parts before they commit (yes)",
    "heartbeat_s": "how often at most an idle slot is moved on (10)",
    "heartbeat_bytes": "by how much WAL at least (4194304)",
    "slot_wait_s": "how long to wait for a slot that another reader has (10)",
    **SPLIT_OPTIONS,
    **LIBPQ_OPTIONS,
}


@dataclass(frozen=True, slots=True)
class Settings:
    slot: str = "qanat"
    publication: str = "qanat"
    create: bool = False
    tables: tuple[str, ...] = ()
    dataset: str = ""
    streaming: bool = True
    heartbeat_s: float = 10.0
    heartbeat_bytes: int = 4 << 20
    """Less would free nothing: the server removes WAL by files of 16 MiB."""
    slot_wait_s: float = 10.0
    """A server notices only after a while that the reader before has died."""


def settings_of(options: Mapping[str, Any]) -> Settings:
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name in LIBPQ_OPTIONS:
            continue
        default = getattr(Settings(), name)
        try:
            if isinstance(default, bool):
                values[name] = _boolean(value)
            elif isinstance(default, tuple):
                values[name] = (
                    tuple(filter(None, value.split(","))) if isinstance(value, str) else tuple(value)
                )
            else:
                values[name] = type(default)(value)
        except ValueError:
            raise BadLogUrl(f"the option {name} cannot be {value!r}: it is {OPTIONS[name]}") from None
    return Settings(**values)


def _boolean(value: Any) -> bool:
    words = {
        "1": True,
        "yes": True,
        "true": True,
        "on": True,
        "0": False,
        "no": False,
        "false": False,
        "off": False,
    }
    try:
        return words[str(value).lower()]
    except KeyError:
        raise ValueError(value) from None


def open(url: LogUrl, options: Mapping[str, Any]) -> LogReader:
    return PostgresReader(replace(url, options=options), settings_of(options))


class PostgresReader:
    """See `LogReader` and `Acknowledging`.

    One slot has one reader at a time; a second reader needs a slot of its own. An acknowledged position
    cannot be sought again.
    """

    def __init__(self, url: LogUrl, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self._questions = Questions(url)
        self._slot = Slot(self._questions, settings.slot, settings.publication, settings.tables)
        self._stream: Stream | None = None
        self._assembler = Assembler("")
        self._items: Iterator[Item] = iter(())
        self._rest: Run | None = None
        self._done = Position(0, 0)
        self._resume = Position(0, 0)
        self._noted = 0
        self._beat_at = 0.0
        self._as_stored = False
        """Since there was a text that the server cannot send as UTF-8, it sends them as they are."""
        self._had: Mark | None = None
        """What the log must have at the position, if it is still the same one and the slot still sends it."""
        self._given: Run | None = None
        """Whose last row that is, since the last seek."""
        self.markers: list[Marker] = []
        """Messages that others wrote into the log, since the last read."""
        try:
            self._slot.refuse_standby()
            self._database: str = self._questions.one("SELECT current_database()")
            self._source = self._name()
            self._slot_state()
            self._position = self.latest()
        except BaseException:
            self._questions.close()
            raise
        self._last_row = self._position

    def _name(self) -> str:
        """What another publication has of the log is another choice of it, with positions of its own."""
        dataset = self._settings.dataset
        if not dataset:
            system = self._questions.one("SELECT system_identifier::text FROM pg_control_system()")
            dataset = f"postgresql:{system}"
        publication = self._settings.publication
        name = f"{dataset}/{self._database}"
        return name if publication == Settings().publication else f"{name}/{publication}"

    @property
    def source(self) -> str:
        return self._source

    @property
    def identified(self) -> bool:
        return True

    def seek(self, start: Start) -> None:
        if start == "earliest":
            start = self.oldest()
        elif start == "latest":
            start = self.latest()
        self._disconnect()
        self._position = self._last_row = start
        self._had = self._given = None

    def expect(self, last: Mark) -> None:
        self._disconnect()
        self._had = last

    def oldest(self) -> Position:
        """Whoever is at the last update that was kept lacks nothing, though the slot has been moved on past
        what is empty."""
        confirmed, note = self._slot_state().confirmed, self._slot.note()
        if note is not None and note.covers(confirmed):
            return min(note.after, before(confirmed))
        return before(confirmed)

    def latest(self) -> Position:
        return before(self._slot.flushed())

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        deadline = time.monotonic() + wait_s
        self.markers = []
        for last_try in (False, True):
            try:
                if self._stream is None and (lost := self._connect(deadline)) is not None:
                    return lost
                return self._read(limit, deadline)
            except psycopg2.Error as error:
                # The server was restarted, or it gave us up because nothing was read for long: from the same
                # position once more.
                self._disconnect()
                self._as_stored |= error.pgcode in UNTRANSLATABLE
                if last_try:
                    with translated(str(self._url)):
                        raise error
            except BaseException:
                self._disconnect()
                raise
        raise LogUnreachable(f"{self._url}: the replication stream broke off")

    def acknowledge(self, position: Position, resume: Position | None = None) -> None:
        self._done = max(self._done, position)
        self._resume = max(self._resume, position if resume is None else min(resume, position))
        try:
            self._confirm()
        except psycopg2.Error:
            self._disconnect()  # the next read connects again, and then tells it

    def advance(self, position: Position) -> None:
        with suppress(
            RemoteError
        ):  # somebody has just begun to read; or the server is away, which whoever asks next is told
            self._slot.advance(position.sequence, self._settings.heartbeat_bytes)

    def close(self) -> None:
        self._disconnect()
        self._questions.close()

    # --- reading

    def _read(self, limit: int, deadline: float) -> Updates:
        assert self._stream is not None
        taken: list[Run] = []
        room = max(limit, 1)
        while room > 0:
            run = self._rest or self._next_run()
            self._rest = None
            if run is None:
                if taken:
                    break
                if self._questions.ended():
                    self._questions.close()
                    raise psycopg2.OperationalError("the server is being shut down")
                payloads = self._stream.receive(room, min(deadline - time.monotonic(), 1.0))
                if not payloads:
                    if self._assembler.between:  # all that was sent has been read
                        self._position = max(self._position, before(self._stream.sent_upto))
                    self._heartbeat()
                    if time.monotonic() >= deadline:
                        break
                    continue
                self._items = self._assembler.feed(payloads)
                continue
            if len(run) > room:
                run, self._rest = run.slice(0, room), run.slice(room, len(run))
            taken.append(run)
            room -= len(run)
            self._position = self._last_row = run.position(len(run) - 1)
            self._given = run
        self._heartbeat()
        self._confirm()
        return Updates(taken, self._position)

    def _next_run(self) -> Run | None:
        """The next updates among the messages that were received, if any are left."""
        for item in self._items:
            match item:
                case Run():
                    self._compare(item)
                    if item.position(0) <= self._position:
                        item = _beyond(item, self._position)
                    if len(item):
                        return item
                case Boundary():
                    self._position = max(self._position, before(item.lsn))
                case Marker():
                    self.markers.append(item)
        return None

    def _compare(self, run: Run) -> None:
        """Without the keys, which a table may have got since."""
        had = self._had
        if had is None:
            return
        found = mark_at(Updates([run]), had.position)
        if found is not None or run.position(0) > had.position:
            compare(had._replace(key=b""), found and found._replace(key=b""), str(self._url))
            self._had = None

    def _heartbeat(self) -> None:
        """Moves the slot past what nobody needs, though no update that is kept lies there: other tables,
        other databases."""
        now = time.monotonic()
        if self._stream is None or now - self._beat_at < self._settings.heartbeat_s:
            return
        self._beat_at = now
        self._stream.ping()
        # If all updates that were given are done with, so is what was read after them.
        between = self._assembler.between and self._done >= self._last_row and self._rest is None
        free = max(self._done, self._position) if between else self._done
        gain = free.sequence - max(self._resume.sequence, self._noted)
        if self._resume > (0, 0) and gain >= self._settings.heartbeat_bytes:
            self._slot.leave_note(Note(self._resume, free.sequence))
            self._noted = free.sequence
            self._slot.emit("heartbeat")

    def _confirm(self) -> None:
        if self._stream is not None:
            self._stream.confirm(max(self._resume.sequence, self._noted))

    # --- connecting

    def _slot_state(self) -> SlotState:
        state = self._slot.state()
        if state is None or state.lost:
            if not self._settings.create:
                raise NotSetUp(self._why_no_slot(state))
            state = self._slot.make(state)
        if not self._slot.has_publication():
            if not self._settings.create:
                raise NotSetUp(
                    f"there is no publication {self._slot.publication!r}: {self._slot.publish_statement()}; "
                    "or open with create=yes"
                )
            self._questions.ask(self._slot.publish_statement())
        return state

    def _why_no_slot(self, state: SlotState | None) -> str:
        made = f"{self._slot.create_statement()}, or open with create=yes; updates from before then are lost"
        if state is None:
            return f"there is no replication slot {self._slot.name!r} on this server: {made}"
        return (
            f"the server has removed log that the slot {self._slot.name!r} needed (max_slot_wal_keep_size): "
            f"{self._slot.drop_statement()}; {made}"
        )

    def _connect(self, deadline: float) -> Lost | None:
        self._slot.refuse_standby()
        known = self._slot.state()
        state = self._slot_state()
        flushed = self._slot.flushed()
        if self._position.sequence > flushed:
            raise RemoteError(
                f"position {self._position} ({lsn_text(self._position.sequence)}) lies beyond the end of this"
                f" server's log ({lsn_text(flushed)}): the server was restored from a backup, or is a standby"
                " that was promoted before it had everything; take a snapshot, or seek to latest"
            )
        if self._position < before(state.confirmed):
            if not self._slot.empty_between(self._position, state.confirmed):
                return self._lose(known, state)
            self._position = before(state.confirmed)
        codec = codec_of(self._questions.one("SHOW server_encoding")) if self._as_stored else ""
        self._assembler = Assembler(self._database, self._primary_key, codec)
        if self._given is not None:
            self._had = mark_of(self._given, len(self._given) - 1)
        # What is committed at the very place where the slot is asked to begin is sent; what lies before is
        # not.
        if (
            self._had is not None
            and not state.confirmed <= self._had.position.sequence == self._position.sequence
        ):
            self._had = None
        self._slot.emit("start")
        self._noted = 0
        self._stream = self._start(deadline, state.confirmed)
        return None

    def _lose(self, known: SlotState | None, state: SlotState) -> Lost:
        upto = before(state.confirmed)
        if known is None:
            why = "was not there any more, and has been made anew"
        elif known.lost:
            why = "was invalidated by the server (max_slot_wal_keep_size), and has been made anew"
        else:
            why = "was made anew or moved on by somebody else"
        lost = Lost(
            self._position,
            upto,
            f"the replication slot {self._slot.name!r} {why}: it begins at {lsn_text(state.confirmed)}",
        )
        self._position = self._last_row = upto
        return lost

    def _start(self, deadline: float, confirmed: int) -> Stream:
        options = {
            "proto_version": "2" if self._settings.streaming else "1",
            "publication_names": '"' + self._slot.publication.replace('"', '""') + '"',
            "messages": "true",
        }
        if self._settings.streaming:
            options["streaming"] = "on"
        patience = max(deadline, time.monotonic() + self._settings.slot_wait_s)
        while True:
            try:
                return Stream(
                    self._url,
                    self._slot.name,
                    self._position.sequence,
                    confirmed,
                    options,
                    as_stored=self._as_stored,
                )
            except psycopg2.errors.ObjectInUse as error:
                if time.monotonic() > patience:
                    raise LogUnreachable(
                        f"the slot {self._slot.name!r} has another reader ({' '.join(str(error).split())}); "
                        "give this one a slot of its own by the option slot="
                    ) from None
                time.sleep(0.05)

    def _primary_key(self, relation: Relation) -> frozenset[str]:
        return primary_key(self._questions, relation.id)

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._assembler.close()
        self._items = iter(())
        self._rest = None


def _beyond(run: Run, position: Position) -> Run:
    """What a resume inside a transaction has not had."""
    kept, *_ = (*Updates([run]).after(position).runs, run.slice(0, 0))
    return kept

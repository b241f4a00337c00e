"""The write-ahead log of a RocksDB as a log of updates; read-only, from its files, beside the process that
has the database open."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qanat.capture.continuity import Mark, compare, mark_at
from qanat.capture.errors import BadLogUrl, MalformedLog, NotSetUp
from qanat.capture.reader import Lost, Start
from qanat.capture.rocksdb.columns import Rows
from qanat.capture.rocksdb.decode_batches import Entries
from qanat.capture.rocksdb.files import Folders, read_manifest
from qanat.capture.rocksdb.options import read_identity, read_options
from qanat.capture.rocksdb.positions import before, next_sequence, own_position
from qanat.capture.rocksdb.walk import Gap, Unreadable, Walk
from qanat.capture.updates import Updates
from qanat.capture.url import LogUrl
from qanat.events.errors import LocalError
from qanat.events.position import Position

OPTIONS = {
    "dataset": "the name of the log's source, the same for every replica (rocksdb:<the database's IDENTITY>)",
    "logs": "the folder of the log files, if it is not the one that the OPTIONS file names",
    "unlogged": (
        "what to do about sequence numbers that were never in the log (disableWAL, ingested files): report"
        " (default) or ignore"
    ),
}
_POLL_S = 0.002
_SLOWEST_POLL_S = 0.02
"""Files tell nobody that they grow without help from the system; a log that is idle is looked at less
often."""


class RocksReader:
    """A `LogReader`."""

    def __init__(
        self, folders: Folders, source: str, *, identified: bool = True, unlogged: bool = False
    ) -> None:
        self._folders = folders
        self._source = source
        self._identified = identified
        self._unlogged = unlogged
        self._families: dict[int, str] = {}
        self._walk = Walk(folders, unlogged)
        self._tail = Walk(folders, unlogged=True)
        self._rows: Rows | None = None
        self._next = 0
        self._lost: Lost | None = None
        self._bad: MalformedLog | None = None
        """What comes next cannot be decoded; whoever seeks to behind it goes on where the walk is."""
        self._sought = False
        self._had: Mark | None = None
        """What the log must have at the position that was sought, if it is the one that was read before."""
        self._position = self.latest()

    @property
    def source(self) -> str:
        return self._source

    @property
    def identified(self) -> bool:
        return self._identified

    def seek(self, start: Start) -> None:
        if start == "earliest":
            start = self.oldest()
        elif start == "latest":
            start = self.latest()
        self._position = start
        bad, self._bad = self._bad, None
        if bad is not None and bad.resume == start:
            return
        self._rows = None
        self._lost = None
        self._sought = False
        self._had = None

    def expect(self, last: Mark) -> None:
        self._had = last

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        deadline = time.monotonic() + wait_s
        pause = _POLL_S
        while self._rows is None:
            if self._lost is not None:
                lost, self._lost = self._lost, None
                self._position = lost.upto
                return lost
            if self._bad is not None:
                raise self._bad
            if self._fill():
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                return Updates([], self._position)
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _SLOWEST_POLL_S)
        return self._part(self._rows, limit)

    def _part(self, rows: Rows, limit: int) -> Updates:
        stop = min(self._next + max(limit, 1), len(rows))
        updates = Updates(rows.runs(self._next, stop))
        self._next = stop
        if stop == len(rows):
            self._rows = None
        if updates.upto is not None:
            self._position = updates.upto
        return updates

    def _fill(self) -> bool:
        """Whether there is more to give, or to look for at once."""
        if not self._sought:
            gap = self._begin()
        else:
            found = self._walk.step()
            if found is None:
                return False
            if isinstance(found, Entries):
                rows = Rows(self._folders.database.name, self._name, found)
                self._next = rows.first_after(self._position)
                self._compare(rows)
                self._rows = rows if self._next < len(rows) else None
                return True
            if isinstance(found, Unreadable):
                self._stop_at(found)
                return True
            gap = found
        if gap is not None:
            upto = Position(gap.last, gap.last_index)
            if upto > self._position:
                reason = f"sequence numbers {gap.first} to {gap.last} are not in the log: {gap.reason}"
                self._lost = Lost(self._position, upto, reason)
        return True

    def _stop_at(self, batch: Unreadable) -> None:
        resume = batch.last
        if resume <= self._position:
            return
        self._had = None
        self._bad = MalformedLog(
            f"{batch.reason} (to leave it out, read from position {resume})",
            position=Position(batch.sequence, 0),
            resume=resume,
            original=batch.original,
        )

    def _compare(self, rows: Rows) -> None:
        """With the update before the first that is new, if the log still has one."""
        if self._had is None:
            return
        if self._next > 0:
            found = mark_at(Updates(rows.runs(self._next - 1, self._next)), self._had.position)
            if found is None and self._next == len(rows):
                return  # these are all from before
            had = self._had
            if found is not None and _family(found.table) == _family(had.table):
                had = had._replace(table=found.table)  # a replica may lie in a folder of another name
            compare(had, found, str(self._folders.database))
        self._had = None

    def _begin(self) -> Gap | None:
        newest = self.latest()
        if self._position.sequence > newest.sequence:
            raise LocalError(
                f"{self._folders.database}: position {self._position} is beyond the newest update {newest};"
                " this is not the database that the position is of, or it was restored from a backup; seek"
                " to earliest or latest"
            )
        gap = self._walk.seek(self._position.sequence, next_sequence(self._position))
        self._sought = True
        return gap

    def _name(self, family: int) -> str:
        if family not in self._families:
            self._families.update(read_manifest(self._folders).families)
            # Dropped, and the MANIFEST written anew since; the id is what is left of it.
            self._families.setdefault(family, f"#{family}")
        return self._families[family]

    def oldest(self) -> Position:
        logs = self._walk.firsts()
        return before(logs[0][1]) if logs else self.latest()

    def latest(self) -> Position:
        flushed = read_manifest(self._folders).last_sequence
        found = self._tail.last()
        if found is not None and found.sequence + found.index >= flushed:
            return found
        return Position(flushed, 0)

    def divide(self, after: Position, upto: Position, rows: int) -> Position:
        """Between two log files: a file is where reading can begin. The first that is not too far, or the
        next one."""
        own = own_position(after)
        if own_position(upto) - own <= rows:
            return upto
        ends = [before(first) for _, first in self._walk.firsts()]
        between = [end for end in ends if after < end < upto]
        near = [end for end in between if end.sequence - own <= rows]
        return near[-1] if near else between[0] if between else upto

    def close(self) -> None:
        self._walk.close()
        self._tail.close()


def _family(path: str) -> str:
    return path.rpartition(".")[2]


def folders_of(url: LogUrl, options: Mapping[str, Any]) -> Folders:
    """Where the database is, and where its OPTIONS file (or the option `logs`) says that its logs are."""
    database = Path(url.path)
    if not url.path.strip("/"):
        raise BadLogUrl(f"{url}: there is no folder in it; write rocksdb:///folder")
    if not (database / "CURRENT").is_file():
        raise NotSetUp(f"{database} is not the folder of a RocksDB: there is no file CURRENT in it")
    named = options.get("logs") or read_options(database).get("wal_dir", "")
    logs = (database / named) if named else database
    if not logs.is_dir():
        raise NotSetUp(f"{logs}, where the log files should be, is no folder; name it by the option logs")
    return Folders(database, logs)


def open(url: LogUrl, options: Mapping[str, Any]) -> RocksReader:
    unlogged = str(options.get("unlogged", "report"))
    if unlogged not in ("report", "ignore"):
        raise BadLogUrl(f"{url}: the option unlogged is {unlogged!r}; it is report or ignore")
    folders = folders_of(url, options)
    named = str(options.get("dataset") or read_identity(folders.database))
    source = str(options.get("dataset") or f"rocksdb:{named or folders.database.name}")
    return RocksReader(folders, source, identified=bool(named), unlogged=unlogged == "ignore")

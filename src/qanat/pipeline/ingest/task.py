"""What a task does with a range of a log: reads it, takes it apart by routes, publishes it, and says how far
it is.

Everything is kept open between the micro-batches of one source, which come to the same worker process
(`query`). Nothing here is needed to go on after a
kill: the streams have positions of what they were given, and drop what comes twice.
"""

import json
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from qanat.capture.losses import loss_event
from qanat.capture.reader import Acknowledging, Lost
from qanat.capture.updates import Updates
from qanat.capture.url import parse_log_url
from qanat.events.errors import QanatError
from qanat.events.position import Position
from qanat.pipeline.changes.log import Log
from qanat.pipeline.changes.offsets import Offset
from qanat.pipeline.changes.options import ChangesOptions
from qanat.pipeline.ingest import dead_letters
from qanat.pipeline.ingest.agreement import refuse_anew
from qanat.pipeline.ingest.dead_letters import Letter
from qanat.pipeline.ingest.failures import Disagreement, Outage, Told, kind_of
from qanat.pipeline.ingest.live import TELL_S, Live, Teller
from qanat.pipeline.ingest.publisher import Publisher, SetBack
from qanat.pipeline.ingest.ranges import Range
from qanat.pipeline.ingest.reading import Newest, Undecoded, ahead, items
from qanat.pipeline.ingest.routes import Routes
from qanat.pipeline.ingest.routing import route
from qanat.pipeline.ingest.state import Published
from qanat.pipeline.ingest.trouble import Trouble

REPORT = pa.schema([("report", pa.string())])
_EXCLUSIVE = ("postgresql", "postgres")
_IDLE_S = 1.0
_AHEAD = 2
"""What was read is translated while so much of what was read before it is being stored: the server's work and
its disk's are not waited for."""
_READ_AHEAD = 1
"""And so much is read meanwhile: the two take about as long as each other."""


_LETTERS = 1_000
_LETTER_BYTES = 16 << 20


@dataclass(frozen=True)
class Plan:
    """All that a task must know; sent to it."""

    name: str
    """Of the source, in the pipeline's file."""
    log: str
    source: str
    """The log's own name."""
    url: str
    routes: Routes
    letters: str
    """The folder of this source's dead letters."""
    published: str
    """The file in which it is written down how far streams are."""
    trouble: str
    """The file in which the task tells what it waits for."""
    live: str
    """The file in which it tells how far it is with a range that takes long."""
    patience_s: float = 300.0
    read_updates: int = 20_000
    publish_losses: bool = False
    query: str = ""
    """Another for each start of the query: what an earlier one left open in a process is not gone on with."""


def run_ranges(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: rows of ranges in, a report out."""
    for batch in batches:
        for row in batch.to_pylist():
            report = run_range(plan, Range.of(row))
            yield pa.RecordBatch.from_arrays([pa.array([json.dumps(report)])], schema=REPORT)


def make_ready(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` as well: opens what the first range will need. Whatever fails fails there again."""
    for _ in batches:
        pass
    with suppress(Exception):
        ingesting = _opened(plan)
        try:
            ingesting.make_ready()
        except BaseException:
            ingesting.close()
            raise
        _open[_key(plan)] = ingesting
    yield from ()


_open: dict[str, "Ingesting"] = {}
"""By source; of this process, not of one that it was forked from."""


def run_range(plan: Plan, given: Range) -> dict[str, Any]:
    """Waits for whatever is away, for as long as patience lasts. Errors are raised as `Told`."""
    trouble = Trouble(Path(plan.trouble), plan.patience_s)
    while True:
        try:
            report = _attempt(plan, given)
            trouble.over()
            return report
        except QanatError as error:
            try:
                if kind_of(error) is not Outage:
                    raise
                trouble.wait(error)
            except QanatError as last:
                raise Told(last) from last


def _attempt(plan: Plan, given: Range) -> dict[str, Any]:
    ingesting = _opened(plan)
    try:
        ingesting.run(given)
    except BaseException:
        ingesting.close()
        raise
    _open[_key(plan)] = ingesting
    return ingesting.report(given)


def _key(plan: Plan) -> str:
    return f"{os.getpid()} {plan.letters}"


def _opened(plan: Plan) -> "Ingesting":
    """As the last range of this query left it; it is the caller's then."""
    ingesting = _open.pop(_key(plan), None)
    if ingesting is not None and ingesting.plan != plan:
        ingesting.close()
        ingesting = None
    return Ingesting(plan) if ingesting is None else ingesting


class Ingesting:
    """One source's reader and publisher."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._log = Log(ChangesOptions(plan.log), plan.routes.where)
        self._publisher = Publisher(plan.url, plan.source, plan.routes, self._put_aside)
        self._under_way: deque[Future[None]] = deque()
        self._folder = Path(plan.letters)
        self._done: Position | None = None
        """Everything up to here is in its streams, and all that could not be is a dead letter."""
        self._skipped: list[Letter] = []
        self._skipped_bytes = 0
        self._worker = uuid.uuid4().hex
        self._read = self._chosen = self._lost = self._dead = 0
        self._busy_s = 0.0
        self._events: dict[str, int] = {}
        self._positions: dict[str, Position] = {}
        self._noted = Published.read(Path(plan.published), plan.routes.mark)
        self._reached = Published.reached_of(Path(plan.published)) or Position(0, 0)
        self._time_us = 0
        self._newest = Newest(Position(0, 0))
        self._teller = Teller(Path(plan.live))
        self._used = threading.Lock()
        self._closed = threading.Event()
        self._idle_since = float("inf")
        if self._log.options.scheme in _EXCLUSIVE:
            threading.Thread(target=self._rest, name="qanat-idle", daemon=True).start()

    def make_ready(self) -> None:
        """What can be done before there is a range: to open a log takes a look at all of its last file. One
        that only one may read is left alone."""
        with self._used:
            if self._log.options.scheme not in _EXCLUSIVE:
                self._log.reader  # noqa: B018
            self._publisher.existing()

    def run(self, given: Range) -> None:
        with self._used:
            self._run(given)
            self._idle_since = time.monotonic()

    def _run(self, given: Range) -> None:
        began = time.monotonic()
        self._teller.begin()
        self._newest = Newest(given.newest)
        after = self._floor(given.after) if self._done is None else max(self._done, given.after)
        while True:
            try:
                self._pass(after, given.upto)
                break
            except SetBack as lost:
                # The server came back without its last events: they are in the log, and other streams drop
                # them.
                for stream, position in self._all_set_back(lost).items():
                    after = self._behind(stream, position, after)
        self._done = max(after, given.upto)
        self._note(self._done)
        self._teller.end()
        self._release(given.released)
        self._busy_s += time.monotonic() - began

    def report(self, given: Range) -> dict[str, Any]:
        """Sums since this process opened the log."""
        return {
            "worker": self._worker,
            "upto": str(given.upto),
            "newest": str(given.newest),
            "seen_us": given.seen_us,
            "read": self._read,
            "chosen": self._chosen,
            "dead": self._dead,
            "lost": self._lost,
            "busy_s": round(self._busy_s, 4),
            "time_us": self._time_us,
            "events": self._events,
            "positions": {stream: str(position) for stream, position in self._positions.items()},
        }

    def close(self) -> None:
        self._closed.set()
        with self._used, suppress(Exception):
            self._log.close()
        self._publisher.close()

    def _rest(self) -> None:
        """Lets go of a log that only one may read, and that holds up its server's shutdown as long as nobody
        reads, when there is nothing to do."""
        while not self._closed.wait(_IDLE_S / 2):
            with self._used:
                if time.monotonic() - self._idle_since > _IDLE_S:
                    self._idle_since = float("inf")
                    with suppress(Exception):
                        self._log.close()

    # --- where to begin ---------------------------------------------------------------------------------

    def _floor(self, after: Position) -> Position:
        """Where reading begins in a new process: where the range does, or further on if all streams have
        more, or further back if one has less than it had."""
        known, listed = self._noted, self.plan.routes.streams()
        streams = sorted(set(known) | set(listed or ()))
        existing = self._publisher.existing()
        for stream in known.keys() - existing:
            self._behind(stream, Position(0, 0), after)
        found = self._publisher.positions([stream for stream in streams if stream in existing])
        floor = after
        if listed is not None:
            floor = max(after, min((found.get(stream, Position(0, 0)) for stream in listed), default=after))
        for stream, had in known.items():
            if found[stream] < min(had, floor):
                floor = self._behind(stream, found[stream], floor)
        return floor

    def _note(self, reached: Position) -> None:
        """Before Spark takes the range for done: a stream that has less than this later has lost it, and a
        checkpoint that says more is damaged."""
        if reached > self._reached or not self._noted.items() >= self._positions.items():
            self._noted, self._reached = self._noted | self._positions, max(reached, self._reached)
            streams = {stream: str(position) for stream, position in self._noted.items()}
            published = Published(self.plan.routes.mark, streams, str(self._reached))
            published.write(Path(self.plan.published))

    def _behind(self, stream: str, position: Position, after: Position) -> Position:
        """A stream has less than it had."""
        refuse_anew(stream, self.plan.source, position)
        return min(position, after)

    # --- a range ----------------------------------------------------------------------------------------

    def _pass(self, after: Position, upto: Position) -> None:
        if after >= upto:
            return
        self._log.go(Offset(self.plan.source, after, after))
        followed = items(self._log, upto, self.plan.read_updates, self._newest)
        with closing(ahead(followed, _READ_AHEAD)) as read:
            for item in read:
                self._tell()
                if isinstance(item, Undecoded):
                    self._skip(item)
                    continue
                self._put_skipped_aside()
                if isinstance(item, Lost):
                    self._lose(item)
                else:
                    self._take(item)
        self._put_skipped_aside()
        self._settle()

    def _take(self, updates: Updates) -> None:
        """Translated, taken apart, and on its way."""
        routed = route(updates, self.plan.routes, self.plan.source)
        self._read += routed.read
        self._chosen += routed.chosen
        self._time_us = max(self._time_us, routed.time_us)
        if routed.letters:
            self._settle()
            self._put_aside(routed.letters)
        for part in routed.parts:
            self._settle(_AHEAD)
            self._under_way.append(self._publisher.publish(part))
            for stream, events in part.items():
                self._events[stream] = self._events.get(stream, 0) + len(events)
                self._positions[stream] = Position(int(events.sequences[-1]), int(events.indexes[-1]))

    def _skip(self, bad: Undecoded) -> None:
        """Kept until something else comes, so that a table of which nothing can be decoded does not cost a
        file for each row."""
        self._skipped.append(Letter(bad.position, "decode", str(bad.error), "raw", bad.error.original))
        self._skipped_bytes += len(bad.error.original)
        self._read += 1
        if len(self._skipped) >= _LETTERS or self._skipped_bytes >= _LETTER_BYTES:
            self._put_skipped_aside()

    def _put_skipped_aside(self) -> None:
        """Before anything behind it is published: a stream that has that shows the whole range as done."""
        letters, self._skipped, self._skipped_bytes = self._skipped, [], 0
        self._put_aside(letters)

    def _lose(self, lost: Lost) -> None:
        named = parse_log_url(self.plan.log)
        if not self.plan.publish_losses:
            raise Disagreement(
                f"{named} no longer has what is after {lost.after} and up to {lost.upto}: {lost.reason}. To"
                " go on behind it, and say so in the streams, set "
                f'lost = "publish" in [sources.{self.plan.name}]; to have everything, begin with a snapshot'
                " in new streams"
            )
        streams = self.plan.routes.streams() or tuple({**self._noted, **self._events})
        self._settle()
        self._lost += 1
        self._under_way.append(self._publisher.publish({stream: loss_event(lost) for stream in streams}))

    def _settle(self, but: int = 0) -> None:
        """Until what was begun is stored, except the last few."""
        while len(self._under_way) > but:
            while not wait((self._under_way[0],), TELL_S).done:
                self._tell()
            self._under_way.popleft().result()

    def _tell(self) -> None:
        if self._teller.is_due() and self._log.at is not None:
            stored, waiting = self._publisher.progress()
            self._teller.tell(Live(time.time(), self._log.at, self._newest.position, stored, waiting))

    def _all_set_back(self, lost: SetBack) -> dict[str, Position]:
        """How far streams are that were set back, once nothing is under way any more."""
        found = dict(lost.positions)
        while self._under_way:
            try:
                self._under_way.popleft().result()
            except SetBack as other:
                for stream, position in other.positions.items():
                    found[stream] = min(position, found.get(stream, position))
        self._publisher.again()
        return found

    def _put_aside(self, letters: list[Letter]) -> None:
        if letters:
            self._dead += dead_letters.write(self._folder, letters)

    def _release(self, position: Position | None) -> None:
        reader = self._log.reader
        if position is not None and isinstance(reader, Acknowledging):
            reader.acknowledge(position)

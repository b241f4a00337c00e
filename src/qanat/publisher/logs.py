"""Readers of the log, one thread each, as the publisher's caravans ask for them."""

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc

from qanat.capture.continuity import Expecting, mark_of, packed
from qanat.capture.events import Events, events_of
from qanat.capture.reader import Acknowledging, LogReader, Lost
from qanat.capture.sharding import Sharding
from qanat.capture.updates import Updates
from qanat.events.batch import FRAME_LIMIT, Batch, stream_id
from qanat.events.errors import LocalError, QanatError, RemoteError
from qanat.events.position import Position
from qanat.protocols.publisher.config import EARLIEST, SNAPSHOT
from qanat.protocols.publisher.reading import (
    Locate,
    Located,
    Measured,
    PublisherRequest,
    ReadLog,
    Unreadable,
    WasLost,
    WasOther,
    WasRead,
)
from qanat.protocols.publisher.tables import LAST_INDEX
from qanat.publisher.history import Disputed, History
from qanat.runtime.backoff import DATASTORE_MS, Backoff
from qanat.runtime.memory import keep_freed_memory

log = logging.getLogger("qanat.publisher")

_WAIT_S = 0.1
"""How long a read waits for something to come; also how soon a reader that is told to go elsewhere does."""
_AHEAD_BYTES = 128 * 1024
"""After a read of so much, a replay rather than news, the next is begun before it is asked for."""
_READY, _READY_BYTES = 4, 8 << 20
"""Batches that are kept ready then, or as many as have so many bytes, before what the last read brings."""
_ROOM = 64 * 1024
"""Of a frame, for all of a batch that is not payload, at least."""

Tell = Callable[[PublisherRequest], None]
Open = Callable[[], LogReader]


class Piece(NamedTuple):
    """A part of what one read brought, after the position where the one before ended."""

    after: Position
    upto: Position
    batch: Batch | None
    lost: str = ""
    """Why it cannot be given."""
    cut: bool = False
    """The log does not have it any more."""
    mark: bytes = b""
    """Of the last update."""


class Readers:
    """`tell` is called from threads, and must hand over to the loop. `problem` is empty if there is none."""

    def __init__(self, open_log: Open, sharding: Sharding, chunk_bytes: int, tell: Tell) -> None:
        keep_freed_memory()  # each read takes some megabytes, and gives them back
        self._open, self._sharding, self._chunk_bytes, self._tell = open_log, sharding, chunk_bytes, tell
        self._threads: dict[int, _Thread] = {}
        self._leaving: list[_Thread] = []
        self._asking = _Asking(self._opened, tell)
        self.opens = 0
        self.past = Counter[str]()
        """What readers that are gone had counted."""

    def _opened(self) -> LogReader:
        self.opens += 1
        return self._open()

    @property
    def counts(self) -> Counter[str]:
        """Of all readers, since it began."""
        total = Counter(self.past)
        for worker in (*self._threads.values(), *self._leaving, self._asking):
            total.update(worker.counts)
        return total

    @property
    def count(self) -> int:
        return len(self._threads)

    @property
    def problem(self) -> str:
        threads = list(self._threads.values())
        return next((each.problem for each in (*threads, self._asking) if each.problem), "")

    def read(self, asked: ReadLog) -> None:
        thread = self._threads.get(asked.caravan)
        if thread is None:
            thread = self._threads[asked.caravan] = self._thread(asked)
        thread.ask(asked)

    def _thread(self, asked: ReadLog) -> "_Thread":
        name = f"caravan {asked.caravan}"
        return _Thread(name, self._opened, self._tell, self._sharding, self._chunk_bytes)

    def close_one(self, caravan: int) -> None:
        thread = self._threads.pop(caravan, None)
        if thread is not None:
            thread.ask(None)
            for gone in [each for each in self._leaving if not each.is_alive()]:
                self._leaving.remove(gone)
                self.past.update(gone.counts)
            self._leaving.append(thread)

    def locate(self, asked: Locate) -> None:
        self._asking.ask(asked)

    def measure(self) -> None:
        self._asking.ask(_MEASURE)

    def acknowledge(self, position: Position) -> None:
        """For datastores that keep their log until they are told; by one of the readers, since they all are
        of one slot. Where none reads, as at a copy that owns nothing, the slot is moved on without one."""
        for thread in list(self._threads.values()):
            thread.acknowledged = position
        if not self._threads:
            self._asking.ask(position)

    def close(self) -> None:
        threads = [*self._threads.values(), self._asking]
        for thread in threads:
            thread.ask(None)
        for thread in (*threads, *self._leaving):
            thread.join(2.0)


_MEASURE = object()


class _Worker(threading.Thread):
    """Does what it is asked, one thing after the other; None ends it."""

    def __init__(self, name: str, open_log: Open, tell: Tell) -> None:
        super().__init__(name=name, daemon=True)
        self._open, self._tell = open_log, tell
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._reader: LogReader | None = None
        self._backoff = Backoff(*DATASTORE_MS)
        self.counts = Counter[str]()
        self.problem = ""
        self.start()

    def ask(self, asked: object) -> None:
        self._queue.put(asked)

    def run(self) -> None:
        while (asked := self._queue.get()) is not None:
            while True:
                try:
                    self.answer(asked)
                except QanatError as error:
                    self._failed(error)
                    if self._queue.empty():
                        continue
                    self.put_off(asked)
                except Exception as error:  # a fault of ours; the log is read again, from where it was
                    log.exception("a log reader failed", extra={"reader": self.name})
                    self._failed(LocalError(f"{type(error).__name__}: {error}"))
                    if self._queue.empty():
                        continue
                    self.put_off(asked)
                break
        self._drop()

    def answer(self, asked: object) -> None:
        raise NotImplementedError

    def put_off(self, asked: object) -> None:
        """It failed, and something else is asked, which stands for it."""

    def reader(self) -> LogReader:
        self._reader = self._reader or self._open()
        return self._reader

    def succeeded(self) -> None:
        if self.problem:
            log.info("the log can be read again", extra={"reader": self.name})
            self.problem = ""
        self._backoff.reset()

    def _failed(self, error: QanatError) -> None:
        if not self.problem:
            log.warning("the log cannot be read", extra={"reader": self.name, "reason": str(error)})
        self.problem = str(error)
        self.counts["failures"] += 1
        if not isinstance(error, RemoteError):
            self._drop()
        self._backoff.sleep()

    def _drop(self) -> None:
        if self._reader is not None:
            with suppress(Exception):
                self._reader.close()
            self._reader = None


class _Asking(_Worker):
    """Where the log begins and ends."""

    def __init__(self, open_log: Open, tell: Tell) -> None:
        super().__init__("positions", open_log, tell)

    def answer(self, asked: object) -> None:
        reader = self.reader()
        self.counts["questions"] += 1
        if isinstance(asked, Locate):
            position = reader.oldest() if asked.start == EARLIEST else reader.latest()
            if asked.start == SNAPSHOT:
                position = Position(position.sequence, 0)
            self._tell(Located(asked.application, asked.start, position))
        elif isinstance(asked, Position):
            if isinstance(reader, Acknowledging):
                reader.advance(asked)
        else:
            self._tell(Measured(reader.oldest(), reader.latest()))
        self.succeeded()

    def put_off(self, asked: object) -> None:
        if isinstance(asked, Locate):
            self.ask(asked)  # nobody asks it again

    def _failed(self, error: QanatError) -> None:
        self._tell(Unreadable())
        super()._failed(error)


class _Thread(_Worker):
    """The reader of one caravan."""

    def __init__(self, name: str, open_log: Open, tell: Tell, sharding: Sharding, chunk_bytes: int) -> None:
        self._sharding, self._chunk_bytes = sharding, chunk_bytes
        self._at: Position | None = None
        self._columns: tuple[str, ...] | None = None
        """Which columns of rows the pieces have."""
        self._pieces: deque[Piece] = deque()
        self._history = History()
        self._lock = threading.Lock()
        self._is_ahead = False
        """While it reads ahead, whoever asks takes pieces that are ready, under the lock; else they are the
        thread's own."""
        self.acknowledged: Position | None = None
        super().__init__(name, open_log, tell)

    def ask(self, asked: object) -> None:
        """What was read before is given at once, though the thread may be at what comes after it."""
        piece = None
        with self._lock:
            if self._is_ahead and isinstance(asked, ReadLog) and self._fits(asked):
                piece = self._pieces.popleft()
        if piece is None or not isinstance(asked, ReadLog):
            super().ask(asked)
        else:
            self._tell_piece(asked, piece)

    def _fits(self, asked: ReadLog) -> bool:
        """Whether the first of the pieces is what is asked for."""
        return (
            bool(self._pieces)
            and self._pieces[0].after == asked.after
            and self._columns == asked.columns
            and self._history.covers(asked)
        )

    def answer(self, asked: object) -> None:
        assert isinstance(asked, ReadLog)
        if not self._fits(asked):
            self._pieces.clear()
        if not self._pieces:
            try:
                self._read(asked, _WAIT_S)
            except Disputed as error:
                self._drop()
                self.counts["disputes"] += 1
                self._tell(WasOther(asked.caravan, asked.after, error.seen, str(error)))
                return
        self.succeeded()
        if self._give(asked) >= _AHEAD_BYTES:
            self._read_ahead(asked)

    def _read_ahead(self, asked: ReadLog) -> None:
        """While this is sent, what comes next is read, so that always some batches are ready; whatever is
        wrong with it is found again, and told, when it is asked for."""
        self._is_ahead = True
        while self._at is not None and self._wants_more() and self._queue.empty():
            before = self._at
            try:
                self._read(msgspec.structs.replace(asked, after=before), 0.0)
            except Exception:
                self._at = None
            if self._at == before:
                break
        with self._lock:
            self._is_ahead = False

    def _wants_more(self) -> bool:
        with self._lock:
            sizes = [0 if piece.batch is None else piece.batch.virtual_size for piece in self._pieces]
        return len(sizes) < _READY and sum(sizes) < _READY_BYTES

    def _give(self, asked: ReadLog) -> int:
        """How many bytes it was."""
        if not self._pieces:
            self._tell(WasRead(asked.caravan, asked.after, asked.after, None))
            return 0
        return self._tell_piece(asked, self._pieces.popleft())

    def _tell_piece(self, asked: ReadLog, piece: Piece) -> int:
        self.counts["pieces"] += 1
        if piece.lost:
            self.counts["lost"] += 1
            self._tell(WasLost(asked.caravan, piece.after, piece.upto, piece.lost, piece.cut))
        else:
            columns = self._columns
            self._tell(WasRead(asked.caravan, piece.after, piece.upto, piece.batch, columns, piece.mark))
        return 0 if piece.batch is None else piece.batch.virtual_size

    def _read(self, asked: ReadLog, wait_s: float) -> None:
        reader, history = self.reader(), self._history
        if self._at != asked.after or history.must_seek(asked):
            self._at = None
            newest = reader.latest()
            if asked.after > newest and asked.after != (newest.sequence, LAST_INDEX):
                time.sleep(_WAIT_S)
                raise RemoteError(
                    f"the log ends at {newest}, before the datamarker {asked.after}: this copy is behind and"
                    " is waited for, or it is not the log that was read before"
                )
            history.seek(reader, asked)
            self.counts["seeks"] += 1
        if self.acknowledged is not None and isinstance(reader, Acknowledging):
            reader.acknowledge(self.acknowledged)
        began = time.monotonic_ns()
        try:
            found = history.read(reader, asked, wait_s)
        except BaseException:
            self._at = None
            raise
        finally:
            self.counts["busy_us"] += (time.monotonic_ns() - began) // 1000
        if isinstance(found, Lost):
            pieces = [Piece(asked.after, found.upto, None, found.reason, cut=True)]
        else:
            pieces = pieces_of(
                found, asked.after, self._sharding, reader.source, self._chunk_bytes, asked.columns
            )
            if isinstance(reader, Expecting):
                pieces = marked(pieces, found)
        with self._lock:
            self._columns = asked.columns
            self._pieces.extend(pieces)
            for piece in pieces:
                history.knows(piece.mark)
        self._at = found.upto if found.upto is not None else asked.after

    def _drop(self) -> None:
        super()._drop()
        self._at = None
        self._pieces.clear()


def pieces_of(
    updates: Updates,
    after: Position,
    sharding: Sharding,
    source: str,
    chunk_bytes: int,
    columns: tuple[str, ...] | None = None,
) -> list[Piece]:
    """What a read brought, as batches that fit, with these columns of rows (None: all); and where one update
    alone is too large for any, that it is."""
    upto = updates.upto if updates.upto is not None else after
    if not updates:
        return [] if upto == after else [Piece(after, upto, None)]
    events = events_of(updates, sharding, columns)
    times = np.concatenate([run.times_us for run in updates.runs])
    sizes = np.asarray(pc.binary_length(events.payloads)).astype(np.int64)
    ends = np.cumsum(sizes)
    found: list[Piece] = []
    start, count = 0, len(events)
    while start < count:
        base = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, base + chunk_bytes, "right")))
        last = upto if stop == count else _position(events, stop - 1)
        if int(ends[stop - 1]) - base > FRAME_LIMIT - _ROOM:
            reason = (
                f"the update at {_position(events, start)} has {int(sizes[start]):,} bytes, more than one"
                " message carries"
            )
            found.append(Piece(after, last, None, reason))
        else:
            found.append(Piece(after, last, _batch(events, times, source, start, stop)))
        after, start = last, stop
    return found


def marked(pieces: list[Piece], updates: Updates) -> list[Piece]:
    """Each with the mark of its last update."""
    found, rows, runs = [], 0, iter(updates.runs)
    run, end = None, 0
    for piece in pieces:
        if piece.batch is None:
            rows += bool(piece.lost)  # one that is too large for any message
            found.append(piece)
            continue
        rows += piece.batch.count
        while run is None or end < rows:
            run = next(runs)
            end += len(run)
        found.append(piece._replace(mark=packed(mark_of(run, len(run) - 1 - (end - rows)))))
    return found


def _position(events: Events, row: int) -> Position:
    return Position(int(events.sequences[row]), int(events.indexes[row]))


def _batch(
    events: Events, times: "np.ndarray[tuple[int], np.dtype[np.int64]]", source: str, start: int, stop: int
) -> Batch:
    count = stop - start
    return Batch.build(
        stream_id(source),
        events.payloads.slice(start, count),
        keys=events.keys.slice(start, count),
        times=times[start:stop],
        attributes={
            name: [column.slice(start, count) for column in columns]
            for name, columns in events.attributes.items()
        },
        source=source,
        positions=(events.sequences[start:stop], events.indexes[start:stop]),
    )

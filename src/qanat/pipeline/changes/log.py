"""A log as its options name it, and a place in it; what the streaming source, the batch source and the tasks
that read ranges share."""

import time
from collections.abc import Iterator

import numpy as np

from qanat.capture.continuity import Mark, mark_of
from qanat.capture.errors import MalformedLog
from qanat.capture.events import Events
from qanat.capture.feed import source_of
from qanat.capture.reader import Filtering, LogReader, Lost
from qanat.capture.updates import Run, Updates
from qanat.events.errors import RemoteError
from qanat.events.position import Position
from qanat.pipeline.changes.offsets import ChangesDisagree, Offset, is_beyond, place
from qanat.pipeline.changes.options import ChangesOptions, is_plain
from qanat.pipeline.changes.rows import chosen

READ_ROWS = 20_000
"""Read at once: some megabytes."""
_WAIT_S = 1.0


class Log:
    """Opened when it is first needed, since Spark makes sources of which it then asks nothing; and pickled as
    its options alone."""

    def __init__(self, options: ChangesOptions, wanted: str = "") -> None:
        """`wanted`: a filter that whoever reads evaluates anyway; a reader that can leaves out what does
        not pass it."""
        self.options, self.choice = options, options.choice()
        self._wanted = wanted if is_plain(wanted) else ""
        self.at: Position | None = None
        """Everything up to here was taken."""
        self.step = READ_ROWS
        """How many updates `upto` reads at once."""
        self._rest: Updates | Lost | None = None
        """What was read behind it."""
        self._reader: LogReader | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return Log, (self.options, self._wanted)

    @property
    def reader(self) -> LogReader:
        if self._reader is None:
            self._reader = self.options.open()
            if self._wanted and isinstance(self._reader, Filtering):
                self._reader.leave_out_but(self._wanted)
        return self._reader

    @property
    def source(self) -> str:
        """The name under which what is chosen of this log goes into streams."""
        return f"{self.reader.source}?{self.choice.mark}" if self.choice.mark else self.reader.source

    def refuse_unidentified(self) -> None:
        """Where a position is kept for later, it must be known of which dataset it is."""
        source_of(self.reader, self.choice)

    def close(self) -> None:
        self.at = self._rest = None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # --- reading ----------------------------------------------------------------------------------------

    def go(self, to: Offset) -> None:
        """To this offset. Raises `ChangesDisagree` if it is none of this log."""
        if self.at != to.position:
            self.at = self._rest = None
            place(self.reader, to, str(self.options), self.options.scheme)
            self.at = to.position

    def read(self, limit: int, wait_s: float, end: Position | None = None) -> Updates | Lost:
        """What follows, as a reader gives it, but nothing behind `end`."""
        item, self._rest = self._rest, None
        if item is None:
            item = self.reader.read(limit, wait_s)
        if end is not None and item.upto is not None and item.upto > end:
            item, self._rest = _cut(item, end)
        if item.upto is not None:
            self.at = item.upto
        return item

    def has(self, end: Position) -> bool:
        """Whether nothing up to this position is left to read."""
        return self.at is not None and not is_beyond(self.options.scheme, end, self.at)

    def upto(self, end: Position) -> Iterator[Updates | Lost]:
        """All that follows up to a position to which the log is known to have come."""
        heard, trouble = time.monotonic(), "it gives nothing more"
        while not self.has(end):
            before, item = self.at, None
            try:
                item = self.read(self.step, _WAIT_S, end)
            except MalformedLog:
                raise
            except RemoteError as error:
                trouble = str(error)
                time.sleep(0.1)
            if item is not None and (isinstance(item, Lost) or item):
                yield item
            if self.at != before:
                heard = time.monotonic()
            elif time.monotonic() - heard > self.options.patience:
                raise ChangesDisagree(
                    f"{self.options}: the log had come to {end}, but for {self.options.patience:g} s there is"
                    f" nothing after {self.at}: {trouble}. If the datastore is well, it was restored or lost"
                    " its end: begin with a new checkpoint"
                )

    def events(self, item: Updates | Lost) -> Events:
        """What was chosen, as events. A loss is one, if losses are accepted; else it stops the job."""
        return chosen(item, self.choice, self.options)[0]


def last_mark(item: Updates | Lost) -> Mark | None:
    """What tells the last of these updates from others at its position."""
    if isinstance(item, Lost) or not item:
        return None
    run = item.runs[-1]
    return mark_of(run, len(run) - 1)


def _cut(item: Updates | Lost, end: Position) -> tuple[Updates | Lost, Updates | Lost]:
    """What lies up to a position, and what lies behind it."""
    if isinstance(item, Lost):
        return Lost(item.after, end, item.reason), Lost(end, item.upto, item.reason)
    kept: list[Run] = []
    for run in item.runs:
        inside = (run.sequences < end.sequence) | (
            (run.sequences == end.sequence) & (run.indexes <= end.index)
        )
        kept.append(run.slice(0, int(np.count_nonzero(inside))))  # they rise, so these are the first
    return Updates(kept, end), item.after(end)

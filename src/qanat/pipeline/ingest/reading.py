"""The reading side of a task: what follows in a log, read while what was read before it is translated and
published."""

import queue
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from qanat.capture.errors import MalformedLog
from qanat.capture.reader import Lost
from qanat.capture.updates import Updates
from qanat.capture.url import parse_log_url
from qanat.events.errors import QanatError
from qanat.events.position import Position
from qanat.pipeline.changes.log import Log
from qanat.pipeline.ingest.failures import Disagreement, Outage

_T = TypeVar("_T")
_WAIT_S = 0.5
_LOOK_S = 1.0
_SILENCE_S = 30.0
"""A log that is known to have come so far, and gives nothing for as long, counts as away."""


@dataclass(frozen=True)
class Undecoded:
    """A record of which nothing is known but its bytes; the log is read on behind it."""

    error: MalformedLog
    position: Position


class Newest:
    """How far the log is, looked at now and then while a range is read: the range says only how far it was
    when that was planned."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self._looked = time.monotonic()

    def look(self, log: Log) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            with suppress(QanatError):  # whoever reads will be told
                self.position = max(self.position, log.reader.latest())


def items(
    log: Log, upto: Position, step: int, newest: Newest | None = None
) -> Iterator[Updates | Lost | Undecoded]:
    """What follows in the log up to a position to which it is said to have come."""
    heard = time.monotonic()
    while not log.has(upto):
        before = log.at
        if newest is not None:
            newest.look(log)
        try:
            item = log.read(step, _WAIT_S, upto)
        except MalformedLog as error:
            yield _behind(log, error)
            continue
        if isinstance(item, Lost) or item:
            yield item
        if log.at != before:
            heard = time.monotonic()
        elif time.monotonic() - heard > _SILENCE_S:
            named = parse_log_url(log.options.url)
            raise Outage(
                f"{named} was said to have come to {upto}, but for {_SILENCE_S:.0f} s it gives nothing after"
                f" {log.at}"
            )


def _behind(log: Log, error: MalformedLog) -> Undecoded:
    """Goes on behind a record that cannot be decoded, where its reader knows where the next one begins."""
    if error.resume is None or log.at == error.resume:
        raise Disagreement(
            f"{parse_log_url(log.options.url)} cannot be read on after {log.at}: {error}. Where its next"
            " update begins cannot be known. Repair it, or put its files back as they were, and start again;"
            " or begin anew, with a snapshot, another state folder and new streams"
        ) from error
    log.reader.seek(error.resume)
    log.at = error.resume
    return Undecoded(error, error.position or error.resume)


def ahead(made: Iterator[_T], most: int) -> Generator[_T]:
    """The same, made in a thread of its own, at most so many before they are asked for. Whoever stops early
    closes it."""
    ready: queue.SimpleQueue[tuple[_T, None] | tuple[None, BaseException | None]] = queue.SimpleQueue()
    room, ended = threading.Semaphore(most), threading.Event()

    def work() -> None:
        failed: BaseException | None = None
        room.acquire()
        try:
            for one in made:
                ready.put((one, None))
                room.acquire()
                if ended.is_set():
                    return
        except BaseException as error:
            failed = error
        ready.put((None, failed))

    thread = threading.Thread(target=work, name="qanat-reading", daemon=True)
    thread.start()
    try:
        while True:
            one, error = ready.get()
            if error is not None:
                raise error
            if one is None:
                return
            room.release()
            yield one
    finally:
        ended.set()
        room.release()
        thread.join()

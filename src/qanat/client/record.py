"""Writing down what subscriptions hand to the application, so that it can be proven later (docs/audit.md).

Each `take` appends what it is about to return with one write, before it returns: a process that is killed at
any moment has recorded all that its application was given, and perhaps a last piece that it was not. Nothing
is kept back in memory; a batch costs 32 bytes, whatever its size. A record that cannot be written ends the
subscription: a delivery that was not recorded would look like a loss.
"""

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from qanat.client.errors import EventsLost
from qanat.client.record_format import (
    SUFFIX,
    Entry,
    Heading,
    encode_entry,
    encode_heading,
    encode_rows,
    encode_runs,
)
from qanat.events.batch import Batch, Kind
from qanat.events.durable import make_folder
from qanat.events.errors import LocalError
from qanat.events.filters import FilterError, parse

PART_BYTES = 32 * 1024 * 1024
"""Then the next file begins: a million entries, which is what one task of the audit reads at a time."""
COVERED_EVERY_US = 1_000_000
"""How often, at most, it is written down that nothing passed: what a kill may leave unsaid of a silent
stretch."""


class RecordingFailed(LocalError):
    """What was to be handed over could not be recorded, so it is not handed over."""

    exit_code = 3


class Recording:
    """One subscription's record: files `….0000.record`, `….0001.record`, … in a folder. Opened when there is
    something to say."""

    def __init__(
        self, folder: str | os.PathLike[str], subscriber: str, stream: str, where: str, start: str
    ) -> None:
        self.folder = Path(folder)
        self._of = (subscriber, stream, _printed(where), start)
        self._heading: Heading | None = None
        self._fd: int | None = None
        self._size = 0
        self._covered = self._told = 0
        """The last sequence number that was handed over or did not pass; and as far as the file says."""
        self._told_us = 0

    @property
    def begun(self) -> bool:
        return self._heading is not None

    def begin(self, first: int, region: str) -> None:
        """Once the server has said where the subscription begins."""
        subscriber, stream, where, start = self._of
        self._heading = Heading(
            subscriber=subscriber,
            region=region,
            stream=stream,
            where=where,
            start=start,
            first=first,
            began_us=self._begins_us(),
            run=uuid.uuid4().hex,
        )
        self._covered = self._told = first - 1
        self._write(b"")

    def _begins_us(self) -> int:
        """Now, and later than all that lies here: runs are judged in the order of their beginnings, and the
        clock may have been set back since the one before."""
        beginnings = [name.partition("-")[0] for name in _names(self.folder) if name.endswith(SUFFIX)]
        newest_us = max((int(each) for each in beginnings if each.isdecimal()), default=0)
        return max(_now_us(), newest_us + 1)

    def took(self, batches: Sequence[Batch]) -> None:
        """These are handed over now."""
        now_us = _now_us()
        self._write(b"".join([_entries(batch, now_us) for batch in batches]))
        last = batches[-1]
        self._covered = last.last
        self._told = int(last.seqs()[-1]) if last.header.count != last.header.span else last.last
        self._tell_covered(now_us)

    def lost(self, error: EventsLost) -> None:
        count = error.last - error.first + 1
        self._write(encode_entry(Entry.LOST, _now_us(), error.first, count))
        self._covered = self._told = error.last

    def silent(self, upto: int) -> None:
        """All up to here was handed over or did not pass."""
        if upto > self._covered:
            self._covered = upto
            self._tell_covered(_now_us())

    def end(self) -> None:
        """The subscription is closed; if what had arrived is taken nevertheless, the record goes on."""
        if self._fd is not None:
            with suppress(RecordingFailed):  # it says no more than is known without it
                self._write(encode_entry(Entry.END, _now_us(), self._covered + 1, 0))
                self._told = self._covered
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _tell_covered(self, now_us: int) -> None:
        early = (
            0 <= now_us - self._told_us < COVERED_EVERY_US
        )  # a clock that was set back is no reason to wait
        if self._covered > self._told and not early:
            self._write(encode_entry(Entry.COVERED, now_us, self._told + 1, self._covered - self._told))
            self._told, self._told_us = self._covered, now_us

    def _write(self, data: bytes) -> None:
        heading = self._heading
        if heading is None:
            raise LocalError("a recording begins before anything is recorded")
        try:
            if self._fd is not None and self._size + len(data) > PART_BYTES:
                self.close()
                heading = self._heading = msgspec.structs.replace(heading, part=heading.part + 1)
            if self._fd is None:
                self._open(heading)
            while data and self._fd is not None:
                done = os.write(self._fd, data)
                self._size += done
                data = data[done:]
        except OSError as error:
            self.close()
            raise RecordingFailed(
                f"what stream {heading.stream!r} delivered cannot be recorded in {self.folder}:"
                f" {error.strerror}; make room, or subscribe without record="
            ) from error

    def _open(self, heading: Heading) -> None:
        make_folder(self.folder)
        path = self.folder / f"{heading.began_us}-{heading.run[:12]}.{heading.part:04d}{SUFFIX}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._fd).st_size
        if not self._size:
            os.write(self._fd, encode_heading(heading))
            self._size = os.fstat(self._fd).st_size


def _entries(batch: Batch, now_us: int) -> bytes:
    if batch.is_dense and batch.kinds is None:
        return encode_entry(Entry.DATA, now_us, batch.first, batch.count)
    kinds, seqs = batch.kinds, batch.seqs()
    if kinds is None or not kinds.any():
        return encode_rows(Entry.DATA, now_us, seqs)
    ranges = batch.ranges
    spans = np.ones(len(seqs), np.uint64) if ranges is None else ranges
    firsts = seqs - spans + np.uint64(1)
    # An entry begins where the kind changes, where a number is left out, and at every tombstone.
    begins = np.ones(len(seqs), bool)
    begins[1:] = (kinds[1:] != kinds[:-1]) | (firsts[1:] != seqs[:-1] + np.uint64(1))
    begins |= kinds == Kind.TOMBSTONE
    at = np.flatnonzero(begins)
    lasts = np.append(at[1:], len(seqs)) - 1
    return encode_runs(kinds[at], now_us, firsts[at], seqs[lasts] - firsts[at] + np.uint64(1))


def _printed(where: str) -> str:
    """One form for filters that are the same. What is no filter is refused by the server, not here."""
    try:
        return str(parse(where)) if where.strip() else ""
    except FilterError:
        return where


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # it is not there yet; or whoever opens a file in it says what is wrong
        return []


def _now_us() -> int:
    return time.time_ns() // 1000

"""A row of append-only files as one log that is followed while it grows.

The reader goes through the numbered parts (`numbering`) in their order. At the end of the newest it waits:
half a record is not touched until the rest is there. A part with a successor is left when it was read to its
end and has settled, and that is written down first, so that its number stands for the same bytes at every
reader. A part that is gone, or was cut shorter, is `Lost`, with the positions it had.
"""

import time
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from qanat.capture.errors import LogUnreachable, MalformedLog
from qanat.capture.files.avro import HEADER_LIMIT, Header, parse_header
from qanat.capture.files.filesystem import FileSystem, Found, LocalFiles
from qanat.capture.files.formats import Avro, BadRecord, Chunk, Format, Records, first_record, format_of
from qanat.capture.files.framing import Lines
from qanat.capture.files.numbering import HEAD_BYTES, Part, is_same
from qanat.capture.files.options import OPTIONS, FilesOptions, read_options
from qanat.capture.files.positions import END_OFFSET, WHOLE_BLOCK, Place, end_of, place_of
from qanat.capture.files.register import Register, default_folder
from qanat.capture.reader import LogReader, Lost, Start
from qanat.capture.table import Column, Table
from qanat.capture.updates import Op, Run, Updates
from qanat.capture.url import LogUrl
from qanat.events.errors import LocalError
from qanat.events.position import Position

__all__ = ["OPTIONS", "FilesReader", "open"]

_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 22
_ROW_BYTES = 256
_LOOK_S = 0.25
"""How old the list of files may be while one of them is followed."""
_TAIL_BYTES = 64
_TRIES = 20


def open(url: LogUrl, options: Mapping[str, Any]) -> LogReader:
    return FilesReader(files_of(url), read_options(url, options))


def files_of(url: LogUrl) -> FileSystem:
    if url.scheme == "file":
        return LocalFiles()
    from qanat.capture.files.hdfs import HdfsFiles  # starts a Java

    return HdfsFiles(f"hdfs://{url.hosts}", url.user)


class _Next(Enum):
    ON = "the place has changed, though there is no update"
    WAIT = "there is nothing more yet"


class _Moved(Exception):
    """The file is not what it was when it was last looked at."""


class FilesReader:
    """A `LogReader` of files."""

    def __init__(self, files: FileSystem, options: FilesOptions) -> None:
        self._files = files
        self._options = options
        self._format: Format | None = None
        store: FileSystem = LocalFiles() if options.register else files
        folder = options.register.removeprefix("file://") or default_folder(options.pattern)
        self._register = Register(files, options.pattern, folder, store, options.order)
        self._position: Position | None = None
        self._place = Place(0, 0)
        """Where the next read begins."""
        self._skip = 0
        """So many records there were had."""
        self._tail = b""
        """What the bytes before it were, as far as known: if they are others, so is the file."""
        self._lost: Lost | None = None
        self._header: tuple[int, Header] | None = None
        self._verified = 0
        self._looked = float("-inf")
        self._last_seen: tuple[tuple[int, int], Position] = ((0, 0), Position(0))
        """The last record of a file of some length."""
        self._still: tuple[Place, int, float] = (Place(0, 0), 0, 0.0)
        """Since when a file of this length has nothing more to read."""

    @property
    def source(self) -> str:
        return self._options.dataset or f"{self._options.name}#{self._register.identity()}"

    @property
    def identified(self) -> bool:
        return True

    # --- positions --------------------------------------------------------------------------------------

    def seek(self, start: Start) -> None:
        if start == "latest":
            start = self.latest()
        elif start == "earliest":
            start = self.oldest()
        else:
            self._look()
        place = place_of(start)
        if place.number >= self._register.numbers.next:
            raise LocalError(
                f"{start} is in file {place.number}, but only {self._register.numbers.next - 1} files were"
                f" numbered in {self._options.pattern}: it is a position of other files, or their register"
                " was removed"
            )
        self._position, self._lost = start, None
        if place.offset == END_OFFSET or place.number == 0:
            self._go(Place(place.number + 1, 0))
        else:
            self._go(place, start.index + 1)

    def oldest(self) -> Position:
        self._look()
        first = self._register.numbers.following(1)
        return end_of((self._register.numbers.next if first is None else first.number) - 1)

    def latest(self) -> Position:
        """The last whole record, of whatever file: a newer one may be empty yet, and the one before it still
        be written to."""
        for _ in range(_TRIES):
            self._look()
            numbers = self._register.numbers
            try:
                for number in range(numbers.next - 1, 0, -1):
                    part = numbers.part(number)
                    found = end_of(number) if part is None else self._last(part, number == numbers.next - 1)
                    if part is None or found >= Position(number << 40):
                        return found
                return end_of(0)
            except _Moved:
                continue
        raise LogUnreachable(f"{self._options.pattern} changes too fast")

    def _last(self, part: Part, newest: bool) -> Position:
        """The last whole record of a part; if another one is newer, it is looked for only once for each
        length."""
        if newest:
            return self._last_record(part)
        seen = part.number, self._length(part)
        if seen != self._last_seen[0]:
            self._last_seen = seen, self._last_record(part)
        return self._last_seen[1]

    def _last_record(self, part: Part) -> Position:
        """Of lines it is looked for from the end; else from the start, or from where reading is."""
        form, length = self._form(part), self._length(part)
        at = part.start
        if part.number == self._place.number and at < self._place.offset <= length:
            at = self._place.offset
        if isinstance(form, Records) and isinstance(form.framing, Lines):
            at = self._line_before(part, length)
        found = end_of(part.number - 1)
        header = self._header_of(part)
        at = max(at, header.size if header is not None else 0)
        size = _MOST_BYTES
        while at < length:
            data = self._bytes(part, at, min(size, length - at))
            last = form.last(data, header)
            if last is None:
                if at + len(data) >= length or size > form.record_limit + _MOST_BYTES:
                    break
                size *= 2
                continue
            found = Position(Place(part.number, at + last[0]).sequence, last[1])
            at += last[2]
        here = self._position if self._place.number == part.number else None
        return found if here is None or found >= Position(part.number << 40) else max(found, here)

    def _line_before(self, part: Part, length: int) -> int:
        """Where a line begins that is one of the last whole ones."""
        size = _LEAST_BYTES
        while True:
            at = max(part.start, length - size)
            data = self._bytes(part, at, length - at)
            first = data.find(b"\n")
            if at == part.start:
                return at
            if first != data.rfind(b"\n"):
                return at + first + 1
            size *= 4

    # --- reading ----------------------------------------------------------------------------------------

    def read(self, limit: int, wait_s: float = 0.0) -> Updates | Lost:
        if self._position is None:
            self.seek("latest")
        deadline = time.monotonic() + wait_s
        while True:
            runs = self._runs(limit)
            if runs:
                return Updates(runs, self._position)
            if self._lost is not None:
                lost, self._lost = self._lost, None
                self._position = lost.upto
                return lost
            left = deadline - time.monotonic()
            if left <= 0:
                return Updates((), self._position)
            time.sleep(min(self._files.poll_s, left))

    def _runs(self, limit: int) -> list[Run]:
        """What can be had at once, of several files if they are short."""
        runs: list[Run] = []
        left = limit
        while left > 0 and self._lost is None:
            try:
                run = self._step(left)
            except (MalformedLog, LogUnreachable):
                if runs:  # the next read will say so
                    break
                raise
            if run is _Next.WAIT:
                break
            if isinstance(run, Run) and len(run):
                runs.append(run)
                self._position = run.position(-1)
                left -= len(run)
        return runs

    def _step(self, limit: int) -> Run | _Next:
        """The next run, or what to do where there is none."""
        for attempt in range(_TRIES):
            self._look(_LOOK_S if attempt == 0 else 0.0)
            part = self._register.numbers.part(self._place.number)
            if part is None:
                return self._missing()
            if self._place.offset < part.start:
                self._go(Place(part.number, part.start))
            if part.end is not None and self._place.offset > part.end:
                if not part.cut:  # what was had behind its end belongs to another number by now
                    self._go(Place(part.number + 1, 0))
                    return _Next.ON
                self._register.forget(part.number)
                continue
            try:
                self._verify(part)
                return self._from(part, limit)
            except _Moved:
                continue
        raise LogUnreachable(f"{self._options.pattern} changes too fast to be read")

    def _from(self, part: Part, limit: int) -> Run | _Next:
        form = self._form(part)
        header = self._header_of(part)
        if header is not None and self._place.offset < header.size:
            self._go(Place(part.number, max(header.size, part.start)))
        self._check_start(part, form)
        size = min(max(limit * _ROW_BYTES, _LEAST_BYTES), _MOST_BYTES)
        while True:
            offset = self._place.offset
            end = END_OFFSET if part.end is None else part.end
            want = max(min(size, end - offset), 0)
            data = self._followed(part, offset, want) if want else b""
            try:
                chunk = form.decode(
                    data, header, self._skip if isinstance(form, Avro) else min(self._skip, 1), limit
                )
            except BadRecord as error:
                place = Place(part.number, offset + error.offset)
                resume = Position(place.sequence, WHOLE_BLOCK)
                raise MalformedLog(
                    f"{part.path}, {place.offset} bytes on: {error} (to leave it out, read from position"
                    f" {resume})",
                    position=Position(place.sequence, 0),
                    resume=resume,
                    original=first_record(data[error.offset :], form),
                ) from error
            if chunk is not None:
                return self._taken(part, data, chunk)
            if len(data) < want or want == end - offset:
                return self._at_end(part, data)
            size *= 2
            if size > 4 * (form.record_limit + _MOST_BYTES):
                raise MalformedLog(f"{part.path}, {offset} bytes on: no record ends within {size} bytes")

    def _taken(self, part: Part, data: bytes, chunk: Chunk) -> Run:
        place = Place(part.number, self._place.offset + chunk.consumed)
        sequences = (chunk.offsets + self._place.offset).astype(np.uint64) | np.uint64(part.number << 40)
        before = data[max(0, chunk.consumed - _TAIL_BYTES) : chunk.consumed]
        tail = (self._tail + before)[-_TAIL_BYTES:]
        self._go(place, int(chunk.indexes[-1]) + 1 if chunk.partial else 0, tail)
        found = self._register.found.get(part.identity)
        count = len(sequences)
        columns = tuple(
            Column(one.name, one.type, one.declared, one.name in self._options.key) for one in chunk.columns
        )
        table = Table("", "", self._options.table, columns)
        after = pa.RecordBatch.from_arrays(chunk.values, schema=table.arrow)
        return Run(
            table,
            np.full(count, Op.INSERT, np.uint8),
            sequences,
            chunk.indexes,
            np.full(count, 0 if found is None else found.changed_us, np.int64),
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([part.path])),
            after,
        )

    # --- the ends of files ------------------------------------------------------------------------------

    def _at_end(self, part: Part, rest: bytes) -> Run | _Next:
        """All whole records of a part were had, and this is behind them."""
        if part.end is None and not self._has_settled(part, len(rest)):
            return _Next.WAIT
        if rest and self._form(part).is_record(rest):
            data = rest + b"\n"
            chunk = self._form(part).decode(data, None, min(self._skip, 1), 1)
            if chunk is not None:
                return self._taken(part, rest, chunk._replace(consumed=len(rest)))
        if part.end is None:
            self._register.close_part(part.number, self._place.offset, self._place.offset + len(rest))
            return _Next.ON
        whole = any(
            other.identity == part.identity and other.start == part.end
            for other in self._register.numbers.parts
        )
        if part.cut:
            self._lose(part.number, f"{part.path} was cut to {part.end} bytes before it was read to its end")
        elif (rest or part.length > part.end) and not whole:
            self._lose(
                part.number,
                f"{part.path} ends in half a record, {part.length - self._place.offset} bytes of it",
            )
        self._go(Place(part.number + 1, 0))
        return _Next.ON

    def _has_settled(self, part: Part, rest: int) -> bool:
        """Whether nothing more is to be expected: there is a successor, and the file has been as it is for a
        while."""
        length = self._place.offset + rest
        now = time.monotonic()
        if self._still[:2] != (self._place, length):
            self._still = (self._place, length, now)
        if self._register.numbers.following(part.number + 1) is None:
            return False
        found = self._register.found.get(part.identity)
        if found is not None and found.length < length:
            return False
        age_s = 0.0 if found is None or found.length > length else time.time() - found.changed_us / 1e6
        if max(age_s, now - self._still[2]) < self._options.settle_s:
            return False
        return not self._bytes(part, length, 1)

    def _missing(self) -> Run | _Next:
        number, numbers = self._place.number, self._register.numbers
        if number >= numbers.next:
            return _Next.WAIT
        following = numbers.following(number)
        until = numbers.next if following is None else following.number
        files = f"file {number}" if until == number + 1 else f"files {number} to {until - 1}"
        self._lose(
            until - 1,
            f"{files} of {self._options.pattern} was removed, replaced, or cut to less than was read of it,"
            " and may have had more",
        )
        self._go(Place(until, 0))
        return _Next.ON

    def _lose(self, number: int, reason: str) -> None:
        self._lost = Lost(self._position or end_of(self._place.number - 1), end_of(number), reason)

    # --- files ------------------------------------------------------------------------------------------

    def _look(self, every_s: float = 0.0) -> None:
        now = time.monotonic()
        if now - self._looked < every_s:
            return
        number, offset = self._place
        self._register.look({number: offset})
        self._looked = now

    def _go(self, place: Place, skip: int = 0, tail: bytes = b"") -> None:
        self._place, self._skip, self._tail = place, skip, tail

    def _form(self, part: Part) -> Format:
        if self._format is None:
            one = self._options
            self._format = format_of(one.format, part.path, one.record_limit, one.as_value)
        return self._format

    def _length(self, part: Part) -> int:
        found: Found | None = self._register.found.get(part.identity)
        length = part.length if found is None else found.length
        return length if part.end is None else min(length, part.end)

    def _verify(self, part: Part) -> None:
        """A file that was not looked into since this reader began may have been replaced by one that has its
        identity."""
        if self._verified != part.number:
            head = self._bytes(part, 0, HEAD_BYTES)
            if not is_same(part, head, len(head)):
                self._register.forget(part.number)
                raise _Moved
            self._verified = part.number

    def _check_start(self, part: Part, form: Format) -> None:
        """Of lines it can be seen whether one begins where a position says so."""
        offset = self._place.offset
        if not self._skip or not isinstance(form, Records) or not isinstance(form.framing, Lines):
            return
        if offset > part.start and self._bytes(part, offset - 1, 1) not in (b"\n", b""):
            if part.cut:  # so far that the position was cut off, and then written anew
                self._register.forget(part.number)
                raise _Moved
            raise LocalError(
                f"{self._position} is no position of {self._options.pattern}: no line begins there"
            )

    def _followed(self, part: Part, offset: int, count: int) -> bytes:
        tail = self._tail
        data = self._bytes(part, offset - len(tail), count + len(tail))
        if not tail:
            return data
        if len(data) >= len(tail) and data.startswith(tail):
            return data[len(tail) :]
        self._look()
        if len(data) >= len(tail) and self._register.numbers.part(part.number) == part:
            self._register.forget(part.number)  # as long as it was, or longer, but with other bytes
        raise _Moved

    def _bytes(self, part: Part, offset: int, count: int) -> bytes:
        data = self._files.read(part.path, offset, count, part.identity)
        if data is None:
            raise _Moved
        return data

    def _header_of(self, part: Part) -> Header | None:
        if not isinstance(self._form(part), Avro):
            return None
        if self._header is None or self._header[0] != part.number:
            try:
                header = parse_header(self._bytes(part, 0, HEADER_LIMIT))
            except MalformedLog as error:
                raise MalformedLog(f"{part.path}: {error}") from error
            if header is None:
                return None
            self._header = (part.number, header)
        return self._header[1]

    def close(self) -> None:
        self._files.close()

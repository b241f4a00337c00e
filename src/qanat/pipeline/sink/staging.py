"""Where a task's rows wait until the driver knows that they count: encoded as they will be published, in
files or in its message.

A task may run twice, at once or after another, and only one of its runs counts; which one, Spark says when
all are done. So no task publishes anything. Small pieces travel with the task's message; large ones lie in a
folder that the driver sees as well, in files that are what a segment of a stream's log is: where the log is
on the same disk, it takes them over as they are.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from qanat.client.rows import LARGEST_BYTES, Rows
from qanat.client.staging import HEAD_BYTES, write_parts
from qanat.events.batch import HEADER_BYTES, stream_id
from qanat.events.durable import make, make_folder
from qanat.events.encode import encode_parts, prepare
from qanat.events.errors import LocalError
from qanat.log.ahead import Ahead
from qanat.pipeline.sink.columns import kinds_of, publishable
from qanat.pipeline.sink.writeback import write_back

_INLINE_BYTES = 256 * 1024
"""Of a piece that travels with its task's message: a file would cost more."""
_FILE_BYTES = LARGEST_BYTES
"""Of a file, at most, unless one batch is larger: so much is published at once, and removed once it is
stored."""
_BATCH_BYTES = 960 * 1024
"""Of a batch's payloads, as a client makes them."""
_TOKEN = "token"


@dataclass(frozen=True)
class Piece:
    """Batches of one stream, end to end: here, or in a file of the staging folder."""

    stream: str
    rows: int
    size: int
    data: bytes = b""
    file: str = ""
    heads: bytes = b""
    """The headers of a file's batches as their task wrote them: a log that takes the file over writes others.
    With these, the batches begin behind the room for a segment's head."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task has laid down."""

    partition: int
    source: str = ""
    batch: int = 0
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True)
class Staging:
    """A folder, and how a task finds out whether it is the driver's: another machine may have one of the same
    name."""

    folder: str
    token: str = ""

    @staticmethod
    def prepare(folder: str) -> "Staging":
        """By the driver."""
        path = Path(folder)
        try:
            make_folder(path)
            token = path / _TOKEN
            if not token.exists():
                make(token, uuid.uuid4().hex.encode("ascii"))
            return Staging(folder, token.read_text(encoding="latin-1"))  # whatever it says: tasks compare it
        except OSError as error:
            raise LocalError(
                f"rows to publish cannot wait in {folder}: {error.strerror}; give another folder by the"
                " option 'staging'"
            ) from None

    @property
    def is_here(self) -> bool:
        """Whether this process sees the driver's folder."""
        try:
            return Path(self.folder, _TOKEN).read_text(encoding="latin-1") == self.token
        except OSError:
            return False

    def of(self, source: str, batch: int) -> Path:
        return self.of_source(source) / str(batch)

    def of_source(self, source: str) -> Path:
        return Path(self.folder, source.replace("/", "-").replace("\0", "-"))


class _Writing:
    """What a task lays down for one stream, piece after piece."""

    def __init__(self, stream: str, folder: Path | None, label: str, *, near: bool) -> None:
        self.stream, self.folder, self.label, self.near = stream, folder, label, near
        self._done: list[Piece] = []
        self._rows = self._size = 0
        self._held: list[bytes | bytearray | memoryview] = []
        self._heads: list[bytes] = []
        self._file: int | None = None
        self._name = ""
        self._ahead: Ahead | None = None
        self._end_at = HEAD_BYTES

    def add(self, parts: list[bytes | bytearray | memoryview], rows: int) -> None:
        size = sum(map(len, parts))
        if self._file is not None and self._size + size > _FILE_BYTES:
            self._end()
        self._rows += rows
        self._size += size
        self._heads.append(bytes(parts[0][:HEADER_BYTES]))
        if self._file is None and (self.folder is None or self._size <= _INLINE_BYTES):
            self._held += [bytes(part) for part in parts]  # the rows' own memory is Arrow's, and used again
            return
        if self._file is None and self.folder is not None:
            make_folder(self.folder)
            self._name = f"{self.label}-{stream_id(self.stream):016x}-{uuid.uuid4().hex[:12]}.batches"
            self._file = os.open(
                self.folder / self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            self._ahead = Ahead(self._file, 0)
            parts, self._held = self._held + parts, []
        if self._file is not None and self._ahead is not None:
            self._ahead.before_write(self._end_at, size)
            self._end_at = write_parts(self._file, parts, self._end_at)

    def _end(self) -> None:
        """The piece is complete; what follows is another one."""
        if self._file is not None and self._ahead is not None:
            self._ahead.give_back(self._end_at)
            if self.near:
                write_back(self._file)
        self.close()
        if self._rows:
            heads = b"".join(self._heads) if self._name else b""
            data = b"".join(self._held)
            self._done.append(Piece(self.stream, self._rows, self._size, data, self._name, heads))
        self._rows = self._size = 0
        self._held, self._heads, self._name, self._end_at = [], [], "", HEAD_BYTES

    def pieces(self) -> list[Piece]:
        self._end()
        return self._done

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = self._ahead = None

    def discard(self) -> None:
        self.close()
        if self.folder is not None:
            for name in (*(piece.file for piece in self._done), self._name):
                if name:
                    with suppress(OSError):
                        (self.folder / name).unlink()


def lay_down(
    iterator: Iterator[pa.RecordBatch],
    stream: str,
    source: str,
    folder: Path | None,
    label: str,
    time_us: int,
    *,
    near: bool = False,
) -> list[Piece]:
    """All rows of a task, encoded; without a folder they stay in memory. `near`: files are for a log of this
    machine."""
    writings: dict[str, _Writing] = {}
    try:
        for rows in iterator:
            for name, events in publishable(rows, stream):
                if not len(events):
                    continue
                writing = writings.get(name)
                if writing is None:
                    writing = writings[name] = _Writing(name, folder, label, near=near)
                at = 0
                for part in Rows(events.payloads, events.keys, dict(events.attributes)).parts(_BATCH_BYTES):
                    draft = prepare(
                        stream_id(name),
                        part.payloads,
                        keys=part.keys,
                        attributes=part.attributes or None,
                        kinds=kinds_of(events, at, at + len(part)),
                        time_us=time_us,
                        source=source,
                        position=0,
                    )
                    writing.add(list(encode_parts(draft)), len(part))
                    at += len(part)
        return [piece for writing in writings.values() for piece in writing.pieces()]
    except BaseException:
        for writing in writings.values():
            writing.discard()
        raise


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)

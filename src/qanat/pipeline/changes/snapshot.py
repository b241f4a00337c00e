"""What is in a datastore's tables already, as the beginning of a job that reads its log: `start=snapshot`.

Rows and the log's updates come by turns, as `capture.snapshot` gives them. A log can be read again between
two positions, tables cannot: their rows are others a moment later. So each micro-batch of the snapshot is
laid down in a folder before Spark is told of its end. Whoever comes back with the checkpoint finds there what
the micro-batch was, and goes on behind it. What Spark has done with is removed.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from qanat.capture.snapshot import Progress, Step, snapshot
from qanat.capture.snapshot_feed import begun, snapshot_source
from qanat.capture.url import SnapshotChunks, open_chunks, with_password
from qanat.events.durable import make_folder, replace
from qanat.events.errors import LocalError
from qanat.events.kept import sealed, unsealed
from qanat.events.position import Position
from qanat.pipeline.changes.log import Log
from qanat.pipeline.changes.offsets import ChangesDisagree, Offset, Taken
from qanat.pipeline.changes.rows import chosen, packed, rows_of, unpacked
from qanat.pipeline.source.options import BadOption

_CHUNK_ROWS = 10_000
"""Of a table at once; their keys are compared with what the log had meanwhile."""


class Taking:
    """A snapshot that is being taken, from micro-batch to micro-batch. What it has open is made anew after a
    failure."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._chunks: SnapshotChunks | None = None
        self._steps: Iterator[Step] | None = None
        self._at: Offset | None = None
        """Where the next step begins."""

    def begin(self) -> Offset:
        """Where a snapshot begins: all tables are to come, and the log from now on."""
        reader = self._log.reader
        progress = begun(reader, self._opened(), self._log.choice, Position(0, 0))
        return Offset(reader.source, progress.position, progress.position, None, Taken(progress.tables))

    def next(self, start: Offset, rows: int, size: int) -> tuple[Offset, list[pa.RecordBatch]]:
        """A micro-batch of about so many rows and bytes, and where it ends."""
        made: list[pa.RecordBatch] = []
        try:
            for step in self._from(start, rows):
                batch = row_batch(step, self._log)
                if len(batch):
                    made.append(batch)
                self._at = end = _moved(start, step.progress)
                if end.taken is None:
                    self._end()
                    return end, made
                # After a chunk alone: one that was read is lost with this process, and a log that is busy
                # would have it read for ever.
                if step.is_chunk and (
                    sum(map(len, made)) >= rows or sum(batch.nbytes for batch in made) >= size
                ):
                    return end, made
        except BaseException:
            self.close()
            raise
        raise ChangesDisagree(f"{self._log.options}: the snapshot ended before all of its tables were read")

    def _from(self, start: Offset, rows: int) -> Iterator[Step]:
        if self._steps is None or self._at != start:
            self._end()
            self._log.go(start._replace(taken=None))  # it says so if the checkpoint is of another log
            assert start.taken is not None
            progress = Progress(start.position, start.taken.tables, start.taken.after, start.taken.rows)
            self._steps = snapshot(
                self._log.reader, self._opened(), progress, chunk_rows=min(rows, _CHUNK_ROWS)
            )
        self._log.at = None  # its reader is used without it
        return self._steps

    def _opened(self) -> SnapshotChunks:
        if self._chunks is None:
            self._chunks = open_chunks(with_password(self._log.options.url))
        return self._chunks

    def _end(self) -> None:
        self._steps = self._at = None

    def close(self) -> None:
        self._end()
        chunks, self._chunks = self._chunks, None
        if chunks is not None:
            with suppress(Exception):
                chunks.close()


def row_batch(step: Step, log: Log) -> pa.RecordBatch:
    """What was chosen of a step; rows of tables are under a source of their own."""
    source = snapshot_source(log.source) if step.is_chunk else log.source
    return rows_of(*chosen(step.updates, log.choice, log.options), source)


def whole(log: Log) -> Iterator[pa.RecordBatch]:
    """A snapshot from its beginning to its end, for a batch."""
    taking = Taking(log)
    at: Offset = taking.begin()
    try:
        while at.taken is not None:
            at, batches = taking.next(at, log.options.rows, log.options.bytes)
            yield from batches
    finally:
        taking.close()


def _moved(start: Offset, progress: Progress) -> Offset:
    """Further on; the number is that of the micro-batch that comes next."""
    assert start.taken is not None
    taken = Taken(progress.tables, progress.after, progress.rows, start.taken.batch + 1)
    return Offset(start.source, progress.position, start.began, None, None if progress.done else taken)


# --- what was given and Spark has not done with ---------------------------------------------------------


class Given(NamedTuple):
    """The folder in which micro-batches of one job's snapshot wait."""

    folder: Path

    @classmethod
    def at(cls, text: str) -> "Given":
        if not text:
            raise BadOption(
                "option 'start' is snapshot: set the option 'state' to a folder of this query's own, where"
                " its micro-batches wait until they are done; tables that are read again have other rows by"
                " then"
            )
        parts = urlsplit(text)
        if parts.scheme not in ("", "file"):
            raise BadOption(f"option 'state' is a folder that the driver sees, not {text!r}")
        return cls(Path(os.path.abspath(parts.path)))

    def keep(self, start: Offset, end: Offset, batches: list[pa.RecordBatch]) -> None:
        """Durable when it returns."""
        try:
            make_folder(self.folder)
            told = json.dumps(end.json()).encode()
            replace(self._file(start), sealed(told + b"\n" + packed(batches)))
        except OSError as error:
            raise LocalError(
                f"a snapshot's rows cannot wait in {self.folder}: {error.strerror or error}; name another"
                " folder by the option 'state'"
            ) from error

    def again(self, start: Offset, end: Offset) -> list[pa.RecordBatch]:
        """What a micro-batch was."""
        file = self._file(start)
        try:
            found = unsealed(file.read_bytes())
        except OSError as error:
            raise ChangesDisagree(
                f"{file}, in which a micro-batch of the snapshot waits, cannot be read"
                f" ({error.strerror or error}): put it back, or take the snapshot anew with another"
                " checkpoint"
            ) from None
        if found is None:
            raise ChangesDisagree(
                f"{file}, in which a micro-batch of the snapshot waits, is damaged: its checksum does not"
                " match. Put it back, or take the snapshot anew with another checkpoint"
            )
        told, _, rows = found[1].partition(b"\n")
        if told != json.dumps(end.json()).encode():
            raise ChangesDisagree(
                f"{file} has another micro-batch of a snapshot than the checkpoint: two queries have one"
                " folder, or the checkpoint was set back; take the snapshot anew with another checkpoint and"
                " a folder of its own"
            )
        return list(unpacked(rows))

    def done(self, end: Offset) -> None:
        """All up to here is done."""
        for file in self.folder.glob("snapshot-*.arrow"):
            if end.taken is None or int(file.stem.rpartition("-")[2]) < end.taken.batch:
                file.unlink(missing_ok=True)

    def _file(self, start: Offset) -> Path:
        assert start.taken is not None
        return self.folder / f"snapshot-{start.taken.batch:08}.arrow"

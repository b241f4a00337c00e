"""Snapshots: the present rows of tables in chunks, between the updates of the log, without locks (Netflix's
DBLog, section 3).

A chunk of rows, read at some moment between a low and a high watermark of the log, is given after all updates
up to the high watermark. Of its rows those are left out whose keys the log changed since the low watermark:
the log has newer values of them. So whoever applies what is given, in the order in which it is given, has the
table as it is at the log's position once every chunk was given.

A row of a chunk is an update with `Op.READ`. Its position is that of the low watermark and a count of the
rows of the whole snapshot, under a source of its own (`source/snapshot`): those positions rise as well, and a
chunk that is read again after a crash has later ones unless its rows are the same.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.capture.reader import LogReader, Lost
from qanat.capture.updates import Op, Run, Updates
from qanat.events.errors import LocalError, RemoteError
from qanat.events.position import Position


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a snapshot is; what it is resumed from. `position` is that of the log, up to which everything
    was given."""

    position: Position
    tables: tuple[str, ...]
    """Those that are not done; the first is being read."""
    after: tuple[str, ...] | None = None
    """The key of the last row that was read of the first table, in the datastore's own words."""
    rows: int = 0

    @property
    def done(self) -> bool:
        return not self.tables

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "position": str(self.position)})

    @classmethod
    def from_json(cls, text: str) -> "Progress":
        try:
            value = json.loads(text)
            after = value["after"]
            return cls(
                Position.parse(value["position"]),
                tuple(map(str, value["tables"])),
                None if after is None else tuple(map(str, after)),
                int(value["rows"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LocalError(f"this is not the progress of a snapshot: {error}") from None


class Chunk(NamedTuple):
    """Rows of one table in the order of their key. They are as the log left them somewhere between `low` and
    `high`, which are the same where the datastore can say exactly which position its answer is of."""

    rows: Run
    low: Position
    high: Position
    last: tuple[str, ...] | None
    """The key of the last row; None if there are no rows after these."""


class Chunks(Protocol):
    """What a datastore brings: its rows. Blocking, and for one thread."""

    def chunk(self, table: str, after: tuple[str, ...] | None, limit: int) -> Chunk:
        """At most `limit` rows of a table whose keys come after this one."""

    def close(self) -> None: ...


class Step(NamedTuple):
    """Something to apply, and what to resume from once it was applied."""

    updates: Updates
    progress: Progress
    is_chunk: bool


def snapshot(
    reader: LogReader, chunks: Chunks, progress: Progress, *, chunk_rows: int = 2000, rows_per_s: float = 0.0
) -> Iterator[Step]:
    """Reads chunks and the log by turns until all tables are done; then the reader goes on from
    `progress.position` of the last step.

    `rows_per_s` (0: no limit) is kept on average by waiting between chunks; the log is read on meanwhile.
    """
    reader.seek(progress.position)
    started_s = time.monotonic()
    had = progress.rows
    while not progress.done:
        chunk = chunks.chunk(progress.tables[0], progress.after, chunk_rows)
        since: list[Run] = []
        while progress.position < chunk.high:
            part = read_on(reader, chunk_rows, 1.0)
            since += part.after(chunk.low).runs
            progress = _moved(progress, part)
            if part:
                yield Step(part, progress, False)
        rows = untouched(chunk.rows, since)
        if rows is None:
            continue
        counted = _numbered(rows, chunk.low, progress.rows)
        progress = replace(
            progress,
            tables=progress.tables[1:] if chunk.last is None else progress.tables,
            after=chunk.last,
            rows=progress.rows + len(counted),
        )
        yield Step(Updates([counted]), progress, True)
        while rows_per_s and not progress.done:
            left_s = started_s + (progress.rows - had) / rows_per_s - time.monotonic()
            if left_s <= 0:
                break
            part = read_on(reader, chunk_rows, left_s)
            progress = _moved(progress, part)
            if part:
                yield Step(part, progress, False)


def read_on(reader: LogReader, limit: int, wait_s: float) -> Updates:
    """A read of a log that has lost nothing; a snapshot over a gap would not be one."""
    part = reader.read(limit, wait_s)
    if isinstance(part, Lost):
        raise RemoteError(
            f"the log lost the updates after {part.after} up to {part.upto} while a snapshot was taken"
            f" ({part.reason}): take it anew"
        )
    return part


def _moved(progress: Progress, part: Updates) -> Progress:
    return progress if part.upto is None else replace(progress, position=max(progress.position, part.upto))


def _numbered(rows: Run, low: Position, first: int) -> Run:
    count = len(rows)
    return replace(
        rows,
        sequences=np.full(count, low.sequence, np.uint64),
        indexes=(np.arange(first, first + count) & 0xFFFFFFFF).astype(np.uint32),
    )


def untouched(rows: Run, since: Sequence[Run]) -> Run | None:
    """The rows whose keys do not occur in these updates; None if the table itself was changed, so that its
    rows must be read again."""
    same = [run for run in since if run.table.path == rows.table.path]
    if any(run.table.columns != rows.table.columns or (run.ops == Op.TRUNCATE).any() for run in same):
        return None
    images = [image for run in same for image in (run.before, run.after) if image is not None]
    if not images or not len(rows):
        return rows
    if rows.after is None:
        return rows
    kept = ~_have_keys(rows.after, images, rows.table.key)
    return rows if kept.all() else rows.take(kept)


def _have_keys(
    rows: pa.RecordBatch, others: Sequence[pa.RecordBatch], key: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """Which rows have a key that occurs among the others. Rows of nulls, which stand for no image, do no
    harm: no key is null."""
    count = rows.num_rows
    codes = np.zeros(count + sum(other.num_rows for other in others), np.int64)
    for name in key:
        column = pa.chunked_array(
            [rows.column(name), *(other.column(name) for other in others)]
        ).combine_chunks()
        coded = column.dictionary_encode(null_encoding="encode")
        codes = codes * (len(coded.dictionary) + 1) + coded.indices.to_numpy(zero_copy_only=False)
        # Numbered anew, so that the product of many columns stays small.
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return np.isin(codes[:count], codes[count:])

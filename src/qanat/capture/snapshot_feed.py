"""The present rows of tables into a stream, and what the log says meanwhile.

Rows go out under a source of their own (`source/snapshot`), the log's updates under theirs. How far it is
stands in a file, written after what it speaks of is stored: after a crash the chunk that was under way is
read again, and its rows, as they are then, come a second time. Updates of the log come once. Once all tables
are done, the stream is fed from the log as any other.
"""

from collections.abc import Callable
from pathlib import Path

from qanat.capture.choice import Choice
from qanat.capture.events import events_of
from qanat.capture.feed import publish
from qanat.capture.reader import Acknowledging, LogReader
from qanat.capture.snapshot import Progress, snapshot
from qanat.capture.url import SnapshotChunks
from qanat.client import Client
from qanat.events.errors import LocalError
from qanat.events.kept import Kept
from qanat.events.position import Position


def snapshot_source(source: str) -> str:
    """The name under which rows that were found are published."""
    return f"{source}/snapshot"


def begun(reader: LogReader, chunks: SnapshotChunks, choice: Choice, position: Position) -> Progress:
    """A snapshot of all tables that are chosen, from this position of the log on, or from its end if it is
    (0, 0)."""
    tables = tuple(path for path in chunks.tables() if choice.names(path))
    if not tables:
        raise LocalError(
            f"there is no table to take a snapshot of{' by these names' if choice.tables else ''}"
        )
    return Progress(position if position > (0, 0) else reader.latest(), tables)


def feed_snapshot(
    reader: LogReader,
    chunks: SnapshotChunks,
    clients: tuple[Client, Client],
    stream: str,
    state: Path,
    *,
    choice: Choice,
    rows_per_s: float = 0.0,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Until all tables are done; returns how many events were published. `clients`: for the log's source, and
    for that of the rows."""
    published = 0
    progress = load(state)
    resumes = clients[0].position(stream)  # where a feed begins that comes after the snapshot
    if progress is None:
        progress = begun(reader, chunks, choice, resumes)
        save(state, progress)
    if not progress.done:
        say(f"a snapshot of {', '.join(progress.tables)}; {progress.rows:,} rows are done")
    for step in snapshot(reader, chunks, progress, rows_per_s=rows_per_s):
        events = events_of(choice.of(step.updates), choice.sharding)
        if len(events):
            publish(clients[step.is_chunk], stream, events)
            published += len(events)
            if not step.is_chunk:
                resumes = Position(int(events.sequences[-1]), int(events.indexes[-1]))
        save(state, step.progress)
        if isinstance(reader, Acknowledging):
            reader.acknowledge(step.progress.position, resumes if resumes > (0, 0) else None)
        progress = step.progress
    return published


def load(state: Path) -> Progress | None:
    """What was saved, or None if nothing was."""
    data = Kept(state).read()
    return None if data is None else Progress.from_json(data.decode())


def save(state: Path, progress: Progress) -> None:
    """So that a crash leaves the former or this."""
    Kept(state).write(progress.to_json().encode())

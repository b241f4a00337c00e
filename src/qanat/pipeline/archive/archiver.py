"""The job that archives a stream: read what is new, write it as files, commit; again and again.

The manifest is the job's only memory. It says where to go on, so there is no checkpoint that could disagree
with it: whatever was killed, and wherever, the next one takes over (`begin`), and goes on behind what was
committed. What was written and not committed is waste that nobody reads.
"""

import logging
import time
from collections.abc import Iterator
from threading import Event as Signal
from typing import TYPE_CHECKING, NamedTuple, cast

from qanat.client import Client, ClientSettings
from qanat.client.subscription import Where
from qanat.events.errors import LocalError, QanatError, RemoteError
from qanat.pipeline.archive.clean import clean, clean_waste
from qanat.pipeline.archive.errors import ArchiveGap, StreamBehind, TaskFailed
from qanat.pipeline.archive.failing import in_a_sentence
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.identity import check_stream
from qanat.pipeline.archive.manifest import Anchor, DataFile, Manifest, Range
from qanat.pipeline.archive.plan import day_cuts, ranges_of, rows_per_file
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.storage import storage_of
from qanat.pipeline.archive.tables import SparkTables, Tables
from qanat.pipeline.archive.tidy import tidy_end
from qanat.runtime.patience import PATIENCE_S
from qanat.wire.streams import Seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("qanat.archive")
_PEEK = ClientSettings(subscription_bytes=64 * 1024)
"""The driver looks at a few events; tasks read them all."""
RETRY_S, POLL_S = 1.0, 0.25
"""After a failure, and when there is nothing new."""
_CONNECT_S = 5.0
"""Time for one attempt to reach the server, however short an archive's own patience is."""
CLEAN_EVERY = 256
"""Commits after which what is not needed any more is removed."""


class Archived(NamedTuple):
    """What one commit added."""

    first: int
    last: int
    files: int
    rows: int
    bytes: int
    behind: int
    """Events that the stream had beyond it when it was planned."""


class Archiver:
    """Archives one stream. One process at a time: another that begins takes over, and this one then fails
    with `Fenced`."""

    def __init__(
        self,
        spark: "SparkSession | None",
        url: str,
        path: str,
        stream: str,
        *,
        settings: ArchiveSettings | None = None,
        start: Where = "earliest",
        accept_losses: bool = False,
        tables: Tables | None = None,
    ) -> None:
        """`start` is where a new archive begins; one that exists goes on behind what it has.

        With `accept_losses` events that the stream dropped before they were archived are written down as
        lost, for ever; without, they are an `ArchiveGap`.
        """
        self.stream = stream
        self.settings = settings or ArchiveSettings()
        self._url, self._start, self._accept = url, start, accept_losses
        if tables is None and spark is None:
            raise LocalError("an archiver needs a Spark session")
        self._tables = tables or SparkTables(cast("SparkSession", spark))
        self.history = History(storage_of(path, spark), stream)
        self._client: Client | None = None
        self._writer: Writer | None = None
        self._commits = 0
        self._due = 0.0
        """When a small batch is archived at the earliest, on the monotonic clock."""

    @property
    def manifest(self) -> Manifest:
        """What is archived, as far as this archiver knows."""
        return self._writer.manifest if self._writer is not None else self.history.newest()

    # --- one commit ---------------------------------------------------------------------------------

    def step(self, *, pace: bool = False) -> Archived | None:
        """Archives what is new, at most `batch_rows` events; None if nothing is.

        With `pace`, little is left until `batch_ms` have passed since the last commit.
        """
        client = self._connected()
        writer = self._writing()
        seen = client.look(self.stream, writer.manifest.next or self._start)
        check_stream(client, writer.manifest, seen)
        if not writer.manifest.next:
            self._start = seen.start  # the moment that `latest` means is now, not later
        first = self._after_losses(writer, seen)
        last = min(seen.readable, first + self.settings.batch_rows - 1)
        early = pace and time.monotonic() < self._due and last - first < self.settings.range_rows
        if last < first or early:
            return None
        files = self._write(client, writer, first, last)
        mark = client.look(self.stream, last + 1).mark
        identity = str(seen.born_us) if seen.born_us else ""
        writer.append(files, anchor=Anchor(last, mark) if mark else None, identity=identity)
        self._due = time.monotonic() + self.settings.batch_ms / 1000
        self._look_after(writer)
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        return Archived(first, last, len(files), rows, size, seen.readable - last)

    def _connected(self) -> Client:
        if self._client is None:
            patience = min(PATIENCE_S, max(_CONNECT_S, self.settings.patience_ms / 1000))
            self._client = Client(self._url, patience=patience, settings=_PEEK)
        return self._client

    def _writing(self) -> Writer:
        if self._writer is None:
            self._writer = self.history.begin("append")
            clean_waste(self.history, self._writer)
        return self._writer

    def _after_losses(self, writer: Writer, seen: Seen) -> int:
        """Where to go on; what the stream has dropped there is written down as lost, or refused."""
        if seen.start >= seen.first:
            return seen.start
        gone = Range(seen.start, seen.first - 1)
        if not self._accept:
            raise ArchiveGap(self.stream, gone.first, gone.last)
        log.warning("events are lost", extra={"stream": self.stream, "first": gone.first, "last": gone.last})
        writer.append(lost=[gone])
        return seen.first

    def _write(self, client: Client, writer: Writer, first: int, last: int) -> list[DataFile]:
        rows = rows_per_file(client, writer.manifest, first, last, self.settings)
        cuts = day_cuts(client, self.stream, first, last)
        ranges = ranges_of(first, last, cuts, rows, self._tables.tasks, self.settings.range_rows)
        return self._tables.write_ranges(writer, self._url, ranges)

    def _look_after(self, writer: Writer) -> None:
        tidy_end(self._tables, writer, self.settings)
        self._commits += 1
        if self._commits % CLEAN_EVERY == 0:
            clean(self.history, self.settings.keep_ms)

    # --- the job ------------------------------------------------------------------------------------

    def run(self, stop: Signal | None = None, *, until_end: bool = False) -> Iterator[Archived]:
        """Commits, one after the other, until `stop` is set, or with `until_end` until the stream's present
        end.

        A server or an executor that is away, or room on a disk, is waited for, as long as `patience_ms` says;
        what is wrong with the archive or the stream is raised at once.
        """
        stop = stop or Signal()
        failing_since: float | None = None
        while not stop.is_set():
            try:
                done = self.step(pace=not until_end)
            except Exception as failed:
                error = in_a_sentence(failed, self.stream)
                now = time.monotonic()
                failing_since = now if failing_since is None else failing_since
                if not _passing(error) or now - failing_since > self.settings.patience_ms / 1000:
                    raise error from error.__cause__
                log.warning("archiving is tried again", extra={"stream": self.stream, "reason": str(error)})
                self._disconnect()
                stop.wait(RETRY_S)
                continue
            failing_since = None
            if done is not None:
                yield done
            if until_end and (done is None or not done.behind):
                return
            if done is None:
                stop.wait(POLL_S)

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        self._disconnect()

    def __enter__(self) -> "Archiver":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _passing(error: Exception) -> bool:
    """Whether it may be well the next time: a server that is away or still starting, a task that failed, a
    disk that somebody makes room on."""
    return isinstance(error, RemoteError | StreamBehind | TaskFailed) or not isinstance(
        error, QanatError | OSError
    )

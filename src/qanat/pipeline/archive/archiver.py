"""The job that archives a stream: read what is new, write it as files, commit; again and again.

The manifest is the job's only memory. It says where to go on, so there is no checkpoint that could disagree with it: whatever was
killed, and wherever, the next one takes over (`begin`), and goes on behind what was committed. What was written and not committed is
waste that nobody reads.
"""

import logging
import time
from collections.abc import Iterator
from functools import partial
from threading import Event as Signal
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from qanat.client import Client, ClientSettings, EventsLost, NoStream, RequestRefused
from qanat.client.subscription import Where
from qanat.events.errors import QanatError, RemoteError
from qanat.events.layout import Kind
from qanat.pipeline.archive.clean import clean, clean_waste
from qanat.pipeline.archive.errors import ArchiveError, ArchiveGap, StreamChanged
from qanat.pipeline.archive.footer import last_event
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.manifest import DataFile, Manifest, Range
from qanat.pipeline.archive.plan import day_cuts, ranges_of, rows_per_file
from qanat.pipeline.archive.reading import SILENT_S, read_rows
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.storage import storage_of
from qanat.pipeline.archive.tables import write_files
from qanat.pipeline.archive.tidy import tidy_end
from qanat.pipeline.columns import DDL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("qanat.archive")
_PEEK = ClientSettings(subscription_bytes=64 * 1024)
"""The driver looks at a few events; tasks read them all."""
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
    """Archives one stream. One process at a time: another that begins takes over, and this one then fails with `Fenced`."""

    def __init__(
        self,
        spark: "SparkSession",
        url: str,
        path: str,
        stream: str,
        *,
        settings: ArchiveSettings | None = None,
        start: Where = "earliest",
        accept_losses: bool = False,
    ) -> None:
        """`start` is where a new archive begins; one that exists goes on behind what it has.

        With `accept_losses` events that the stream dropped before they were archived are written down as lost, for
        ever; without, they are an `ArchiveGap`.
        """
        self.stream = stream
        self.settings = settings or ArchiveSettings()
        self._spark, self._url, self._start, self._accept = spark, url, start, accept_losses
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

    def step(self, wait_s: float = 0.0) -> Archived | None:
        """Archives what is new, at most `batch_rows` events; None if nothing came within `wait_s`."""
        client = self._connected()
        writer = self._writing()
        check_stream(client, writer.manifest)
        new = self._look(client, writer, wait_s)
        if new is None:
            return None
        first, last = new.first, min(new.last, new.first + self.settings.batch_rows - 1)
        files = self._write(client, writer, first, last)
        writer.append(files, anchor=last_event(self.history.storage, files[-1].path))
        tidy_end(self._spark, writer, self.settings)
        self._commits += 1
        if self._commits % CLEAN_EVERY == 0:
            clean(self.history, self.settings.keep_ms)
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        return Archived(first, last, len(files), rows, size, new.last - last)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self._url, settings=_PEEK)
        return self._client

    def _writing(self) -> Writer:
        if self._writer is None:
            self._writer = self.history.begin("append")
            clean_waste(self.history, self._writer)
        return self._writer

    def _look(self, client: Client, writer: Writer, wait_s: float) -> Range | None:
        """What is to be archived next, if anything is; small amounts are waited for until they are due."""
        at: Where = writer.manifest.next or self._start
        with client.subscribe(self.stream, start=at) as subscription:
            first, end = subscription.next, subscription.end
            if not writer.manifest.next:
                self._start = first  # the moment that `latest` means is now, not later
            if end <= first and not wait_s:
                return None
            try:
                if not subscription.take(timeout_s=wait_s if end <= first else SILENT_S):
                    return None
            except EventsLost as lost:
                self._lose(writer, Range(lost.first, lost.last))
                first = lost.last + 1
        if wait_s and end - first < self.settings.range_rows:
            time.sleep(max(0.0, self._due - time.monotonic()))
            with client.subscribe(self.stream, start=first) as subscription:
                end = subscription.end
        self._due = time.monotonic() + self.settings.batch_ms / 1000
        return Range(first, end - 1) if first < end else None

    def _lose(self, writer: Writer, gone: Range) -> None:
        if not self._accept:
            raise ArchiveGap(self.stream, gone.first, gone.last)
        log.warning("events are lost", extra={"stream": self.stream, "first": gone.first, "last": gone.last})
        writer.append(lost=[gone])

    def _write(self, client: Client, writer: Writer, first: int, last: int) -> list[DataFile]:
        rows = rows_per_file(writer.manifest, self.settings)
        tasks = self._spark.sparkContext.defaultParallelism
        cuts = day_cuts(client, self.stream, first, last)
        ranges = ranges_of(first, last, cuts, rows, tasks, self.settings.range_rows)
        table = self._spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(
            partial(read_ranges, self._url, self.stream, ranges), DDL
        )
        return write_files(self._spark, writer, table, first, last)

    # --- the job ------------------------------------------------------------------------------------

    def run(self, stop: Signal | None = None, *, until_end: bool = False) -> Iterator[Archived]:
        """Commits, one after the other, until `stop` is set, or with `until_end` until the stream's present end.

        A server or an executor that is away is waited for, as long as `patience_ms` says; what is wrong with the archive or the
        stream is raised at once.
        """
        failing_since: float | None = None
        while stop is None or not stop.is_set():
            try:
                done = self.step(0.0 if until_end else 1.0)
            except ArchiveError:
                raise
            except Exception as error:
                now = time.monotonic()
                failing_since = now if failing_since is None else failing_since
                if not _passing(error) or now - failing_since > self.settings.patience_ms / 1000:
                    raise
                log.warning("archiving is tried again", extra={"stream": self.stream, "reason": str(error)})
                self._disconnect()
                time.sleep(min(1.0, self.settings.patience_ms / 1000))
                continue
            failing_since = None
            if done is not None:
                yield done
            if until_end and (done is None or not done.behind):
                return

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


def read_ranges(
    url: str, stream: str, ranges: list[Range], parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task: the rows of the ranges whose numbers come."""
    for part in parts:
        for number in part.column(0).to_pylist():
            yield from read_rows(url, stream, *ranges[number])


def _passing(error: Exception) -> bool:
    """Whether it may be well the next time: a server that is away, a task that failed."""
    return isinstance(error, RemoteError) or not isinstance(error, QanatError | OSError)


def check_stream(client: Client, manifest: Manifest) -> None:
    """Raises `StreamChanged` unless the server's stream is the one that was archived, as far as it still has what was."""
    if not manifest.next:
        return
    name = manifest.stream
    remedy = "archive it to another place, or bring the former one back"
    try:
        with client.subscribe(name, start=manifest.next):
            pass
    except (RequestRefused, NoStream) as error:
        raise StreamChanged(
            f"the archive has stream {name!r} up to {manifest.next - 1}, but the server says: {error}. The stream was made anew or "
            f"set back: {remedy}"
        ) from error
    for anchor in reversed(manifest.anchors):
        with client.subscribe(name, start=anchor.seq) as subscription:
            try:
                batch = subscription.take()[0]
            except EventsLost:
                return  # nothing that old is left to compare
        if batch.kind(0) is Kind.TOMBSTONE:
            continue  # an older one may be there
        time_us = int(batch.times()[0])
        if time_us != anchor.time_us:
            raise StreamChanged(
                f"event {anchor.seq} of stream {name!r} was published at {anchor.time_us} µs when it was archived, and now at "
                f"{time_us}: this is another stream of that name; {remedy}"
            )
        return

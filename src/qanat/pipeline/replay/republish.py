"""A part of an archive published again, into another stream: exactly once, however often the job is killed.

What is read, filtered and encoded here or by Spark in parallel, one client publishes, in order. Each event
goes out under its number in the archived stream as its position, of a source that stands for this replay. So
the stream itself knows how far the replay came, and a job that is started again goes on there.
"""

import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from qanat.client import Client
from qanat.client.encoded import publish_flights
from qanat.client.flight import Flight
from qanat.events.errors import LocalError
from qanat.events.filters import FilterError, parse
from qanat.events.filters.model import UpTo
from qanat.pipeline.archive.errors import NotArchived
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.manifest import DataFile, Manifest, Range
from qanat.pipeline.archive.storage import storage_of
from qanat.pipeline.replay.bucket import Bucket
from qanat.pipeline.replay.encoding import flight_of
from qanat.pipeline.replay.publishable_rows import PublishableRows, RowsBySpark, RowsHere, Wanted
from qanat.pipeline.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB_BYTES = 1 << 30
"""Of archived files that one job of Spark reads and sorts: it needs about as much room to spill to."""
SMALL_BYTES = 256 << 20
"""Of archived files: so many one process reads in a few seconds, in which Spark would have started."""
FLYING_BYTES = 8 * 1024 * 1024
"""Of encoded batches that are published together, then waited for."""


class Republished(NamedTuple):
    """What was published since the last one of these."""

    first: int
    last: int
    """Numbers in the archived stream."""
    events: int
    """That were new to the stream; others it had already."""
    bytes: int


class Republisher:
    """Publishes archived events of one stream into another. `rate` may be set while it runs."""

    def __init__(
        self,
        spark: "SparkSession | None",
        archive: str,
        stream: str,
        into: str,
        *,
        url: str = "",
        first: int | None = None,
        last: int | None = None,
        where: str = "",
        skip_gc: bool = False,
        settings: ReplaySettings | None = None,
    ) -> None:
        """Without a session the archive, a folder of this machine, is read by this process alone.

        `first` and `last` are numbers of the archived stream, by default of its last complete range; `where`
        is a filter.

        GC events are published as such, and collect in the new stream what they match there. One that names a
        sequence number (`upto 1000`) would match something else there, and is refused; with `skip_gc` none
        are published.
        """
        if into == stream:
            raise LocalError(f"stream {stream!r} is not replayed into itself: name another one to publish to")
        self.settings = settings or ReplaySettings()
        self._url, self._into, self._skip_gc = url, into, skip_gc
        self._filter = parse(where) if where.strip() else None
        if self._filter is not None and self._filter.contextual:
            raise FilterError("a replay's filter cannot use predicates about a GC event")
        history = History(storage_of(archive, spark), stream)
        self._rows: PublishableRows = (
            RowsHere(history.storage) if spark is None else RowsBySpark(spark, history)
        )
        self.manifest = history.existing()
        self.range = _range(self.manifest, first, last)
        self.source = source_of(self.manifest, self.range.first, where, skip_gc=skip_gc)
        """Under which the events are published."""
        self._bucket = Bucket(self.settings.rate_bytes_per_s, time.monotonic())

    @property
    def bytes(self) -> int:
        """Of the files that it reads, if the stream has nothing of them yet."""
        return sum(file.bytes for file in self.manifest.overlapping(*self.range))

    @property
    def rate(self) -> float:
        """Bytes per second at most; 0 is without limit."""
        return self._bucket.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._bucket.set_rate(rate, time.monotonic())

    def run(self) -> Iterator[Republished]:
        """Publishes what the stream does not have yet, and tells of it from time to time."""
        with Client(self._url, name=self.source) as client:
            reached = client.position(self._into).sequence
            first, last = max(self.range.first, reached + 1), self.range.last
            if first > last:
                return
            wanted = Wanted(
                Range(first, last),
                self._filter,
                self._skip_gc,
                self.source,
                self._into,
                self.settings.batch_bytes,
            )
            files = self.manifest.overlapping(first, last)
            self._check_gc(files, wanted)
            for part in _portions(files):
                yield from self._publish(client, part, wanted)

    def _check_gc(self, files: tuple[DataFile, ...], wanted: Wanted) -> None:
        """GC events that speak of sequence numbers mean others in another stream."""
        if self._skip_gc:
            return
        for text, seq in self._rows.collecting(files, wanted):
            tests = [term.test for terms in parse(text).conjunctions for term in terms]
            if any(isinstance(test, UpTo) for test in tests):
                raise LocalError(
                    f"GC event {seq} collects {text!r}, which are numbers of {self.manifest.stream!r} and"
                    f" would be others of {self._into!r}: leave GC events out (--skip-gc)"
                )

    def _publish(self, client: Client, files: tuple[DataFile, ...], wanted: Wanted) -> Iterator[Republished]:
        flights: list[Flight] = []
        size, begin, after = 0, 0, 0
        for first, last, data in self._rows.encoded(files, wanted):
            flights.append(flight_of(data, self.source, after))
            begin, after, size = begin or first, last, size + len(data)
            if size >= FLYING_BYTES or self._bucket.rate:
                yield self._send(client, flights, begin, last, size)
                flights, size, begin = [], 0, 0
        if flights:
            yield self._send(client, flights, begin, after, size)

    def _send(self, client: Client, flights: list[Flight], first: int, last: int, size: int) -> Republished:
        while delay := self._bucket.delay(time.monotonic()):
            time.sleep(delay)
        self._bucket.take(size, time.monotonic())
        fresh = client._call(publish_flights(client._client, self._into, flights))
        return Republished(first, last, fresh, size)


def source_of(manifest: Manifest, first: int, where: str, *, skip_gc: bool) -> str:
    """The name under which a replay publishes: another one for every way to choose events, so that none hides
    another's."""
    chosen = f"{manifest.identity} {first} {where.strip()} {skip_gc}"
    return f"replay/{manifest.stream[:100]}/{blake2b(chosen.encode(), digest_size=8).hexdigest()}"


def _range(manifest: Manifest, first: int | None, last: int | None) -> Range:
    whole = manifest.complete()
    if not whole:
        raise NotArchived(f"the archive of stream {manifest.stream!r} is empty")
    first = whole[-1].first if first is None else first
    last = whole[-1].last if last is None else last
    if first > last:
        raise LocalError(f"from {first} to {last} there is nothing")
    manifest.require(first, last)
    return Range(first, last)


def _portions(files: tuple[DataFile, ...]) -> Iterator[tuple[DataFile, ...]]:
    """The files in parts that one job takes."""
    part: list[DataFile] = []
    for file in files:
        if part and sum(f.bytes for f in part) + file.bytes > JOB_BYTES:
            yield tuple(part)
            part = []
        part.append(file)
    if part:
        yield tuple(part)

"""What one commit of an archive covers: which ranges its tasks read, each within a day."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from qanat.client import Client
from qanat.events.tombstones import from_sequence
from qanat.pipeline.archive.manifest import Manifest, Range
from qanat.pipeline.archive.settings import ArchiveSettings

ROW_BYTES = 64
"""What an archived event is taken to need until there are files to tell."""
DAYS_MAX = 366
"""Cuts at most: a clock that was far off does not make thousands of files."""
_DAY = timedelta(days=1)


def rows_per_file(manifest: Manifest, settings: ArchiveSettings) -> int:
    """Rows with which a file gets its size, going by the newest files."""
    newest = manifest.files[-8:]
    rows = sum(file.rows for file in newest)
    per_row = sum(file.bytes for file in newest) / rows if rows else ROW_BYTES
    return max(1, int(settings.file_bytes / max(per_row, 1)))


def ranges_of(first: int, last: int, cuts: list[int], rows: int, tasks: int, least: int) -> list[Range]:
    """first..last cut at `cuts` (where days begin) and then into about equal parts: enough for all tasks, if none gets less than
    `least` rows, and none with more than `rows`."""
    edges = [first, *(cut for cut in sorted(set(cuts)) if first < cut <= last), last + 1]
    ranges = []
    for begin, end in pairwise(edges):
        count = end - begin
        parts = max(-(-count // rows), min(tasks, count // least), 1)
        bounds = [begin + count * i // parts for i in range(parts + 1)]
        ranges += [Range(a, b - 1) for a, b in pairwise(bounds) if a < b]
    return ranges


def day_cuts(client: Client, stream: str, first: int, last: int) -> list[int]:
    """Where later days begin within first..last, as the stream's own index of times says."""
    begins, ends = time_at(client, stream, first), time_at(client, stream, last)
    day = _midnight(begins) + _DAY
    cuts: list[int] = []
    while day <= _midnight(ends) and len(cuts) < DAYS_MAX:
        with client.subscribe(stream, start=day) as subscription:
            at = subscription.next
        if at > last:
            break
        if at > first:
            cuts.append(at)
        # Days without events are passed over: the next that counts is behind what is there.
        day = max(_midnight(time_at(client, stream, at)), day) + _DAY
    return cuts


def time_at(client: Client, stream: str, seq: int) -> int:
    """When the event of that number was published, µs; of a tombstone that holds it, the newest time there."""
    with client.subscribe(stream, start=seq) as subscription:
        batch = from_sequence(subscription.take()[0], seq)
    return int(batch.times()[0])


def _midnight(time_us: datetime | int) -> datetime:
    time = (
        time_us
        if isinstance(time_us, datetime)
        else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    )
    return time.replace(hour=0, minute=0, second=0, microsecond=0)

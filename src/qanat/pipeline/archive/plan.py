"""What one commit of an archive covers: which ranges its tasks read, each within a day."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from qanat.client import Client
from qanat.events.errors import RemoteError
from qanat.events.tombstones import from_sequence
from qanat.pipeline.archive.manifest import Manifest, Range
from qanat.pipeline.archive.reading import SILENT_S, read_batches
from qanat.pipeline.archive.settings import ArchiveSettings

DAYS_MAX = 366
"""Cuts at most: a clock that was far off does not make thousands of files."""
TELLING_ROWS, TELLING_BYTES = 10_000, 512 * 1024
"""From here on what files need says what rows need: each has 8 KiB of its own, to which little files of a
quiet stream come down."""
INDEXED_BYTES = 16 * 1024 * 1024
"""Two of the largest batches. The log's index knows whole batches alone: what reaches less far is read."""
_DAY = timedelta(days=1)


def rows_per_file(
    client: Client, manifest: Manifest, first: int, last: int, settings: ArchiveSettings
) -> int:
    """Rows with which a file gets its size: going by the newest files if they say enough, else by what
    first..last needs in the stream's log."""
    newest = manifest.files[-8:]
    rows, size = sum(file.rows for file in newest), sum(file.bytes for file in newest)
    if rows >= TELLING_ROWS or size >= TELLING_BYTES:
        return max(1, settings.file_bytes * rows // size)
    return _rows_in_log(client, manifest.stream, first, last, settings.file_bytes)


def _rows_in_log(client: Client, stream: str, first: int, last: int, size: int) -> int:
    if size >= INDEXED_BYTES:
        return client.look(stream, first, size).within - first + 1
    rows = read = 0
    for batch in read_batches(client, stream, first, last):
        whole = batch.header  # of which the range may have a part
        rows, read = rows + whole.span, read + whole.size
        if read >= size:
            break
    return max(1, size * rows // read)


def ranges_of(first: int, last: int, cuts: list[int], rows: int, tasks: int, least: int) -> list[Range]:
    """first..last cut at `cuts` (where days begin) and then into about equal parts: enough for all tasks, if
    none gets less than `least` rows, and none with more than `rows`."""
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
    cuts: list[int] = []
    day = _midnight(time_at(client, stream, first)) + _DAY
    while len(cuts) < DAYS_MAX:
        at = client.look(stream, day).start
        if at > last:
            break
        cuts.append(at)
        # Days without events are passed over.
        day = max(_midnight(time_at(client, stream, at)), day) + _DAY
    return [cut for cut in cuts if cut > first]


def time_at(client: Client, stream: str, seq: int) -> int:
    """When the event of that number was published, µs; of a tombstone that holds it, the newest time
    there."""
    with client.read(stream, seq, seq) as source:
        for batch in source.take(timeout_s=SILENT_S):
            return int(from_sequence(batch, seq).times()[0])
    raise RemoteError(f"stream {stream!r} has {seq} but for {SILENT_S:.0f} s does not send it")


def _midnight(time_us: int) -> datetime:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return time.replace(hour=0, minute=0, second=0, microsecond=0)

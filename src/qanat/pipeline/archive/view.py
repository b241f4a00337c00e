"""Reading an archive: what there is, a range of a stream, a stream as of a sequence number."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from qanat.events.errors import InvariantError, LocalError
from qanat.log.config import Policy
from qanat.pipeline.archive.errors import NoArchive, NotArchived
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.layout import EPOCH, MANIFESTS, stream_of_folder, version_of
from qanat.pipeline.archive.manifest import Manifest, decode
from qanat.pipeline.archive.storage import Storage, storage_of
from qanat.pipeline.archive.tables import read_files, span
from qanat.pipeline.attribute_maps import RANGE_ATTRIBUTE
from qanat.pipeline.columns import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def streams_of(storage: Storage) -> list[Manifest]:
    """The newest manifest of every stream in an archive, by name."""
    found = []
    for entry in storage.entries(""):
        if not entry.is_folder or stream_of_folder(entry.name) is None:
            continue
        versions = [v for v in map(version_of, _names(storage, f"{entry.name}/{MANIFESTS}")) if v]
        if versions:
            path = f"{entry.name}/{MANIFESTS}/{max(versions):012d}.json"
            # A long name is in the manifest alone, so that is asked who it is.
            stream = decode(storage.read(path), storage.url(path)).stream
            found.append(History(storage, stream).existing())
    return sorted(found, key=lambda manifest: manifest.stream)


def _names(storage: Storage, folder: str) -> list[str]:
    return [entry.name for entry in storage.entries(folder)]


def archive_range(
    spark: "SparkSession", path: str, stream: str, first: int | None = None, last: int | None = None
) -> "DataFrame":
    """The archived rows of first..last as they are, in no order; by default all of the last complete range.

    Raises `NotArchived` unless all of them are archived. A tombstone that reaches over an end is cut there.
    """
    history = History(storage_of(path, spark), stream)
    manifest = history.existing()
    whole = manifest.complete()
    if not whole:
        raise NotArchived(f"the archive of stream {stream!r} at {path} is empty")
    first = whole[-1].first if first is None else first
    last = whole[-1].last if last is None else last
    return rows_of(spark, history, manifest, first, last)


def rows_of(
    spark: "SparkSession", history: History, manifest: Manifest, first: int, last: int
) -> "DataFrame":
    """The rows of first..last by that manifest; raises `NotArchived` unless all are there."""
    manifest.require(first, last)
    return _within(read_files(spark, history, manifest.overlapping(first, last)), first, last)


def _within(rows: "DataFrame", first: int, last: int) -> "DataFrame":
    """What of the rows stands for first..last; a tombstone that reaches over an end is cut there."""
    from pyspark.sql import functions as F

    starts = F.col("seq") - span() + 1
    rows = rows.where((F.col("seq") >= first) & ((F.col("seq") <= last) | (starts <= last)))
    seq, begin = F.least("seq", F.lit(last)), F.greatest(starts, F.lit(first))
    width = seq - begin + 1
    cut, single = (F.col("kind") == "tombstone") & (width != span()), width == 1
    nothing = F.create_map().cast("map<string,string>")
    wide = F.create_map(F.lit(RANGE_ATTRIBUTE), width.cast("string"))
    typed = F.create_map(F.lit(RANGE_ATTRIBUTE), F.lit("uint"))
    return rows.withColumns(
        {
            "attributes": F.when(cut & single, nothing).when(cut, wide).otherwise(F.col("attributes")),
            "types": F.when(cut & single, F.lit(None)).when(cut, typed).otherwise(F.col("types")),
            "seq": seq,
        }
    ).select(*COLUMNS)


def archive_at(
    spark: "SparkSession",
    path: str,
    stream: str,
    *,
    seq: int | None = None,
    time: datetime | None = None,
    collected: bool = True,
    policy: Policy | None = None,
) -> "DataFrame":
    """A stream as it was when its last event was `seq` (or the last one published up to `time`; by default:
    as it is archived).

    Garbage is collected as of that moment: by the GC events up to there, and by `policy` if one is given
    (policies are in the configuration of a stream's server, not in its events). With `collected=False` the
    rows are as they were archived. In no order; ranges that are lost are not there. Raises `NotArchived` if
    `seq` is not archived, or if garbage was collected as of a later moment and no version from before that is
    kept.
    """
    if seq is not None and time is not None:
        raise LocalError("a stream is read as of a sequence number or of a time, not both")
    history = History(storage_of(path, spark), stream)
    if time is not None:
        seq = _last_until(spark, history, time)
    manifest = manifest_at(history, seq)
    last = manifest.next - 1 if seq is None else seq
    if not any(r.first <= last <= r.last for r in manifest.complete()):
        manifest.require(last, last)
    rows = _within(read_files(spark, history, manifest.overlapping(1, last)), 1, last)
    if not collected:
        return rows
    from qanat.pipeline.compact.collection import Stream, compacted

    lost = tuple(gone for gone in manifest.lost if gone.first <= last)
    whole = Stream(stream, policy or Policy(), upto=last, lost=lost, first=manifest.first)
    return compacted(rows, [whole])


def _last_until(spark: "SparkSession", history: History, time: datetime) -> int:
    """The number before the first event that was published later."""
    from pyspark.sql import functions as F

    if time.tzinfo is None:
        raise LocalError(f"time={time}: a time needs its zone; add tzinfo (UTC, for one)")
    manifest = history.existing()
    time_us = (time - EPOCH) // timedelta(microseconds=1)
    later = [file for file in manifest.files if file.max_time_us > time_us]
    if not later:
        return manifest.next - 1
    rows = read_files(spark, history, later[:1]).where(F.unix_micros("time") > time_us)
    found = rows.agg(F.min(F.col("seq") - span() + 1)).first()
    at = found[0] if found is not None else None
    if at is None:
        raise InvariantError(
            f"{later[0].path} has an event of {later[0].max_time_us} µs, says its footer, and has not"
        )
    if at - 1 < manifest.first:
        raise NotArchived(f"the archive of stream {history.stream!r} begins after {time}")
    return int(at) - 1


def manifest_at(history: History, seq: int | None) -> Manifest:
    """The newest version from which the stream can be read as of a sequence number.

    Where garbage was collected as of a later one, an earlier version is looked for; its files stay until they
    are cleaned away.
    """
    newest = history.existing()
    if seq is None or newest.collected <= seq:
        return newest
    for version in reversed(history.versions()):
        try:
            manifest = history.read(version)
        except NoArchive:
            continue
        if manifest.collected <= seq < manifest.next:
            return manifest
    raise NotArchived(
        f"garbage of stream {history.stream!r} was collected as of {newest.collected}, and no version before"
        f" that is kept: read it as of {newest.collected} or later"
    )

"""Reading an archive: what there is, a range of a stream, a stream as of a sequence number."""

from typing import TYPE_CHECKING

from qanat.pipeline.archive.errors import NoArchive, NotArchived
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.layout import MANIFESTS, stream_of_folder, version_of
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
    from pyspark.sql import functions as F

    manifest.require(first, last)
    rows = read_files(spark, history.storage, manifest.overlapping(first, last))
    starts = F.col("seq") - span() + 1
    rows = rows.where((F.col("seq") >= first) & ((F.col("seq") <= last) | (starts <= last)))
    seq, begin = F.least("seq", F.lit(last)), F.greatest(starts, F.lit(first))
    width = (seq - begin + 1).cast("string")
    cut = (F.col("kind") == "tombstone") & (width.cast("bigint") != span())
    single = F.map_from_arrays(F.array().cast("array<string>"), F.array().cast("array<string>"))
    one = F.create_map(F.lit(RANGE_ATTRIBUTE), width)
    is_one = width == "1"
    typed = F.create_map(F.lit(RANGE_ATTRIBUTE), F.lit("uint"))
    return rows.withColumns(
        {
            "attributes": F.when(cut & is_one, single).when(cut, one).otherwise(F.col("attributes")),
            "types": F.when(cut & is_one, F.lit(None)).when(cut, typed).otherwise(F.col("types")),
            "seq": seq,
        }
    ).select(*COLUMNS)


def manifest_at(history: History, seq: int) -> Manifest:
    """The newest version from which the stream can be read as of a sequence number.

    Where garbage was collected as of a later one, an earlier version is looked for; its files stay until they are cleaned away.
    """
    newest = history.existing()
    if newest.collected <= seq:
        return newest
    for version in reversed(history.versions()):
        try:
            manifest = history.read(version)
        except NoArchive:
            continue
        if manifest.collected <= seq < manifest.next:
            return manifest
    raise NotArchived(
        f"garbage of stream {history.stream!r} was collected as of {newest.collected}, and no version before that is kept: read it as "
        f"of {newest.collected} or later"
    )

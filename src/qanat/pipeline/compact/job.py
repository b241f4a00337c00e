"""Garbage collection of an archive: find what is dead, write the files that hold some anew, commit them in
one step.

Until the commit nothing that a reader sees has changed; after it the files of the former version are still
there, for those who read it, until they are cleaned away (`archive.clean`). A job that is killed leaves one
of the two versions, and files that nobody names. Another that begins takes over from one that runs: only the
last can commit. Archiving goes on meanwhile: it adds behind what is being rewritten.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qanat.events.errors import QanatError
from qanat.log.config import Policy
from qanat.pipeline.archive.clean import clean_waste
from qanat.pipeline.archive.errors import ArchiveError, NotArchived
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.manifest import Manifest
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.tables import read_files, write_pieces
from qanat.pipeline.compact.collection import NO_POLICY, Found, Stream, find, numbered
from qanat.pipeline.compact.files import Content, Rewriting, choose, contents
from qanat.pipeline.compact.graves import source_names, survivors, tombstones

SHUFFLE_BYTES = 128 * 1024 * 1024
"""Of an archive for each partition of a shuffle: a few times that in memory, which a task has."""


class CompactFailed(ArchiveError):
    """Spark, or a disk, failed. The archive is as it was."""


class Compacted(NamedTuple):
    """What was found, and what was done about it."""

    stream: str
    upto: int
    """Garbage was collected as of this number."""
    version: int
    """Of the manifest that has it; of the one that was looked at if nothing was written."""
    events: int
    """Before, without tombstones."""
    living: int
    rewritten: int
    """Files that were written anew (that would be, if it was only tried)."""
    files: int
    rows: int
    bytes: int
    """What the archive has now, with those that stayed as they were."""
    freed_bytes: int


def compact(
    spark: SparkSession,
    history: History,
    policy: Policy = NO_POLICY,
    *,
    upto: int | None = None,
    settings: ArchiveSettings | None = None,
    dry_run: bool = False,
) -> Compacted:
    """Collects the garbage of one archived stream as of `upto` (by default all that is archived).

    The policy is the stream's own; GC events are among the rows. Raises `Fenced` if another rewriter takes
    over.
    """
    settings = settings or ArchiveSettings()
    spark = _session(spark, history)
    if dry_run:
        manifest = history.existing()
        found = _find(spark, history, manifest, policy, upto)
        try:
            held = contents(found, manifest.files)
            return _told(manifest, manifest, found, held, choose(manifest.files, held, settings.file_bytes))
        finally:
            found.forget()
    history.existing()
    with history.begin("rewrite") as writer:
        clean_waste(history, writer)
        try:
            return _collect(spark, writer, policy, upto, settings)
        except QanatError:
            raise
        except Exception as error:
            raise CompactFailed(
                f"collecting the garbage of stream {history.stream!r} failed, and nothing was changed:"
                f" {_first_line(error)}"
            ) from error


def _collect(
    spark: SparkSession, writer: Writer, policy: Policy, upto: int | None, settings: ArchiveSettings
) -> Compacted:
    manifest = writer.manifest
    found = _find(spark, writer.history, manifest, policy, upto)
    try:
        held = contents(found, manifest.files)
        chosen = choose(manifest.files, held, settings.file_bytes)
        if chosen.outputs:
            _rewrite(spark, writer, found, chosen)
        return _told(manifest, writer.manifest, found, held, chosen)
    finally:
        found.forget()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _session(spark: SparkSession, history: History) -> SparkSession:
    """A session of the job's own, whose shuffles have partitions for all of the archive: those of a short job
    would spill."""
    own = spark.newSession()
    usual = int(str(own.conf.get("spark.sql.shuffle.partitions")))
    own.conf.set("spark.sql.shuffle.partitions", max(usual, history.existing().bytes // SHUFFLE_BYTES))
    return own


def _find(
    spark: SparkSession, history: History, manifest: Manifest, policy: Policy, upto: int | None
) -> Found:
    if not manifest.files:
        raise NotArchived(f"the archive of stream {manifest.stream!r} has no events yet")
    last = manifest.files[-1].last
    if upto is not None and not 1 <= upto <= last:
        raise NotArchived(
            f"the archive of stream {manifest.stream!r} ends at {last}; garbage cannot be collected as of"
            f" {upto}"
        )
    stream = Stream(
        manifest.stream,
        policy,
        last if upto is None else upto,
        cuts=tuple(file.first for file in manifest.files),
        lost=tuple(manifest.lost),
        first=manifest.files[0].first,
    )
    return find(read_files(spark, history, manifest.files), [stream])


def _rewrite(spark: SparkSession, writer: Writer, found: Found, chosen: Rewriting) -> None:
    manifest = writer.manifest
    old = [file for file, group in zip(manifest.files, chosen.groups, strict=True) if group >= 0]
    rows = numbered(read_files(spark, writer.history, old), found.streams)
    new = write_pieces(spark, writer, _arranged(rows, found, chosen), chosen.pieces)
    writer.replace([file.path for file in old], new, collected=found.streams[0].upto)


def _arranged(rows: DataFrame, found: Found, chosen: Rewriting) -> DataFrame:
    """What is left of the rows, each group a partition sorted by number, with the piece that it belongs
    to."""
    looked = found.with_words(rows)
    names = [stream.name for stream in found.streams]
    left = survivors(looked).unionByName(tombstones(looked, names, source_names(rows)))
    group = F.get(F.split(F.lit(",".join(map(str, chosen.groups))), ",").cast("array<int>"), F.col("file"))
    piece = F.get(
        F.split(F.lit(",".join(map(str, chosen.piece_of_group))), ",").cast("array<int>"), F.col("group")
    )
    return (
        left.withColumn("group", group)
        .withColumn("piece", piece)
        .repartitionById(chosen.outputs, "group")
        .sortWithinPartitions("piece", "seq")
    )


def _told(
    before: Manifest, after: Manifest, found: Found, held: Sequence[Content], chosen: Rewriting
) -> Compacted:
    same_part = sum(file.bytes for file in after.files if file.first < before.next)
    return Compacted(
        stream=before.stream,
        upto=found.streams[0].upto,
        version=after.version,
        events=sum(content.events for content in held),
        living=sum(content.living for content in held),
        rewritten=sum(group >= 0 for group in chosen.groups),
        files=len(after.files),
        rows=after.rows,
        bytes=after.bytes,
        freed_bytes=before.bytes - same_part,
    )

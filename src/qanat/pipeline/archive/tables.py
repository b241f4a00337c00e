"""Between Spark and an archive's files: reading some as a DataFrame, writing a DataFrame, or ranges of a
stream, as new ones."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from qanat.events.errors import InvariantError
from qanat.pipeline.archive.errors import ArchiveDamaged
from qanat.pipeline.archive.failing import attempt
from qanat.pipeline.archive.footer import Footer, read_footer
from qanat.pipeline.archive.history import History, Writer
from qanat.pipeline.archive.layout import STAGING, day_of
from qanat.pipeline.archive.manifest import DataFile, Range
from qanat.pipeline.archive.reading import read_rows
from qanat.pipeline.archive.storage import Entry, LocalStorage, Storage
from qanat.pipeline.archive.writing import (
    CODEC,
    LEVEL,
    NAMES_DDL,
    PIECE,
    ROW_GROUP_BYTES,
    write_partition,
    write_ranges,
)
from qanat.pipeline.attribute_maps import RANGE_ATTRIBUTE
from qanat.pipeline.columns import COLUMNS, DDL, FILED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_WRITE = {
    "compression": CODEC,
    "parquet.compression.codec.zstd.level": str(LEVEL),
    "parquet.page.write-checksum.enabled": "true",
    "parquet.block.size": str(ROW_GROUP_BYTES),
    # Keys, payloads and times hardly repeat: dictionaries are tried on them and thrown away again.
    "parquet.enable.dictionary#payload": "false",
    "parquet.enable.dictionary#key": "false",
    "parquet.enable.dictionary#seq": "false",
    "parquet.enable.dictionary#time": "false",
}
_FILED_DDL = DDL.removeprefix("stream string, ")
_READ = {"parquet.page.verify-checksum.enabled": "true"}


def present(storage: Storage, files: Iterable[DataFile]) -> None:
    """Raises `ArchiveDamaged` unless every file is there with its size. One listing for each day."""
    days: dict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        days[file.path.rpartition("/")[0]].append(file)
    for folder, expected in days.items():
        sizes = {f"{folder}/{entry.name}": entry.size for entry in storage.entries(folder)}
        for file in expected:
            size = sizes.get(file.path)
            if size != file.bytes:
                what = "is missing" if size is None else f"has {size} bytes and should have {file.bytes}"
                raise ArchiveDamaged(
                    f"{storage.url(file.path)}, which holds {file.first} to {file.last}, {what}: restore it"
                    " from a copy; `qanat archive check` lists all that is wrong"
                )


def read_files(spark: "SparkSession", history: History, files: Sequence[DataFile]) -> "DataFrame":
    """The rows of these files of a stream's archive, in no order; raises `ArchiveDamaged` if one is missing
    or cut short."""
    from pyspark.sql import functions as F

    storage = history.storage
    present(storage, files)
    if not files:
        return spark.createDataFrame([], DDL)
    rows = spark.read.options(**_READ).schema(_FILED_DDL).parquet(*(storage.url(file.path) for file in files))
    return rows.withColumn("stream", F.lit(history.stream)).select(*COLUMNS)


def span() -> "Column":
    """How many sequence numbers a row stands for."""
    from pyspark.sql import functions as F

    wide = F.col("attributes").getItem(RANGE_ATTRIBUTE).cast("bigint")
    return F.when(F.col("kind") == "tombstone", F.coalesce(wide, F.lit(1))).otherwise(F.lit(1))


def without_null_maps(rows: "DataFrame") -> "DataFrame":
    """The same rows for `mapInArrow`, with empty types instead of none.

    After each row Spark asks how large its batch is, and for that Arrow's Java looks at all rows since the
    last map that was not null: of 65,536 rows without types each costs some 200 µs.
    """
    from pyspark.sql import functions as F

    return rows.withColumn("types", F.coalesce("types", F.create_map().cast("map<string,string>")))


def write_files(
    spark: "SparkSession", writer: Writer, rows: "DataFrame", first: int, last: int
) -> list[DataFile]:
    """Writes rows that cover first..last as new files, and returns what to commit.

    Each partition of `rows` holds a contiguous piece, sorted by seq; it becomes a file. A file lies in the
    folder of the day on which its first event was published. Until they are committed the files are not in
    the archive; whatever happens before leaves only waste. Raises `InvariantError` if the rows do not cover
    first..last, each number once.
    """
    return write_pieces(spark, writer, rows, [Range(first, last)])


def write_pieces(
    spark: "SparkSession", writer: Writer, rows: "DataFrame", pieces: Sequence[Range]
) -> list[DataFile]:
    """Likewise, of rows that cover several ranges; the column `piece` says which one each is of, and each
    partition is sorted by it first."""
    staging = staging_of(writer)
    with attempt(writer, staging):
        return _write_pieces(spark, writer, rows, pieces, staging)


def _write_pieces(
    spark: "SparkSession", writer: Writer, rows: "DataFrame", pieces: Sequence[Range], staging: str
) -> list[DataFile]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    storage = writer.history.storage
    seen = Observation()
    several = [PIECE] if len(pieces) > 1 else []
    counted = rows.select(*FILED.names, *several).observe(
        seen, F.count(F.lit(1)).alias("rows"), F.sum(span()).alias("span")
    )
    written: list[DataFile] = []
    if isinstance(storage, LocalStorage):
        folder = storage.make_folder(staging)
        task = partial(write_partition, folder)
        files = _made(storage, staging, without_null_maps(counted).mapInArrow(task, NAMES_DDL))
        for number, (first, last) in enumerate(pieces):
            written += put_in_place(storage, writer, staging, first, last, files[number])
    else:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        counted.write.options(**_WRITE).partitionBy(*several).parquet(storage.url(staging))
        for number, (first, last) in enumerate(pieces):
            folder = f"{staging}/{PIECE}={number}" if several else staging
            written += put_in_place(storage, writer, folder, first, last)
    storage.remove(staging)
    found, wanted = seen.get, sum(last - first + 1 for first, last in pieces)
    if (found["rows"], found["span"] or 0) != (sum(file.rows for file in written), wanted):
        raise InvariantError(
            f"stream {writer.history.stream!r}: rows for {pieces[0].first} to {pieces[-1].last} cover"
            f" {found['span']} numbers, and should {wanted}, with {found['rows']} rows, of which"
            f" {sum(file.rows for file in written)} were written"
        )
    return written


def _made(storage: Storage, staging: str, names: "DataFrame") -> dict[int, list[Entry]]:
    """The files whose names tasks told, by their piece. What others are there is of tasks that Spark did not
    count."""
    told = names.collect()
    there = {entry.name: entry for entry in storage.entries(staging)}
    found: dict[int, list[Entry]] = defaultdict(list)
    for row in told:
        found[row[PIECE]].append(there[row["name"]])
    return found


def staging_of(writer: Writer) -> str:
    """A folder that nobody has, for what a writer has not put in place."""
    return f"{STAGING}/{writer.name}-{uuid.uuid4().hex}"


def put_in_place(
    storage: Storage,
    writer: Writer,
    staging: str,
    first: int,
    last: int,
    entries: Iterable[Entry] | None = None,
) -> list[DataFile]:
    """Moves files that were written to a folder for staging (these, or all Parquet files) to where they stay;
    each begins where the one before it ends."""
    if entries is None:
        entries = [entry for entry in storage.entries(staging) if entry.name.endswith(".parquet")]
    found: list[tuple[Footer, Entry]] = []
    for entry in entries:
        footer = read_footer(storage, f"{staging}/{entry.name}")
        if footer is not None:
            found.append((footer, entry))
    files: list[DataFile] = []
    at = first
    for footer, entry in sorted(found, key=lambda pair: pair[0].min_seq):
        if not at <= footer.min_seq <= footer.max_seq <= last:
            raise InvariantError(
                f"stream {writer.history.stream!r}: a file with {footer.min_seq} to {footer.max_seq} overlaps"
                f" another, or is outside {at} to {last}"
            )
        path = writer.path(day_of(footer.first_time_us), at, footer.max_seq)
        staged = f"{staging}/{entry.name}"
        checksum = storage.checksum(staged)
        storage.move(staged, path)
        files.append(
            DataFile(
                path=path,
                first=at,
                last=footer.max_seq,
                rows=footer.rows,
                bytes=entry.size,
                checksum=checksum,
                min_time_us=footer.min_time_us,
                max_time_us=footer.max_time_us,
            )
        )
        at = footer.max_seq + 1
    if at != last + 1:
        raise InvariantError(f"stream {writer.history.stream!r}: files end at {at - 1}, and should at {last}")
    return files


class Tables(Protocol):
    """What archiving needs of whoever moves rows."""

    @property
    def tasks(self) -> int:
        """How many ranges are read at once."""

    def write_ranges(self, writer: Writer, url: str, ranges: Sequence[Range]) -> list[DataFile]:
        """Reads adjacent ranges of the writer's stream and writes each as a file; see `write_files`."""

    def merge(self, writer: Writer, files: Sequence[DataFile]) -> list[DataFile]:
        """Writes the rows of adjacent files as one."""


class SparkTables:
    """Rows moved by Spark: a range is a task, which reads it from the stream's server."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    @property
    def tasks(self) -> int:
        return self._spark.sparkContext.defaultParallelism

    def write_ranges(self, writer: Writer, url: str, ranges: Sequence[Range]) -> list[DataFile]:
        storage, stream = writer.history.storage, writer.history.stream
        numbers = self._spark.range(0, len(ranges), 1, len(ranges))
        if not isinstance(storage, LocalStorage):
            rows = numbers.mapInArrow(partial(read_ranges, url, stream, ranges), _FILED_DDL)
            return write_files(self._spark, writer, rows, ranges[0].first, ranges[-1].last)
        staging = staging_of(writer)
        with attempt(writer, staging):
            folder = storage.make_folder(staging)
            made = numbers.mapInArrow(partial(write_ranges, url, stream, ranges, folder), NAMES_DDL)
            entries = [entry for part in _made(storage, staging, made).values() for entry in part]
            files = put_in_place(storage, writer, staging, ranges[0].first, ranges[-1].last, entries)
            storage.remove(staging)
            return files

    def merge(self, writer: Writer, files: Sequence[DataFile]) -> list[DataFile]:
        rows = read_files(self._spark, writer.history, files).repartition(1).sortWithinPartitions("seq")
        return write_files(self._spark, writer, rows, files[0].first, files[-1].last)


def read_ranges(
    url: str, stream: str, ranges: Sequence[Range], parts: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A task: the rows of the ranges whose numbers come."""
    for part in parts:
        for number in part.column(0).to_pylist():
            yield from read_rows(url, stream, *ranges[number])

"""What tests of archives share: streams that are filled, archives that are compared with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.client import Client
from qanat.pipeline.archive.archiver import Archiver
from qanat.pipeline.archive.history import History
from qanat.pipeline.archive.settings import ArchiveSettings
from qanat.pipeline.archive.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = ArchiveSettings(batch_ms=0, range_rows=500)
"""Commits at once, and tasks of few rows, so that little data goes every way."""


def fill(client: Client, stream: str, count: int, first: int = 1) -> None:
    """Events that say which they are, with keys and attributes of all types in some."""
    numbers = range(first, first + count)
    client.publish_many(
        stream,
        [b"event %d" % n for n in numbers],
        keys=[b"k%d" % (n % 7) for n in numbers],
        attributes=[{"n": n, "even": True, "text": f"t{n}"} if n % 2 == 0 else {"f": n / 4} for n in numbers],
    )


def archiver(
    spark: SparkSession,
    url: str,
    folder: Path,
    stream: str,
    settings: ArchiveSettings = QUICK,
    **options: Any,
) -> Archiver:
    return Archiver(spark, url, str(folder), stream, settings=settings, **options)


def archive_all(
    spark: SparkSession,
    url: str,
    folder: Path,
    stream: str,
    settings: ArchiveSettings = QUICK,
    **options: Any,
) -> History:
    """Archives up to the stream's end."""
    with archiver(spark, url, folder, stream, settings, **options) as job:
        for _ in job.run(until_end=True):
            pass
        return job.history


def history_of(folder: Path, stream: str) -> History:
    return History(LocalStorage(str(folder)), stream)


def rows(table: DataFrame) -> list[dict[str, Any]]:
    """The rows by sequence number, as Python has them."""
    return sorted((row.asDict(recursive=True) for row in table.collect()), key=lambda row: row["seq"])


def in_stream(client: Client, stream: str, first: int, last: int) -> list[dict[str, Any]]:
    """What the stream has of a range, in the same form."""
    from qanat.pipeline.archive.reading import read_batches
    from qanat.pipeline.columns import arrow_of

    found: list[dict[str, Any]] = []
    for batch in read_batches(client, stream, first, last):
        for row in arrow_of(stream, batch).to_pylist():
            for name in ("attributes", "types"):
                row[name] = None if row[name] is None else dict(row[name])
            row["time"] = row["time"].replace(tzinfo=None)
            found.append(row)
    return found

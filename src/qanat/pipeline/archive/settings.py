"""Settings of archiving."""

from typing import Annotated

import msgspec

from qanat.pipeline.session import SparkSettings
from qanat.runtime.settings import setting


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How streams become Parquet files."""

    file_bytes: Annotated[
        int,
        setting(
            "Size that data files should have.",
            unit="bytes",
            why=(
                "a few of Spark's read splits: 8,000 files for a terabyte, and each still read by one task in"
                " a second"
            ),
            ge=64 * 1024,
        ),
    ] = 128 * 1024 * 1024
    batch_ms: Annotated[
        int,
        setting(
            "After new events are seen, time in which more may come before they are archived together.",
            unit="ms",
            why="history may be some seconds behind, and every commit costs files",
            ge=0,
        ),
    ] = 5_000
    batch_rows: Annotated[
        int,
        setting(
            "Most events of one commit; a backlog is archived in several.",
            unit="events",
            why="a crash repeats at most this much work",
            ge=1,
        ),
    ] = 16_000_000
    range_rows: Annotated[
        int,
        setting(
            "Events that one task reads at least, where there are enough.",
            unit="events",
            why="below this a task's own cost is more than its work",
            ge=1,
        ),
    ] = 200_000
    small_files: Annotated[
        int,
        setting(
            "Small files at the archive's end that are merged by its writer as soon as there are so many.",
            unit="files",
            why="keeps the number of files in hundreds, and rewrites each event about twice",
            ge=2,
        ),
    ] = 64
    keep_ms: Annotated[
        int,
        setting(
            "How long files stay that no longer belong to the archive's newest version.",
            unit="ms",
            why="a week: so long the archive can be read as of a moment before its garbage was collected",
            ge=0,
        ),
    ] = 7 * 24 * 3600 * 1000
    patience_ms: Annotated[
        int,
        setting(
            "Time in which nothing could be archived after which the job gives up.",
            unit="ms",
            why="servers and executors restart within it",
            ge=0,
        ),
    ] = 300_000


class ArchiveJobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `qanat archive` reads beside its arguments."""

    spark: SparkSettings = SparkSettings()
    archive: ArchiveSettings = ArchiveSettings()

"""Settings of archiving."""

from typing import Annotated

import msgspec

from qanat.pipeline.session import SparkSettings
from qanat.runtime.settings import setting


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Parquet files of streams."""

    file_bytes: Annotated[
        int,
        setting(
            "Wanted size of data files.",
            unit="bytes",
            why=(
                "a few of Spark's read splits: 8,000 files for a terabyte, and one task reads each"
                " in a second"
            ),
            ge=64 * 1024,
        ),
    ] = 128 * 1024 * 1024
    batch_ms: Annotated[
        int,
        setting(
            "Time to wait for more events before new ones are archived together.",
            unit="ms",
            why="an archive may be some seconds behind, and every commit costs files",
            ge=0,
        ),
    ] = 5_000
    batch_rows: Annotated[
        int,
        setting(
            "Most events of one commit; a backlog takes several.",
            unit="events",
            why="a crash repeats at most this much work",
            ge=1,
        ),
    ] = 16_000_000
    range_rows: Annotated[
        int,
        setting(
            "Fewest events that one task reads, if there are enough.",
            unit="events",
            why="a smaller task costs more than its work",
            ge=1,
        ),
    ] = 200_000
    small_files: Annotated[
        int,
        setting(
            "Number of small files at the archive's end at which the writer merges them.",
            unit="files",
            why="keeps the number of files in the hundreds and rewrites each event about twice",
            ge=2,
        ),
    ] = 64
    keep_ms: Annotated[
        int,
        setting(
            "How long files of older versions of the archive stay.",
            unit="ms",
            why="for a week you can read the archive as it was before garbage collection",
            ge=0,
        ),
    ] = 7 * 24 * 3600 * 1000
    patience_ms: Annotated[
        int,
        setting(
            "Time without progress after which the job fails.",
            unit="ms",
            why="servers and executors restart within it",
            ge=0,
        ),
    ] = 300_000


class ArchiveJobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `qanat archive` and `qanat compact`, given with `--set`."""

    spark: SparkSettings = SparkSettings()
    archive: ArchiveSettings = ArchiveSettings()

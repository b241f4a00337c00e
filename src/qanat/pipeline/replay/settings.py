"""Settings of a replay."""

from typing import Annotated

import msgspec

from qanat.pipeline.session import SparkSettings
from qanat.runtime.settings import setting


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reads of events from an archive."""

    rate_bytes_per_s: Annotated[
        int,
        setting(
            "Most bytes per second from the archive; 0: no limit.",
            unit="bytes/s",
            why="a replay alone may use the whole disk; give one beside live traffic a share",
            reload=True,
            ge=0,
        ),
    ] = 0
    threads: Annotated[
        int,
        setting(
            "Row groups read and decoded in parallel.",
            unit="threads",
            why=(
                "Arrow does most of the work outside Python's lock; beyond some cores the disk is the limit"
            ),
            ge=1,
            le=64,
        ),
    ] = 4
    ahead_bytes: Annotated[
        int,
        setting(
            "About how many decoded bytes are held ahead of the reader; at least one row group.",
            unit="bytes",
            why="a row group of 32 MiB for each thread",
            ge=0,
        ),
    ] = 128 * 1024 * 1024
    batch_bytes: Annotated[
        int,
        setting(
            "Size of the delivered batches.",
            unit="bytes",
            why="the size of a busy publisher's batches",
            ge=4096,
            le=8 * 1024 * 1024,
        ),
    ] = 960 * 1024
    handover_rows: Annotated[
        int,
        setting(
            "Events left in the archive below which the server takes over, if it has them.",
            unit="events",
            why="a replay would otherwise follow a growing archive forever, one commit behind",
            ge=0,
        ),
    ] = 100_000


class ReplayJobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `qanat replay`, in the file of `--config` or given with `--set`."""

    spark: SparkSettings = SparkSettings()
    replay: ReplaySettings = ReplaySettings()

"""Settings of a replay."""

from typing import Annotated

import msgspec

from qanat.pipeline.session import SparkSettings
from qanat.runtime.settings import setting


class ReplaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How history is read from an archive, and how fast."""

    rate_bytes_per_s: Annotated[
        int,
        setting(
            "Bytes per second that come from the archive at most; 0: as fast as they can be read.",
            unit="bytes/s",
            why="a replay that is alone may take what there is; one beside live traffic is given a share",
            reload=True,
            ge=0,
        ),
    ] = 0
    threads: Annotated[
        int,
        setting(
            "Row groups that are read and decoded at once.",
            unit="threads",
            why=(
                "most of the work is Arrow's, outside of Python's lock; more than some cores' worth waits for"
                " the disk"
            ),
            ge=1,
            le=64,
        ),
    ] = 4
    ahead_bytes: Annotated[
        int,
        setting(
            "Decoded bytes that are held ahead of the reader, about; one row group at least.",
            unit="bytes",
            why="a row group of 32 MiB for each thread",
            ge=0,
        ),
    ] = 128 * 1024 * 1024
    batch_bytes: Annotated[
        int,
        setting(
            "Size of the batches that are handed over.",
            unit="bytes",
            why="as large as those of a busy publisher",
            ge=4096,
            le=8 * 1024 * 1024,
        ),
    ] = 960 * 1024
    handover_rows: Annotated[
        int,
        setting(
            "With fewer than so many events left in the archive, the server takes over, if it has them.",
            unit="events",
            why="an archive that grows while it is read would be followed for ever, a commit behind",
            ge=0,
        ),
    ] = 100_000


class ReplayJobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `qanat replay` reads beside its arguments."""

    spark: SparkSettings = SparkSettings()
    replay: ReplaySettings = ReplaySettings()

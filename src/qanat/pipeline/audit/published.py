"""The archive's side: what was published, by blocks, with whether each event passes each filter."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from qanat.pipeline.audit.blocks import DATA, GC, TOMBSTONE, Array, cut, groups, pack_rows
from qanat.pipeline.audit.deliveries import SIDE_DDL, side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def blocks(events: "DataFrame", stream: int, filters: Sequence[str]) -> "DataFrame":
    """Events in their tabular form as blocks of `SIDE`. Filters are evaluated by Spark, not by what brokers
    use.

    Of an event only number, kind and time go on, and a bit for each filter; columns that no filter asks for
    are not read.
    """
    from pyspark.sql import functions as F

    from qanat.events.filters import parse
    from qanat.pipeline.archive.tables import span
    from qanat.pipeline.filters.columns import column_of

    passes = [column_of(parse(text)).alias(f"f{i}") for i, text in enumerate(filters)]
    is_grave = F.col("kind") == "tombstone"
    code = F.when(is_grave, TOMBSTONE).when(F.col("kind") == "gc", GC).otherwise(DATA)
    narrow = [F.col("seq"), code.cast("tinyint").alias("kind"), F.unix_micros("time").alias("time_us")]
    # What a tombstone stands for is among its attributes, a column that would be most of the reading; of a
    # file without any, nothing is read for them.
    rows = events.where(~is_grave).select(*narrow, F.lit(1).cast("bigint").alias("span"), *passes)
    graves = events.where(is_grave).select(*narrow, span().alias("span"), *passes)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = 0
        for batch in batches:
            if batch.num_rows:
                yield side(_rows(batch, stream, number))
                number += 1

    return rows.mapInArrow(pack, SIDE_DDL).unionByName(graves.mapInArrow(pack, SIDE_DDL))


def _rows(
    batch: pa.RecordBatch, stream: int, number: int
) -> list[tuple[int, int, int, int, int, int, bytes]]:
    seq, kind, time_us, span = (_numbers(batch.column(i)) for i in range(4))
    flags = [np.asarray(column.to_numpy(zero_copy_only=False), bool) for column in batch.columns[4:]]
    passes = np.stack(flags) if flags else np.zeros((0, len(seq)), bool)
    pieces = cut(seq - span + 1, seq)
    rows = []
    for block, of in groups(pieces.block):
        origin = pieces.of[of]
        packed = pack_rows(pieces.at[of], pieces.to[of], kind[origin], time_us[origin], passes[:, origin])
        rows.append((stream, block, 0, -1, number, len(of), packed))
    return rows


def _numbers(column: pa.Array) -> Array:
    return np.asarray(column.to_numpy(zero_copy_only=False))

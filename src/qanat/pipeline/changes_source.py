"""The part of the format `qanat` that the option `changes` asks for: the log of a datastore, continuously or
as it is now.

`source.QanatSource` hands over to these four as soon as there is that option; what the options are stands in
`changes_options`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader


def asks_for_changes(options: Mapping[str, str]) -> bool:
    return any(name.lower() == "changes" for name in options)


def changes_schema(options: Mapping[str, str]) -> "tuple[str, pa.Schema]":
    """The tabular form and `shard string`; or, with `ranges`, the ends of ranges. As Spark and as Arrow know
    it."""
    from qanat.pipeline.changes_options import ChangesOptions
    from qanat.pipeline.changes_ranges import RANGES, RANGES_DDL
    from qanat.pipeline.changes_rows import SHARDED, SHARDED_DDL

    return (RANGES_DDL, RANGES) if ChangesOptions.read(options).ranges else (SHARDED_DDL, SHARDED)


def changes_reader(options: Mapping[str, str]) -> "DataSourceReader":
    from qanat.pipeline.changes_batch import ChangesBatch
    from qanat.pipeline.changes_options import ChangesOptions

    return ChangesBatch(ChangesOptions.read(options))


def changes_stream_reader(options: Mapping[str, str]) -> "DataSourceStreamReader":
    from qanat.pipeline.changes_options import ChangesOptions
    from qanat.pipeline.changes_ranges import ChangesRanges
    from qanat.pipeline.changes_stream import ChangesStream

    read = ChangesOptions.read(options)
    return ChangesRanges(read) if read.ranges else ChangesStream(read)

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
    """The tabular form and `shard string`, as Spark and as Arrow know it."""
    from qanat.pipeline.changes.options import ChangesOptions
    from qanat.pipeline.changes.rows import SHARDED, SHARDED_DDL

    ChangesOptions.read(options)  # what is wrong with them is said before a query is planned
    return SHARDED_DDL, SHARDED


def changes_reader(options: Mapping[str, str]) -> "DataSourceReader":
    from qanat.pipeline.changes.batch import ChangesBatch
    from qanat.pipeline.changes.options import ChangesOptions

    return ChangesBatch(ChangesOptions.read(options))


def changes_stream_reader(options: Mapping[str, str]) -> "DataSourceStreamReader":
    from qanat.pipeline.changes.options import ChangesOptions
    from qanat.pipeline.changes.stream import ChangesStream

    return ChangesStream(ChangesOptions.read(options))

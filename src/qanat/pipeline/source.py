"""The format `qanat`: streams as tables that are read and written, in batches and continuously."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from qanat.pipeline.changes_source import (
    asks_for_changes,
    changes_reader,
    changes_schema,
    changes_stream_reader,
)
from qanat.pipeline.columns import ARROW, DDL
from qanat.pipeline.stream_options import BadOption, StreamOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from qanat.pipeline.sink_options import SinkOptions


class QanatSource(DataSource):
    """`spark.read.format("qanat")` and its kin; Spark makes one in each of its processes, from the options alone."""

    @classmethod
    def name(cls) -> str:
        return "qanat"

    def schema(self) -> "StructType | str":
        if asks_for_changes(self.options):
            return changes_schema(self.options)
        StreamOptions.read(self.options)  # what is wrong with them is said before anything is planned
        return DDL

    def reader(self, schema: "StructType") -> "DataSourceReader":
        if asks_for_changes(self.options):
            return changes_reader(self.options)
        from qanat.pipeline.batch_reader import BatchReader

        return BatchReader(StreamOptions.read(self.options), columns_of(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        if asks_for_changes(self.options):
            return changes_stream_reader(self.options)
        from qanat.pipeline.stream_reader import StreamReader

        return StreamReader(StreamOptions.read(self.options), columns_of(schema))

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from qanat.pipeline.sink import BatchSink

        options = self._sink(schema)
        return BatchSink(options, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from qanat.pipeline.sink import StreamSink

        options = self._sink(schema)
        return StreamSink(options, overwrite=overwrite)

    def _sink(self, schema: "StructType") -> "SinkOptions":
        from qanat.pipeline.sink_columns import check_schema
        from qanat.pipeline.sink_options import SinkOptions

        options = SinkOptions.read(self.options)
        check_schema(schema, options.stream)
        return options


def columns_of(schema: "StructType") -> list[str]:
    """The columns that a query wants: those of its own `.schema(…)`, if it has one; what is left out is never made."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in to_arrow_schema(schema, timezone="UTC"):
        if field.name not in ARROW.names or not ARROW.field(field.name).type.equals(field.type):
            raise BadOption(
                f"column {field.name!r} of type {field.type} is not one of a stream's events, which are {DDL}; give some of these, "
                "or no schema at all"
            )
    return list(schema.fieldNames())
